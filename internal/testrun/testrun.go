// Package testrun runs controllers, informers and managers of tests.
package testrun

import (
	"context"
	"sync"
	"testing"
)

// Start calls run in another goroutine. stop ends the context of run and waits until run has returned; the test fails
// if it returns an error. The end of the test calls stop, and calls after the first one do nothing.
func Start(tb testing.TB, run func(ctx context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }() // waited for by stop
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run returned %v", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}
