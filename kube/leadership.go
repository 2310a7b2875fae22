package kube

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

// ErrLeadershipLost is the cause (context.Cause) of a context that was cancelled because another process may hold the
// lease from now on.
//
// It distinguishes the two ways in which work ends: after an ordinary stop a controller lets handlers finish for its
// drain time; with this cause it cancels them at once, because a further write could conflict with those of the new
// leader.
//
// A Cluster also returns it for a write that it does not send for this reason. It replaces the error of a connection
// there, but it is not a connection failure: its class is retry.Default.
var ErrLeadershipLost = retry.WithClass(errors.New("leadership lost"), retry.Default)

// Reasons for the end of a Leadership, besides those passed to Lose.
var (
	errNotRenewed = errors.New("the lease was not renewed in time")
	errReleased   = errors.New("the lease was released")
)

// Leadership is one term of leadership: from the acquisition of a lease until it is lost or released. Contexts that
// carry it (WithLeadership) are cancelled at its end. From then on, or at the latest from the deadline on, a Cluster
// sends no write with such a context.
//
// Each write is checked against the deadline twice: when the request is made, and immediately before its bytes are
// passed to the operating system. (The second check is not made if the Cluster's config has its own Transport, unless
// that is an *http.Transport without DialTLS and DialTLSContext.) The checks do not cover two cases: the process is
// stopped between the second check and the system call that follows it, and the network delays a request. An election
// needs a safety margin for them (in package leader, LeaseDuration minus RenewDeadline). Only a write with the
// resourceVersion on which it is based is safe in all cases: the API server rejects it if another leader has written in
// the meantime.
//
// Leader election creates and ends Leaderships; user code does not need to.
type Leadership struct {
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

// cancellation is a context that the end of a Leadership cancels.
type cancellation struct{ cancel context.CancelCauseFunc }

// ended is the deadline of a Leadership that has ended. It is before every reading of a clock.
const ended = time.Duration(-1 << 63)

// NewLeadership returns a Leadership that is lost at the deadline until, unless it is extended. now returns the time
// that has passed since a fixed time in the past. It must not jump when the time of day is set, and should include the
// time for which the machine was suspended. Default: the time since NewLeadership was called, by the monotonic clock.
//
// The caller must end it with Lose or Release.
func NewLeadership(now func() time.Duration, until time.Duration) *Leadership {
	if now == nil {
		start := time.Now()
		now = func() time.Duration { return time.Since(start) }
	}
	l := &Leadership{
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

// expire ends the Leadership if the deadline has passed.
func (l *Leadership) expire() {
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
func (l *Leadership) Extend(until time.Duration) error {
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

// Err returns nil until the Leadership ends. Afterwards it returns the reason, which wraps ErrLeadershipLost, also
// after Release. If the deadline has passed, Err ends the Leadership.
func (l *Leadership) Err() error {
	if l.now() < time.Duration(l.until.Load()) {
		return nil
	}
	l.Lose(errNotRenewed) // unless it has ended already
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Lost returns a channel that is closed when the Leadership ends.
func (l *Leadership) Lost() <-chan struct{} { return l.lost }

// Lose ends the Leadership: contexts are cancelled before it returns, and writes in flight are aborted. It does nothing
// if the Leadership has ended already.
func (l *Leadership) Lose(reason error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = fmt.Errorf("%w: %w", ErrLeadershipLost, reason)
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

// Release ends the Leadership after its work has ended. When it returns, no write of this Leadership is sent any
// longer. It does nothing if the Leadership has ended already.
func (l *Leadership) Release() {
	l.Lose(errReleased)
	// A write that was checked before is being passed to the operating system, or fails because its connection is
	// closed.
	l.writing.Lock()
	defer l.writing.Unlock()
}

// cancelAtEnd registers cancel to be called at the end of the Leadership. remove removes it.
func (l *Leadership) cancelAtEnd(cancel context.CancelCauseFunc) (remove func()) {
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

type leadershipKey struct{}

// WithLeadership returns a context for work that may only be done while a lease is held. It carries the leadership, and
// is cancelled when ctx ends, or with the cause ErrLeadershipLost when the leadership ends. The caller must call cancel
// when the work has ended.
//
// Leader election calls it; user code does not need to.
func WithLeadership(ctx context.Context, leadership *Leadership) (_ context.Context, cancel context.CancelFunc) {
	return leadership.context(context.WithValue(ctx, leadershipKey{}, leadership))
}

// context returns a context that is cancelled at the end of the Leadership.
func (l *Leadership) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	remove := l.cancelAtEnd(cancel)
	return ctx, func() { remove(); cancel(nil) }
}

// leadershipOf returns the leadership in ctx, or nil.
func leadershipOf(ctx context.Context) *Leadership {
	l, _ := ctx.Value(leadershipKey{}).(*Leadership)
	return l
}

// LeadershipLost returns a channel that is closed when the leadership in ctx ends. It differs from ctx.Done(): after an
// ordinary stop the context has ended while the work drains, and the lease can still be lost. It is nil, which blocks
// forever, if ctx carries no leadership.
func LeadershipLost(ctx context.Context) <-chan struct{} {
	if l := leadershipOf(ctx); l != nil {
		return l.lost
	}
	return nil
}

// UntilLeadershipLost returns a context for work that may continue after ctx has ended, for example the removal of a
// finalizer. It has the values of ctx, and no deadline. It is cancelled by cancel, which the caller must call, or with
// the cause ErrLeadershipLost: when the leadership in ctx ends, or if ctx ends with this cause.
//
// Use it instead of context.WithoutCancel. With the latter, writes are refused after a loss too, but other work
// continues.
func UntilLeadershipLost(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	outliving := context.WithoutCancel(ctx)
	if l := leadershipOf(ctx); l != nil {
		return l.context(outliving)
	}
	// Electors of other libraries only cancel contexts.
	outliving, cancelCause := context.WithCancelCause(outliving)
	endIfLost := func() {
		if cause := context.Cause(ctx); errors.Is(cause, ErrLeadershipLost) {
			cancelCause(cause)
		}
	}
	endIfLost() // AfterFunc would call it in another goroutine, possibly late
	stop := context.AfterFunc(ctx, endIfLost)
	return outliving, func() { stop(); cancelCause(nil) }
}
