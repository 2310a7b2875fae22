package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// Reasons for a loss.
var (
	errPanicked = errors.New("work panicked")
	errDeleted  = errors.New("the lease was deleted")
)

// heldBy is the reason for a loss if the lease has another holder than this Elector.
func heldBy(holder, identity string) error {
	switch holder {
	case "":
		return errors.New("the lease has no holder")
	case noLeaderYet:
		return errDeleted // and created again by a candidate
	case identity:
		return errors.New("the lease is held by another process with the same identity")
	}
	return fmt.Errorf("the lease is held by %s", holder)
}

// term is one candidacy: from the first attempt to acquire the lease until the lease is lost or released.
type term struct {
	// Immutable.
	elector      *Elector
	stopRenewing context.CancelFunc

	// Used by one goroutine at a time: acquire, renew and release follow each other.
	lease  *coordinationv1.Lease     // as last read or written
	other  *coordinationv1.LeaseSpec // the last record that this Elector has not written; nil before the first
	seenAt time.Time                 // when other was first read
	warned bool                      // another process with the same identity was logged

	// Guarded by elector.mu.
	leadership *leadership.Term // nil until the lease is acquired
	over       bool             // lost or ended
	lost       bool             // over because the lease was lost
	unsure     bool             // a write may have reached the lease
}

// moment is a time on two clocks.
type moment struct {
	time  time.Time     // for Status
	clock time.Duration // for the Leadership: Elector.clock
}

// begin returns the time before a request. If the deadline has passed, it cancels the context of renewals, so that the
// request is not sent.
func (t *term) begin() moment {
	t.elector.mu.Lock()
	defer t.elector.unlock()
	t.checkLocked()
	return moment{time.Now(), t.elector.clock()}
}

// extendLocked extends the leadership, or begins it, after a write that began at begun. elector.mu must be held.
func (t *term) extendLocked(begun moment) {
	e := t.elector
	// Counted from before the request, because other candidates may have seen the renewal since then.
	deadline := begun.clock + e.config.RenewDeadline
	e.deadline = moment{begun.time.Add(e.config.RenewDeadline), deadline}
	if t.leadership != nil {
		_ = t.leadership.Extend(deadline) // checkLocked handles the error
	} else {
		t.leadership = leadership.New(e.clock, deadline)
		e.enter(stateLeading)
		e.logLater(func() { e.logger.Info("leadership gained") })
	}
	t.checkLocked() // the request may have taken longer than RenewDeadline
}

// watch records the loss of leadership when its deadline passes. It returns when the leadership has ended.
func (t *term) watch(held *leadership.Term) {
	<-held.Lost()
	t.elector.mu.Lock()
	defer t.elector.unlock()
	t.checkLocked()
}

// checkLocked records the loss of leadership if the deadline has passed. elector.mu must be held.
func (t *term) checkLocked() {
	if t.leadership != nil && !t.over && t.leadership.Err() != nil {
		t.loseLocked(fmt.Errorf("the lease was not renewed for %s", t.elector.config.RenewDeadline))
	}
}

// lose ends the term with a reason, unless it is over already.
func (t *term) lose(reason error) {
	t.elector.mu.Lock()
	defer t.elector.unlock()
	t.loseLocked(reason)
}

// loseLocked is lose with elector.mu held.
func (t *term) loseLocked(reason error) {
	if t.over || t.leadership == nil {
		return
	}
	t.over, t.lost = true, true
	t.leadership.Lose(reason) // before anything else
	e := t.elector
	e.enter(stateLost)
	attrs := []any{"reason", reason}
	if e.err != nil {
		attrs = append(attrs, "error", e.err)
	}
	e.logLater(func() { e.logger.Warn("leadership lost, work cancelled", attrs...) })
	t.stopRenewing()
}

// current returns the leadership, or nil if the lease was not acquired.
func (t *term) current() *leadership.Term {
	t.elector.mu.Lock()
	defer t.elector.unlock()
	return t.leadership
}

// end ends the term, and reports whether leadership was lost before. Later changes of the lease are not a loss. After
// end, no write of work is sent.
func (t *term) end() (wasLost bool) {
	t.elector.mu.Lock()
	defer t.elector.unlock()
	t.checkLocked()
	t.over = true
	if t.leadership != nil {
		t.leadership.Release()
	}
	return t.lost
}

// mayHold reports whether the lease may name this Elector. Renewals must have ended.
func (t *term) mayHold() bool {
	t.elector.mu.Lock()
	defer t.elector.unlock()
	return t.leadership != nil || t.unsure
}
