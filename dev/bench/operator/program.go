package main

import (
	"bytes"
	"context"
	_ "embed" // the file that adds profiles to a program
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/dev/bench/internal/subprocess"
)

// Names of the programs in results.
const (
	evenKeel          = "evenkeel"
	controllerRuntime = "controller-runtime"
)

// program is one of the two operators.
type program struct {
	name, title string
	// module is the folder of its module in the repository, pkg its package in there.
	module, pkg string
	// library is the path of the module with the reported version; empty: the commit of the repository.
	library string
	// flags are its own flags, beside -kubeconfig and -records.
	flags []string
}

func programs() []program {
	return []program{
		{
			name: evenKeel, title: "Even Keel", module: "examples/webapp", pkg: ".",
			flags: []string{"-listen=127.0.0.1:0", "-leader-elect=false"}, // as the other one
		},
		{
			name: controllerRuntime, title: "controller-runtime", module: "dev/bench/controllerruntime", pkg: "webapp",
			library: "sigs.k8s.io/controller-runtime", flags: []string{"-metrics=127.0.0.1:0", "-health=127.0.0.1:0"},
		},
	}
}

//go:embed profile.go.txt
var profileSource []byte

// build builds the program into dir and returns the binary's path. With profiles, a file is added to its package that
// serves CPU profiles; the sources in the repository stay as they are.
func (p program) build(ctx context.Context, repository, dir string, profiles bool) (string, error) {
	binary := filepath.Join(dir, p.name)
	module := filepath.Join(repository, filepath.FromSlash(p.module))
	args := []string{"build", "-o", binary}
	if profiles {
		overlay, err := profileOverlay(filepath.Join(module, p.pkg), dir)
		if err != nil {
			return "", err
		}
		args = append(args, "-overlay", overlay)
	}
	command := exec.CommandContext(ctx, "go", append(args, "./"+p.pkg)...)
	command.Dir = module
	command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s in %s: %w\n%s", p.pkg, module, err, bytes.TrimSpace(text))
	}
	return binary, nil
}

// profileOverlay writes the files that make `go build -overlay` add profileSource to the package in folder.
func profileOverlay(folder, dir string) (string, error) {
	source, overlay := filepath.Join(dir, "profile.go"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(source, profileSource, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{
		"Replace": {filepath.Join(folder, "profile_of_the_benchmark.go"): source},
	})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// operator is a running program.
type operator struct {
	name           string
	command        *exec.Cmd
	ended          chan struct{}
	output         *subprocess.Tail
	profileAddress string // empty: it serves no profiles

	// Written before ended is closed.
	err error
}

// stopTime is how long an operator may take to end after SIGTERM.
const stopTime = 60 * time.Second

// startOperator starts a binary. The caller must call stop.
func startOperator(p program, binary, kubeconfig, records, profileAddress string) (*operator, error) {
	args := append([]string{"-kubeconfig=" + kubeconfig, "-records=" + records}, p.flags...)
	command := exec.Command(binary, args...)
	command.Env = subprocess.Environment()
	if profileAddress != "" {
		command.Env = append(command.Env, "BENCH_PROFILE_ADDRESS="+profileAddress)
	}
	o := &operator{
		name: p.name, command: command, ended: make(chan struct{}), output: &subprocess.Tail{},
		profileAddress: profileAddress,
	}
	command.Stdout, command.Stderr = o.output, o.output
	endWithThisProcess(command)
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() { // stop waits for it, through ended
		o.err = command.Wait()
		close(o.ended)
	}()
	return o, nil
}

// failed returns an error when the operator has ended by itself.
func (o *operator) failed() error {
	select {
	case <-o.ended:
		return fmt.Errorf("%s ended by itself (%w): %s", o.name, errors.Join(errors.New("exit"), o.err), o.output)
	default:
		return nil
	}
}

// stop ends the operator by SIGTERM and waits for its end; after stopTime it kills the operator and returns an error.
func (o *operator) stop() error {
	select {
	case <-o.ended:
		return nil
	default:
	}
	if err := o.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", o.name, err)
	}
	select {
	case <-o.ended:
		return nil
	case <-time.After(stopTime):
		_ = o.command.Process.Kill() // fails only if it has ended
		<-o.ended
		return fmt.Errorf("%s did not end within %v after SIGTERM: %s", o.name, stopTime, o.output)
	}
}

// startProfile begins a CPU profile of the operator. The returned function ends it and writes it to path.
func (o *operator) startProfile(ctx context.Context, path string) (finish func() error, err error) {
	if o.profileAddress == "" {
		return func() error { return nil }, nil
	}
	call := func(what string) ([]byte, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+o.profileAddress+"/"+what, nil)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		return io.ReadAll(response.Body)
	}
	for range 100 { // the program may have begun a moment ago
		if _, err = call("start"); err == nil {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("start a profile of %s: %w", o.name, errors.Join(err, context.Cause(ctx)))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start a profile of %s: %w", o.name, err)
	}
	return func() error {
		profile, err := call("stop")
		if err != nil {
			return fmt.Errorf("read the profile of %s: %w", o.name, err)
		}
		allocated, err := call("allocs")
		if err != nil {
			return fmt.Errorf("read the allocations of %s: %w", o.name, err)
		}
		return errors.Join(os.WriteFile(path+".cpu.pprof", profile, 0o600),
			os.WriteFile(path+".allocs.pprof", allocated, 0o600))
	}, nil
}

// freeAddress returns an address of this machine at which no program listens.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}
