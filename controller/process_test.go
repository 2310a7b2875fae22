//go:build unix

package controller_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// The environment of a process that runs a controller: how the handling of one key ends the process, and the StateDir.
const (
	endsBy   = "EVENKEEL_CONTROLLER_TEST_ENDS_BY"
	stateDir = "EVENKEEL_CONTROLLER_TEST_STATE_DIR"
)

const (
	processObjects = 200
	processWorkers = 8
)

// TestProgram is the program of the next test. In other processes it does nothing.
func TestProgram(t *testing.T) {
	t.Parallel()
	mode := os.Getenv(endsBy)
	if mode == "" {
		return
	}
	server := newServer()
	for n := range processObjects {
		server.Put(object(fmt.Sprintf("c%03d", n), "1"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var mu sync.Mutex
	var ending atomic.Bool
	handled := 0
	c := config(server, func(_ context.Context, obj configMap) error {
		switch {
		case obj.Name == "c042" && mode != "repaired":
			ending.Store(true)
			endProcess(t, mode)
		case ending.Load():
			select {} // in work when the process ends
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Println("handled", obj.Name)
		if handled++; handled == processObjects {
			cancel()
		}
		return nil
	})
	c.Runs.StateDir, c.Workers, c.Logger = os.Getenv(stateDir), processWorkers, slog.New(slog.NewTextHandler(os.Stdout, nil))
	if err := newController(t, c).Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// endProcess ends the process as mode says.
func endProcess(t *testing.T, mode string) {
	t.Helper()
	switch mode {
	case "exit":
		os.Exit(3)
	case "killed": // as by the kernel, when a container has no memory left
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		select {}
	case "memory": // a fatal error of the Go runtime: more memory than a process can have
		size := 1 << 47
		fmt.Println(len(make([]byte, size)))
	}
}

// signalled is set in the environment of a process that gets signals.
const signalled = "EVENKEEL_CONTROLLER_TEST_SIGNALLED"

// TestSignalledProgram is the program of the next test: the signals as in README.md, and a handler that ignores the end
// of its context. In other processes it does nothing.
func TestSignalledProgram(t *testing.T) {
	t.Parallel()
	if os.Getenv(signalled) == "" {
		return
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := newController(t, config(newServer("a"), func(_ context.Context, obj configMap) error {
		fmt.Println("handles", obj.Name)
		<-ctx.Done()
		stop() // if it has not been called yet
		fmt.Println("ignores the end of its context")
		<-t.Context().Done()
		return nil
	})).Run(ctx)
	fmt.Println("Run returned", err)
}

// Without a manager, nothing of the library handles signals: after the first one, which ends the context, the next ends
// the process, also while a handler does not return.
func TestSecondSignalEndsProcessWithoutManager(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSignalledProgram$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), signalled+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var output []string
	for lines := bufio.NewScanner(stdout); lines.Scan(); output = append(output, lines.Text()) {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // one for each line
			t.Error(err)
		}
	}
	err = cmd.Wait()
	if status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("the process ended with %v, want the end by SIGTERM", err)
	}
	if want := []string{"handles a", "ignores the end of its context"}; !slices.Equal(output, want) {
		t.Errorf("the output is %q, want %q", output, want)
	}
}

// A key whose handling ends the process does not prevent the handling of other keys after a restart. Only those that
// were in work at the same time wait for one more restart: until then any of them may be the cause.
func TestKeyThatEndsTheProcess(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exit", "killed", "memory"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if handled, _ := runProgram(t, mode, dir, false); slices.Contains(handled, "c042") {
				t.Fatal("the first process handled the key that ends it")
			}
			for process := 1; process <= 3; process++ {
				handled, log := runProgram(t, mode, dir, false)
				rest := processObjects - 1
				if process == 1 {
					rest = min(rest, max(len(handled), processObjects-processWorkers))
				}
				if slices.Contains(handled, "c042") || len(handled) != rest {
					t.Errorf("process %d handled %d other keys", process, len(handled))
				}
				want := "problem=interrupted message=\"the process has ended " + map[int]string{1: "1 time", 2: "2 times", 3: "3 times"}[process] + " while"
				if found := slices.ContainsFunc(log, func(line string) bool {
					return strings.Contains(line, want) && strings.Contains(line, "ns/c042")
				}); !found {
					t.Errorf("process %d: %q is not in the log:\n%s", process, want, strings.Join(log, "\n"))
				}
				if reported := len(log); process > 2 && reported != 1 {
					t.Errorf("process %d reported %d keys:\n%s", process, reported, strings.Join(log, "\n"))
				}
			}
			for _, reports := range []int{1, 0} {
				handled, log := runProgram(t, "repaired", dir, true)
				if len(handled) != processObjects || len(log) != reports {
					t.Errorf("the repaired program handled %d keys, and reported %d:\n%s", len(handled), len(log), strings.Join(log, "\n"))
				}
			}
		})
	}
}

// runProgram runs TestProgram until it ends, and returns the different keys that it handled and the problems that it
// logged.
func runProgram(t *testing.T, mode, dir string, succeeds bool) (handled, log []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), endsBy+"="+mode, stateDir+"="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "handled "); ok {
			handled = append(handled, name)
		} else if strings.Contains(lines.Text(), "problem=") {
			log = append(log, lines.Text())
		}
	}
	if err := cmd.Wait(); (err == nil) != succeeds {
		t.Fatalf("mode %s: %v", mode, err)
	}
	slices.Sort(handled)
	return slices.Compact(handled), log
}
