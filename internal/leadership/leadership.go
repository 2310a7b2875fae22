// Package leadership represents a term of leadership: its contexts, its deadline, and the transport of its writes. No
// write leaves the process after the end of the term. Package leader creates terms; package kube sends their writes.
package leadership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/retry"
)

// ErrLost is published as kube.ErrLeadershipLost, which documents it.
var ErrLost = retry.WithClass(errors.New("leadership lost"), retry.Default)

// ErrStillRunning is wrapped by the error of a Run that has returned although a function of the user ignores the end of
// its context. The lease under which the function was called must not be released: the function may still write.
var ErrStillRunning = errors.New("still running after the drain time")

// Reasons for the end of a Term, besides those passed to Lose.
var (
	errNotRenewed = errors.New("the lease was not renewed in time")
	errReleased   = errors.New("the lease was released")
)

// Term is one term of leadership: from the acquisition of a lease until it is lost or released. Contexts that carry it
// (With) are cancelled at its end. From then on, or at the latest from the deadline on, a kube.Cluster sends no write
// with such a context.
//
// Each write is checked against the deadline twice: when the request is made, and immediately before its bytes are
// passed to the operating system. (The second check is not made if the Cluster's config has its own Transport, unless
// that is an *http.Transport without DialTLS and DialTLSContext.) The checks do not cover two cases: the process is
// stopped between the second check and the system call that follows it, and the network delays a request. An election
// needs a safety margin for them (in package leader, LeaseDuration minus RenewDeadline). Only a write with the
// resourceVersion on which it is based is safe in all cases: the API server rejects it if another leader has written in
// the meantime.
//
// The package that runs the election creates and ends terms.
type Term struct {
	now   func() time.Duration
	until atomic.Int64 // the current deadline, a time.Duration; ended after the end
	lost  chan struct{}

	mu      sync.Mutex
	err     error                                // guarded by mu; the reason for the end, or nil
	timer   *time.Timer                          // guarded by mu; fires at the deadline
	cancels map[*cancellation]struct{}           // guarded by mu
	conns   map[*leasedConn]struct{}             // guarded by mu
	bases   map[*http.Transport]*leasedTransport // guarded by mu; by the transport for other requests

	// Held for reading while a write's bytes are passed to the operating system.
	writing sync.RWMutex
}

// cancellation is a context that the end of a Term cancels.
type cancellation struct{ cancel context.CancelCauseFunc }

// ended is the deadline of a Term that has ended. It is before every reading of a clock.
const ended = time.Duration(-1 << 63)

// New returns a Term that is lost at the deadline until, unless it is extended. now returns the time
// that has passed since a fixed time in the past. It must not jump when the time of day is set, and should include the
// time for which the machine was suspended. Default: the time since New was called, by the monotonic clock.
//
// The caller must end it with Lose or Release.
func New(now func() time.Duration, until time.Duration) *Term {
	if now == nil {
		start := time.Now()
		now = func() time.Duration { return time.Since(start) }
	}
	l := &Term{
		now: now, lost: make(chan struct{}),
		cancels: map[*cancellation]struct{}{}, conns: map[*leasedConn]struct{}{},
		bases: map[*http.Transport]*leasedTransport{},
	}
	l.until.Store(int64(until))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(max(until-now(), 0), l.expire)
	return l
}

// expire ends the Term if the deadline has passed.
func (l *Term) expire() {
	left := time.Duration(l.until.Load()) - l.now()
	if left <= 0 {
		l.Lose(errNotRenewed)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.timer.Reset(left)
	}
}

// Extend moves the deadline to until, unless that is earlier or the deadline has passed. It returns the result of Err.
//
// The deadline of a renewed lease must be counted from before the request was sent.
func (l *Term) Extend(until time.Duration) error {
	if err := l.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	if l.err == nil && until > time.Duration(l.until.Load()) {
		l.until.Store(int64(until)) // the timer checks it when it fires
	}
	l.mu.Unlock()
	return l.Err()
}

