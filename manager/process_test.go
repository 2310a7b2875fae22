//go:build unix

package manager_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/evenkeel-go/evenkeel/manager"
)

// inProcess is set in the environment of a process that runs a manager: to "drains" or to "stuck".
const inProcess = "EVENKEEL_MANAGER_TEST"

// TestProgram is the program of the next test. In other processes it does nothing.
func TestProgram(t *testing.T) {
	t.Parallel()
	mode := os.Getenv(inProcess)
	if mode == "" {
		return
	}
	m, err := manager.New(manager.Config{Runnables: []manager.Runnable{{
		Name: "work", Runner: manager.RunFunc(func(ctx context.Context) error {
			fmt.Fprintln(os.Stderr, "working")
			<-ctx.Done()
			if mode == "stuck" {
				select {}
			}
			return nil
		}),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	os.Exit(manager.ExitStatus(m.Run(t.Context())))
}

func TestSignalsOfProcess(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]int{"drains": 0, "stuck": 128 + int(syscall.SIGTERM)} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), inProcess+"="+mode)
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var last string
			for lines := bufio.NewScanner(stderr); lines.Scan(); last = lines.Text() {
				if line := lines.Text(); line == "working" || mode == "stuck" && strings.Contains(line, "manager stopping") {
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
			}
			err = cmd.Wait()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit status %d, want %d; last line: %s", got, want, last)
			}
			if wantLine := map[string]string{"drains": "manager stopped", "stuck": "second signal"}[mode]; !strings.Contains(last, wantLine) {
				t.Errorf("last line %q, want one with %q", last, wantLine)
			}
		})
	}
}
