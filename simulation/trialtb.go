package simulation

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// trialTB is the testing.TB of a trial: a failure is a result, and does not fail the test.
type trialTB struct {
	testing.TB
	name    string
	context context.Context //nolint:containedctx // that of testing.TB

	mu       sync.Mutex
	failures []string // guarded by mu
	cleanups []func() // guarded by mu
}

func (t *trialTB) Name() string             { return t.name }
func (t *trialTB) Context() context.Context { return t.context }
func (t *trialTB) Helper()                  {}
func (t *trialTB) Log(...any)               {}
func (t *trialTB) Logf(string, ...any)      {}

// Failed returns false: a cluster would log a report, which nobody would see.
func (t *trialTB) Failed() bool { return false }

func (t *trialTB) Fail()                             { t.fail("it failed without a message") }
func (t *trialTB) Error(args ...any)                 { t.fail(fmt.Sprint(args...)) }
func (t *trialTB) Errorf(format string, args ...any) { t.fail(fmt.Sprintf(format, args...)) }

func (t *trialTB) FailNow() {
	t.Fail()
	runtime.Goexit()
}

func (t *trialTB) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

func (t *trialTB) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *trialTB) fail(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures = append(t.failures, text)
}

// takeFailures returns the failures since its last call.
func (t *trialTB) takeFailures() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	failures := t.failures
	t.failures = nil
	return failures
}

func (t *trialTB) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// cleanup calls the functions of Cleanup, the last one first.
func (t *trialTB) cleanup() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		f()
	}
}
