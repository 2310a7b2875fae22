package kube

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/retry"
)

// ErrReadOnly is the error of a write that is not sent because of Cluster.SetReadOnly. Its class is retry.Default.
var ErrReadOnly = retry.WithClass(errors.New("writes are switched off"), retry.Default)

// writeLimits limit the writes of a Cluster.
type writeLimits struct {
	readOnly atomic.Bool
	bucket   *rate.Limiter // immutable; its limit is rate.Inf by default
}

func newWriteLimits() *writeLimits { return &writeLimits{bucket: rate.NewLimiter(rate.Inf, 1)} }

// SetReadOnly switches the writes through clients of the Cluster off or on, at any time. A write that is switched off fails
// with ErrReadOnly, and is not sent. Writes in flight are not affected.
//
// These requests are never switched off or limited: dry runs; reviews of tokens and of access; and those of package leader
// for its lease, so that a leader without writes remains the leader, and no other replica begins to write.
func (c *Cluster) SetReadOnly(on bool) { c.limits.readOnly.Store(on) }

// SetWriteLimit limits the writes through clients of the Cluster to a number in each second, at any time; 0, the default,
// means no limit. Writes wait for their turn, in the order of the calls, until their context ends; a write that would wait
// longer than until the deadline of its context fails at once. It panics if perSecond is negative or not a number.
//
// It protects the API server, and those who watch the objects, from an operator that changes very many of them: after a
// new version with another template, for example. rest.Config.QPS limits reads too.
func (c *Cluster) SetWriteLimit(perSecond float64) {
	switch {
	case math.IsNaN(perSecond) || perSecond < 0:
		panic(fmt.Sprintf("Cluster.SetWriteLimit(%v): want a number of writes in a second, or 0 for no limit", perSecond))
	case perSecond == 0:
		c.limits.bucket.SetLimit(rate.Inf)
	default:
		c.limits.bucket.SetLimit(rate.Limit(perSecond))
	}
}

// wait waits until a request may be sent. Most requests need no look at their path.
func (l *writeLimits) wait(req *http.Request, basePath string) error {
	readOnly := l.readOnly.Load()
	if !readOnly && l.bucket.Limit() == rate.Inf || reads(req, basePath) {
		return nil
	}
	ctx := req.Context()
	if call := callOf(req, basePath); call.DryRun || call.reviews() || leadership.IsElection(ctx) {
		return nil
	}
	if readOnly {
		return fmt.Errorf("%w: Cluster.SetReadOnly(false) switches them on", ErrReadOnly)
	}
	if err := l.bucket.Wait(ctx); err != nil {
		return l.explain(ctx, err)
	}
	if l.readOnly.Load() {
		return fmt.Errorf("%w: Cluster.SetReadOnly(false) switches them on", ErrReadOnly)
	}
	return nil
}

// explain returns the error of a write that has not waited to the end.
func (l *writeLimits) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("wait for the write limit: %w", cause)
	}
	return fmt.Errorf("wait for the write limit of %g in a second: %w: %w", float64(l.bucket.Limit()), context.DeadlineExceeded, err)
}

// reviews reports whether a create only asks the API server a question.
func (c Call) reviews() bool {
	return c.Verb == "create" && (c.Resource.Group == "authentication.k8s.io" || c.Resource.Group == "authorization.k8s.io")
}
