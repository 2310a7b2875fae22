package exampletest

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is the time within which an expected event must occur.
const patience = 2 * time.Minute

// Output collects the output of a program, and lets a test wait for it.
type Output struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{} // guarded by mu; closed at the next write
}

// NewOutput returns an empty Output.
func NewOutput() *Output { return &Output{changed: make(chan struct{})} }

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	close(o.changed)
	o.changed = make(chan struct{})
	return len(p), nil
}

// String returns the output so far.
func (o *Output) String() string {
	text, _ := o.now()
	return text
}

func (o *Output) now() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String(), o.changed
}

// Wait waits until the output contains some.
func (o *Output) Wait(tb testing.TB, some string) {
	tb.Helper()
	o.Until(tb, some, func(text string) bool { return strings.Contains(text, some) })
}

// Until waits until done returns true for the output.
func (o *Output) Until(tb testing.TB, what string, done func(text string) bool) {
	tb.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		text, changed := o.now()
		if done(text) {
			return
		}
		select {
		case <-changed:
		case <-late.C:
			tb.Fatalf("the output has no %q after %s:\n%s", what, patience, text)
		}
	}
}