// Err returns nil until the Term ends. Afterwards it returns the reason, which wraps ErrLost, also
// after Release. If the deadline has passed, Err ends the Term.
func (l *Term) Err() error {
	if l.now() < time.Duration(l.until.Load()) {
		return nil
	}
	l.Lose(errNotRenewed) // unless it has ended already
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Lost returns a channel that is closed when the Term ends.
func (l *Term) Lost() <-chan struct{} { return l.lost }

// Lose ends the Term: contexts are cancelled before it returns, and writes in flight are aborted. It does nothing
// if the Term has ended already.
func (l *Term) Lose(reason error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = fmt.Errorf("%w: %w", ErrLost, reason)
	l.until.Store(int64(ended))
	close(l.lost) // before the contexts end, so that the reason can be read after their end
	l.timer.Stop()
	err, cancels, conns, bases := l.err, l.cancels, l.conns, l.bases
	l.cancels, l.conns, l.bases = nil, nil, nil
	l.mu.Unlock()
	for c := range cancels {
		c.cancel(err)
	}
	for c := range conns {
		_ = c.Conn.Close() // not through TLS, which would write
	}
	for _, base := range bases {
		base.CloseIdleConnections()
	}
}

// Release ends the Term after its work has ended. When it returns, no write of this Term is sent any
// longer. It does nothing if the Term has ended already.
func (l *Term) Release() {
	l.Lose(errReleased)
	// A write that was checked before is being passed to the operating system, or fails because its connection is
	// closed.
	l.writing.Lock()
	defer l.writing.Unlock()
}

// cancelAtEnd registers cancel to be called at the end of the Term. remove removes it.
func (l *Term) cancelAtEnd(cancel context.CancelCauseFunc) (remove func()) {
	c := &cancellation{cancel}
	l.mu.Lock()
	err := l.err
	if err == nil {
		l.cancels[c] = struct{}{}
	}
	l.mu.Unlock()
	if err != nil {
		cancel(err)
		return func() {}
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.cancels, c)
	}
}

type termKey struct{}

type electionKey struct{}

// ForElection returns the context of a request for the lease itself, which no limit of writes may delay.
func ForElection(ctx context.Context) context.Context {
	return context.WithValue(ctx, electionKey{}, true)
}

// IsElection reports whether ctx is from ForElection.
func IsElection(ctx context.Context) bool { return ctx.Value(electionKey{}) != nil }

// With returns a context for work that may only be done while a lease is held. It carries the leadership, and
// is cancelled when ctx ends, or with the cause ErrLost when the leadership ends. The caller must call cancel
// when the work has ended.
//
// Leader election calls it.
func With(ctx context.Context, term *Term) (_ context.Context, cancel context.CancelFunc) {
	return term.context(context.WithValue(ctx, termKey{}, term))
}

// context returns a context that is cancelled at the end of the Term.
func (l *Term) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	remove := l.cancelAtEnd(cancel)
	return ctx, func() { remove(); cancel(nil) }
}

// Of returns the leadership in ctx, or nil.
func Of(ctx context.Context) *Term {
	l, _ := ctx.Value(termKey{}).(*Term)
	return l
}

// Lost returns a channel that is closed when the leadership in ctx ends. It differs from ctx.Done(): after an
// ordinary stop the context has ended while the work drains, and the lease can still be lost. It is nil, which blocks
// forever, if ctx carries no leadership.
func Lost(ctx context.Context) <-chan struct{} {
	if l := Of(ctx); l != nil {
		return l.lost
	}
	return nil
}

// UntilLost is published as kube.UntilLeadershipLost, which documents it.
func UntilLost(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	outliving := context.WithoutCancel(ctx)
	if l := Of(ctx); l != nil {
		return l.context(outliving)
	}
	// Electors of other libraries only cancel contexts.
	outliving, cancelCause := context.WithCancelCause(outliving)
	endIfLost := func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
			cancelCause(cause)
		}
	}
	endIfLost() // AfterFunc would call it in another goroutine, possibly late
	stop := context.AfterFunc(ctx, endIfLost)
	return outliving, func() { stop(); cancelCause(nil) }
}
