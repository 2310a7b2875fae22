package exampletest

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Go calls a program's run function in a goroutine. stop ends it as Ctrl-C would, waits, and fails the test unless it
// returned nil. The end of the test calls stop too.
func Go(tb testing.TB, run func(ctx context.Context, out io.Writer) error) (out *Output, stop func()) {
	tb.Helper()
	out = NewOutput()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, out) }() // waited for by stop
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the program ended with: %v\n%s", err, out)
		}
	}
	tb.Cleanup(stop)
	return out, stop
}

// Build builds the command in the folder of the test, and returns its path.
func Build(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "program")
	// Without the race detector: the program must run as users run it.
	if text, err := exec.CommandContext(tb.Context(), "go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		tb.Fatalf("build the example: %v\n%s", err, text)
	}
	return path
}

// Process is a running program.
type Process struct {
	// Output is the program's output on both streams.
	Output *Output

	command *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	err     error         // valid when ended is closed
}

// Start starts a program. The end of the test kills it if it still runs.
func Start(tb testing.TB, program string, args ...string) *Process {
	tb.Helper()
	p := &Process{Output: NewOutput(), ended: make(chan struct{})}
	p.command = exec.Command(program, args...)
	p.command.Stdout, p.command.Stderr = p.Output, p.Output
	if err := p.command.Start(); err != nil {
		tb.Fatalf("start %s: %v", program, err)
	}
	go func() { // waited for by Kill, which Cleanup calls
		p.err = p.command.Wait()
		close(p.ended)
	}()
	tb.Cleanup(p.Kill)
	return p
}

// Kill ends the process with SIGKILL and waits for it.
func (p *Process) Kill() {
	_ = p.command.Process.Kill() // fails only if the process has ended
	<-p.ended
}

// Interrupt ends the process as Ctrl-C does. It fails the test unless the process ends in time, with exit status 0.
func (p *Process) Interrupt(tb testing.TB) {
	tb.Helper()
	p.end(tb, syscall.SIGINT)
}

// Terminate ends the process as the kubelet does. It fails the test unless the process ends in time, with exit status
// 0.
func (p *Process) Terminate(tb testing.TB) {
	tb.Helper()
	p.end(tb, syscall.SIGTERM)
}

func (p *Process) end(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if err := p.command.Process.Signal(signal); err != nil {
		tb.Fatalf("send %v to the program: %v\n%s", signal, err, p.Output)
	}
	select {
	case <-p.ended:
		if p.err != nil {
			tb.Errorf("after %v the program ended with: %v\n%s", signal, p.err, p.Output)
		}
	case <-time.After(patience):
		tb.Fatalf("the program still runs %s after %v:\n%s", patience, signal, p.Output)
	}
}

// FreeAddress returns an unused address. Its port is below the range that systems assign dynamically, so that no other
// program gets it in the meantime.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20000+rand.IntN(10000)))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			tb.Fatal(err)
		}
		return listener.Addr().String()
	}
	tb.Fatal("no port is free")
	return ""
}
