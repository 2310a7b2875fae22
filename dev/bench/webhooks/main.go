// Command webhooks compares the webhook servers of Even Keel and controller-runtime: admission of a Pod, and conversion
// of custom resources. Each server is a process of its own, which this one calls as the API server does: TLS, HTTP/1.1.
//
// It prints a table of medians. With -docs it writes the section of docs/reference/benchmarks.md.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/machine"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/result"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/subprocess"
)

// The libraries.
const (
	evenKeel          = "Even Keel"
	controllerRuntime = "controller-runtime"
)

// serveVariable makes this program a server. Its value is the library.
const serveVariable = "EVENKEEL_BENCH_WEBHOOKS_SERVE"

// Results are the measurements of a run.
type Results struct {
	Date      time.Time         `json:"date"`
	GoVersion string            `json:"goVersion"`
	Versions  map[string]string `json:"versions"` // by library
	Machine   machine.Machine   `json:"machine"`
	// Rounds has the figures of each round by case and library.
	Rounds map[string]map[string][]figures `json:"rounds"`
}

// figures are what one round measures of a case.
type figures struct {
	CPU     time.Duration `json:"cpu"` // of the server, for each call
	P50     time.Duration `json:"p50"`
	P99     time.Duration `json:"p99"`
	PeakRSS int64         `json:"peakRSS"` // of the server, in bytes, since it started
}

func main() {
	if library := os.Getenv(serveVariable); library != "" {
		if err := serve(library, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "webhooks:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "webhooks:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("webhooks", flag.ContinueOnError)
	flags.SetOutput(progress)
	rounds := flags.Int("rounds", 11, "how often everything is measured; medians count")
	calls := flags.Int("calls", 5000, "calls of a case in a round; conversions of many objects have fewer")
	docs := flags.String("docs", "", "a `file` whose section is written (default: none)")
	saved := flags.String("out", "", "a `file` for the results (default: none)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *rounds < 1 || *calls < 1 || flags.NArg() > 0 {
		return errors.New("-rounds and -calls must be at least 1, and there are no arguments")
	}
	results := &Results{
		Date: time.Now().UTC(), GoVersion: runtime.Version(), Machine: machine.This(),
		Rounds: map[string]map[string][]figures{},
		Versions: map[string]string{
			evenKeel:          machine.Commit(ctx, filepath.Join("..", "..", "..")),
			controllerRuntime: moduleVersion("sigs.k8s.io/controller-runtime"),
		},
	}
	for round := range *rounds {
		libraries := []string{evenKeel, controllerRuntime}
		if round%2 == 1 {
			libraries[0], libraries[1] = libraries[1], libraries[0]
		}
		for _, library := range libraries {
			fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, *rounds, library)
			if err := measure(ctx, library, *calls, results); err != nil {
				return fmt.Errorf("%s: %w", library, err)
			}
		}
	}
	if *saved != "" {
		if err := result.Write(*saved, results); err != nil {
			return err
		}
	}
	if *docs != "" {
		if err := writeDocs(results, *docs); err != nil {
			return err
		}
	}
	_, err := io.WriteString(out, document(results))
	return err
}

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return "unknown"
}

// measure starts a server for each case, and adds the figures of one round.
func measure(ctx context.Context, library string, calls int, results *Results) error {
	for _, c := range cases() {
		n := max(1, calls/c.cost)
		f, err := measureCase(ctx, library, c, n)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if results.Rounds[c.name] == nil {
			results.Rounds[c.name] = map[string][]figures{}
		}
		results.Rounds[c.name][library] = append(results.Rounds[c.name][library], f)
	}
	return nil
}

func measureCase(ctx context.Context, library string, c testCase, calls int) (f figures, err error) {
	server, err := start(ctx, library)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	// The first calls open connections, and let the server's heap grow.
	if _, err := server.load(ctx, c, max(1, calls/5)); err != nil {
		return f, err
	}
	before, err := server.usage()
	if err != nil {
		return f, err
	}
	times, err := server.load(ctx, c, calls)
	if err != nil {
		return f, err
	}
	after, err := server.usage()
	if err != nil {
		return f, err
	}
	return figures{
		CPU: (after.CPU - before.CPU) / time.Duration(len(times)), P50: times[len(times)/2],
		P99: times[len(times)*99/100], PeakRSS: after.PeakRSS,
	}, nil
}

// usage is what a server writes for each line of its input.
type usage struct {
	CPU     time.Duration `json:"cpu"`
	PeakRSS int64         `json:"peakRSS"`
}

// greeting is the first line of a server.
type greeting struct {
	Address string `json:"address"`
	CA      []byte `json:"ca"` // PEM
}

// process is a running server.
type process struct {
	greeting

	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Scanner
	log     *subprocess.Tail
}

// start starts a server. It ends when its input ends, so that it never outlives this process.
func start(ctx context.Context, library string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.CommandContext(ctx, self), log: &subprocess.Tail{}}
	p.command.Env = append(subprocess.Environment(), serveVariable+"="+library)
	p.command.Stderr = p.log
	if p.input, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	p.output = bufio.NewScanner(output)
	if err := p.read(&p.greeting); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// read decodes the next line of the server.
func (p *process) read(into any) error {
	if !p.output.Scan() {
		return fmt.Errorf("the server has ended: %s", p.log)
	}
	return json.Unmarshal(p.output.Bytes(), into)
}

func (p *process) usage() (u usage, err error) {
	if _, err := io.WriteString(p.input, "usage\n"); err != nil {
		return u, err
	}
	return u, p.read(&u)
}

// stop ends the server, and waits for it.
func (p *process) stop() error {
	err := p.input.Close()
	if waited := p.command.Wait(); waited != nil {
		err = errors.Join(err, fmt.Errorf("%w: %s", waited, strings.TrimSpace(p.log.String())))
	}
	return err
}
