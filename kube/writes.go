package kube

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/retry"
)

// ErrReadOnly is the error of a write that is not sent because of Cluster.SetReadOnly. Its class is retry.Default.
var ErrReadOnly = retry.WithClass(errors.New("writes are switched off"), retry.Default)

// writeLimits limit the writes of a Cluster.
//
// Invariants:
//   - Writes are sent in the order of their calls of wait. The first one in queue waits for the time of the next write,
//     the others wait until they are the first one.
//   - Each switch closes changed, so that all of them evaluate it at once.
type writeLimits struct {
	readOnly atomic.Bool
	limit    atomic.Uint64 // bits of a float64: writes in a second; 0 means no limit

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed and replaced by a switch
	queue   list.List     // guarded by mu; of *waitingWrite
	last    time.Time     // guarded by mu; the time of the last write in the queue
}

// waitingWrite is a write that waits for the limit.
type waitingWrite struct {
	since time.Time
	first chan struct{} // closed when it is the first one in the queue
}

func newWriteLimits() *writeLimits { return &writeLimits{changed: make(chan struct{})} }

// set makes a change, and lets waiting writes evaluate it.
func (l *writeLimits) set(change func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change()
	close(l.changed)
	l.changed = make(chan struct{})
}

// perSecond returns the limit, 0 for none.
func (l *writeLimits) perSecond() float64 { return math.Float64frombits(l.limit.Load()) }

// SetReadOnly switches the writes through clients of the Cluster off or on, at any time. A write that is switched off
// fails with ErrReadOnly, and is not sent; also one that waits for SetWriteLimit. Writes in flight are not affected.
//
// These requests are never switched off or limited: dry runs; reviews of tokens and of access; and those of package
// leader for its lease, so that a leader without writes remains the leader, and no other replica begins to write.
func (c *Cluster) SetReadOnly(on bool) { c.limits.set(func() { c.limits.readOnly.Store(on) }) }

// SetWriteLimit limits the writes through clients of the Cluster to a number in each second, at any time; 0, the
// default, means no limit. Writes wait for their turn, in the order of the calls, until their context or their term of
// leadership ends; a write that would wait longer than until the deadline of its context fails at once. A new limit
// also applies to writes that wait already. It panics if perSecond is negative or not a number.
//
// It protects the API server, and those who watch the objects, from an operator that changes very many of them: after a
// new version with another template, for example. rest.Config.QPS limits reads too.
func (c *Cluster) SetWriteLimit(perSecond float64) {
	if math.IsNaN(perSecond) || perSecond < 0 {
		panic(fmt.Sprintf("Cluster.SetWriteLimit(%v): want a number of writes in a second, or 0 for no limit",
			perSecond))
	}
	c.limits.set(func() { c.limits.limit.Store(math.Float64bits(math.Abs(perSecond))) }) // 0 for a negative zero
}

// wait waits until a request may be sent. term is nil without leadership. A request with an invalid path is an error.
func (l *writeLimits) wait(req *http.Request, basePath string, term *leadership.Term) error {
	if err := apiobject.CheckPath(req.URL.Path); err != nil {
		return err
	}
	if !l.readOnly.Load() && l.limit.Load() == 0 || reads(req, basePath) {
		return nil
	}
	ctx := req.Context()
	if call := callOf(req, basePath); call.DryRun || call.reviews() || leadership.IsElection(ctx) {
		return nil
	}
	var lost <-chan struct{}
	if term != nil {
		lost = term.Lost()
	}
	w, element, err := l.enqueue(ctx)
	if err != nil {
		return err
	}
	defer l.leave(element)
	for {
		changed, delay, err := l.next(w, element)
		switch {
		case err != nil:
			return err
		case changed == nil:
			return nil
		}
		turn := w.first
		var timer *time.Timer // nil unless w is the first one
		var due <-chan time.Time
		if delay >= 0 {
			timer = time.NewTimer(delay)
			turn, due = nil, timer.C
		}
		select {
		case <-due:
		case <-turn:
		case <-changed:
		case <-lost:
			err = term.Err()
		case <-ctx.Done():
			err = fmt.Errorf("wait for the write limit: %w", context.Cause(ctx))
		}
		if timer != nil {
			timer.Stop()
		}
		if err != nil {
			return err
		}
	}
}

// enqueue appends a write to the queue. The error is not nil if its turn would come after the deadline of ctx.
func (l *writeLimits) enqueue(ctx context.Context) (*waitingWrite, *list.Element, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &waitingWrite{since: time.Now(), first: make(chan struct{})}
	if deadline, ok := ctx.Deadline(); ok && !l.readOnly.Load() && l.limit.Load() != 0 {
		before := float64(l.queue.Len()) / l.perSecond()
		if wait := max(l.dueLocked().Sub(w.since), 0).Seconds() + before; wait > deadline.Sub(w.since).Seconds() {
			return nil, nil, fmt.Errorf("wait for the write limit of %g in a second: %w", l.perSecond(),
				context.DeadlineExceeded)
		}
	}
	element := l.queue.PushBack(w)
	if l.queue.Len() == 1 {
		close(w.first)
	}
	return w, element, nil
}

// leave removes a write from the queue.
func (l *writeLimits) leave(element *list.Element) {
	l.mu.Lock()
	defer l.mu.Unlock()
	wasFirst := l.queue.Front() == element
	l.queue.Remove(element)
	if next := l.queue.Front(); wasFirst && next != nil {
		close(next.Value.(*waitingWrite).first)
	}
}

// dueLocked returns when the next write may be sent. mu must be held, and there must be a limit.
func (l *writeLimits) dueLocked() time.Time {
	if l.last.IsZero() {
		return l.last
	}
	const longest = math.MaxInt64 / 2
	return l.last.Add(time.Duration(min(float64(time.Second)/l.perSecond(), longest)))
}

// next returns a nil channel if a write may be sent now. Otherwise changed is closed at the next switch, and delay is
// the time until the write may be sent, or negative while it is not the first one in the queue.
func (l *writeLimits) next(
	w *waitingWrite, element *list.Element,
) (changed <-chan struct{}, delay time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.readOnly.Load():
		return nil, 0, fmt.Errorf("%w: Cluster.SetReadOnly(false) switches them on", ErrReadOnly)
	case l.limit.Load() == 0:
		return nil, 0, nil
	case l.queue.Front() != element:
		return l.changed, -1, nil
	}
	now, due := time.Now(), l.dueLocked()
	if delay = due.Sub(now); delay > 0 {
		return l.changed, delay, nil
	}
	// A timer fires late. Counted from now, a high limit would not be reached.
	const latest = 100 * time.Millisecond
	if l.last = now; w.since.Before(due) && now.Sub(due) < latest {
		l.last = due
	}
	return nil, 0, nil
}

// reviews reports whether a create only asks the API server a question.
func (c Call) reviews() bool {
	return c.Verb == "create" && (c.Resource.Group == "authentication.k8s.io" ||
		c.Resource.Group == "authorization.k8s.io")
}
