package retryrules

import (
	"context"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// maxRetryAfter is the upper limit for a server's Retry-After. It protects against a proxy that sends
// a wrong value.
const maxRetryAfter = 10 * time.Minute

// ServerDelay returns the delay that the server asked for with err, at most 10 min, or 0.
func ServerDelay(err error) time.Duration {
	after, _ := usercode.RetryAfter(err)
	return min(after, maxRetryAfter)
}

// Wait waits for d, and reports whether that time has passed: it returns false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil // a timer would cost each request of an informer, which rarely has to wait
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
