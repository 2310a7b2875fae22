package localcluster

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	// progressEvery is the interval between progress lines in a log, such as in CI. On a terminal one line is
	// overwritten more often.
	progressEvery         = 10 * time.Second
	progressEveryTerminal = 200 * time.Millisecond

	// keptLines is the number of output lines in the error of a failed build.
	keptLines = 20
)

// progress counts the steps in the go command's output, and shows the count at intervals. Only one goroutine may use
// it.
type progress struct {
	out      io.Writer
	terminal bool
	started  time.Time
	shown    time.Time
	total    int // of packages; 0: unknown
}

func newProgress(out io.Writer) *progress {
	now := time.Now()
	return &progress{out: out, terminal: isTerminal(out), started: now, shown: now}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run runs a go command, shows its steps, and returns its stdout. The error of a failed command contains its last lines
// that are not steps.
func (p *progress) run(ctx context.Context, cmd *exec.Cmd, verb, unit string) (string, error) {
	var stdout strings.Builder
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return "", fmt.Errorf("creating a pipe: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting the go command: %w", err)
	}
	steps := 0
	var complaints []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		line := lines.Text()
		if isStep(line) {
			steps++
			p.show(steps, verb, unit)
			continue
		}
		complaints = append(complaints, line)
		complaints = complaints[max(0, len(complaints)-keptLines):]
	}
	if err := cmd.Wait(); err != nil {
		p.endLine()
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		complaints = slices.Insert(complaints, 0, "")
		return "", fmt.Errorf("%w%s", err, strings.Join(complaints, "\n  "))
	}
	return stdout.String(), nil
}

// isStep reports whether a line is a step: an import path of "go build -v", or a download. Other lines are compiler
// output.
func isStep(line string) bool {
	return strings.HasPrefix(line, "go: downloading ") || (line != "" && !strings.ContainsAny(line, " \t:#"))
}

func (p *progress) show(steps int, verb, unit string) {
	every := progressEvery
	if p.terminal {
		every = progressEveryTerminal
	}
	now := time.Now()
	if now.Sub(p.shown) < every {
		return
	}
	p.shown = now
	total := ""
	if p.total > 0 {
		total = fmt.Sprintf(" of %d", p.total) // the maximum: packages in the build cache are not compiled
	}
	p.line(fmt.Sprintf("localcluster: %s %d%s %s, %v", verb, steps, total, unit, now.Sub(p.started).Round(time.Second)))
}

func (p *progress) line(text string) {
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		return
	}
	fmt.Fprintln(p.out, text)
}

// endLine ends a line that is overwritten in place.
func (p *progress) endLine() {
	if p.terminal {
		fmt.Fprintln(p.out)
	}
}

func (p *progress) finish() {
	p.line(fmt.Sprintf("localcluster: built in %v", time.Since(p.started).Round(time.Second)))
	p.endLine()
}
