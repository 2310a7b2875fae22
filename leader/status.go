package leader

import (
	"errors"
	"fmt"
	"time"
)

// state is the state of an Elector.
type state string

// The states. They follow each other in this order. stateStandby follows stateLost, or stateLeading if Config.Fence
// rejects the writes of the leader. stateStopped can follow each of them.
const (
	// stateStopped: Run has not been called, or has returned.
	stateStopped state = "stopped"
	// stateStandby: another process holds the lease, or no process does yet.
	stateStandby state = "standby"
	// stateLeading: this Elector holds the lease, and work is about to run, runs or drains.
	stateLeading state = "leading"
	// stateLost: leadership was lost, and work has not returned yet.
	stateLost state = "lost"
)

// Status is a snapshot of an Elector.
type Status struct {
	// Lease is the lease's namespace/name. Identity is this Elector's identity in it.
	Lease    string
	Identity string
	// Leading is true while this Elector holds the lease: work is about to run, runs or drains. Standby is true while
	// another process holds the lease, or no process does yet. Both are false before and after Run, and from a loss of
	// leadership until work has returned.
	Leading bool
	Standby bool
	// Since is the time when that began.
	Since time.Time
	// Leader is the holder in the lease when it was last read or written, or empty if it had no holder or was not read
	// yet. Only Leading means that this Elector leads: after a loss, the lease may name it for some time.
	Leader string
	// Until is, while Leading, the time until which no other process can hold the lease, even if all renewals fail:
	// RenewDeadline after the last successful renewal began. It has a monotonic clock reading; compare it with
	// time.Now. The package's documentation lists the assumptions about clocks. Otherwise it is zero.
	Until time.Time
	// Err is why the lease cannot be read or written, or why Config.Fence keeps the process from leading or working; or
	// nil.
	Err error
	// ErrSince is the time of the first of these failures, except for those of the fence.
	ErrSince time.Time

	state state
}

// ready implements Elector.Ready.
func (s Status) ready() error {
	_, waits := errors.AsType[*fenceError](s.Err)
	switch {
	case s.state == stateLeading && !waits:
		return nil
	case s.state == stateStopped:
		return fmt.Errorf("leader election on lease %s: not running", s.Lease)
	case s.state == stateLost:
		return fmt.Errorf("leader election on lease %s: leadership was lost, and work has not ended yet", s.Lease)
	case s.Err != nil:
		return fmt.Errorf("leader election: %w", s.Err)
	case s.Leader == "":
		return fmt.Errorf("leader election on lease %s: no leader is known yet", s.Lease)
	}
	return nil
}

// Status returns the Elector's status. It makes no request.
func (e *Elector) Status() Status {
	e.mu.Lock()
	defer e.unlock()
	if e.term != nil {
		e.term.checkLocked()
	}
	s := Status{
		Lease: e.lease, Identity: e.config.Identity,
		Leading: e.state == stateLeading, Standby: e.state == stateStandby, state: e.state, Since: e.since,
		Leader: e.leader, Err: e.err, ErrSince: e.errSince,
	}
	if e.fenceErr != nil {
		s.Err = e.fenceErr
	}
	if s.state == stateLeading {
		s.Until = e.deadline.time
		// The monotonic clock does not include the time for which the machine was suspended.
		if suspended := time.Until(s.Until) - (e.deadline.clock - e.clock()); suspended >= minSuspension {
			s.Until = s.Until.Add(-suspended)
		}
	}
	return s
}

// Ready returns nil if this Elector leads, or is in standby while another process leads. It suits a readiness probe.
// Otherwise the error is the reason; for a rejected request it contains the verb, the lease and the user. A leader is
// ready as long as it leads, even if its renewals fail: see Status.Err.
func (e *Elector) Ready() error { return e.Status().ready() }

// ReadyWith returns the readiness of a process in which the Elector runs several controllers, or other parts, in one
// work. It suits a readiness probe. While this Elector leads, all parts must be ready. In standby the process is ready
// if the Elector is: its controllers do not run, and a rolling update would never finish if it waited for them.
func (e *Elector) ReadyWith(parts ...interface{ Ready() error }) error {
	status := e.Status()
	if err := status.ready(); err != nil || !status.Leading {
		return err
	}
	var errs []error
	for _, part := range parts {
		errs = append(errs, part.Ready())
	}
	return errors.Join(errs...)
}

// enter changes the state. mu must be held.
func (e *Elector) enter(s state) { e.state, e.since = s, time.Now() }
