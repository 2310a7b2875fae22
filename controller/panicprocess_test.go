package controller_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

// panics is the environment variable of a process whose controller panics.
const panics = "EVENKEEL_CONTROLLER_TEST_PANICS"

func panicHere() { panic("a panic for debugging") }

// TestPanickingProgram is the program of the next test. In other processes it does nothing.
func TestPanickingProgram(t *testing.T) {
	t.Parallel()
	mode := os.Getenv(panics)
	if mode == "" {
		return
	}
	server := newServer("a", "b")
	handled := make(chan struct{}, 2)
	c := config(server, func(context.Context, configMap) error {
		if mode == "handler" {
			panicHere()
		}
		handled <- struct{}{}
		return nil
	})
	c.Runs.PanicsEndProcess = true
	switch mode {
	case "reconciler":
		c.Handler, c.Reconciler = nil, func(context.Context, kube.Key) error { panicHere(); return nil }
	case "deleted":
		c.Deleted = func(context.Context, configMap, bool) error { panicHere(); return nil }
	}
	start(t, newController(t, c))
	if mode == "deleted" {
		<-handled
		<-handled
		server.Delete(key("a"))
	}
	select {} // the process ends before
}

func TestPanicsEndProcess(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"handler", "reconciler", "deleted"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanickingProgram$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), panics+"="+mode)
			output, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the process ended without an error:\n%s", output)
			}
			for _, part := range []string{"panic: a panic for debugging", "controller_test.panicHere"} {
				if !strings.Contains(string(output), part) {
					t.Errorf("the output has no %q:\n%s", part, output)
				}
			}
		})
	}
}

// A handler that ends its goroutine without a panic is retried, as without PanicsEndProcess.
func TestGoexitDoesNotEndProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs journal
		c := config(newServer("a"), func(context.Context, configMap) error {
			runs.add("run")
			runtime.Goexit()
			return nil
		})
		c.Runs.PanicsEndProcess = true
		start(t, newController(t, c))
		time.Sleep(time.Second)
		if n := len(runs.take()); n < 3 {
			t.Errorf("%d runs", n)
		}
	})
}
