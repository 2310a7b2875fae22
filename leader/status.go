package leader

import (
	"errors"
	"fmt"
	"time"
)

// State is where an Elector is in its life.
type State int

// The states. From StateStopped on, they follow each other in this order; from StateLost
// it goes back to StateStandby, and from each of them to StateStopped.
const (
	// StateStopped: Run has not been called, or has returned.
	StateStopped State = iota
	// StateStandby: the lease is another's, or nobody's yet.
	StateStandby
	// StateLeading: the lease is held, and work runs or is about to; also while it drains.
	StateLeading
	// StateLost: the lease is not held any more, and work has not returned yet.
	StateLost
)

// String returns the state in a word.
func (s State) String() string {
	switch s {
	case StateStopped:
		return "stopped"
	case StateStandby:
		return "standby"
	case StateLeading:
		return "leading"
	case StateLost:
		return "lost"
	}
	return fmt.Sprintf("state %d", int(s))
}

// Status is the truth about an Elector at one moment.
type Status struct {
	// Lease is the lease's namespace/name; Identity is who this Elector is in it.
	Lease    string
	Identity string
	// State is what the Elector does; Since is when that began.
	State State
	Since time.Time
	// Leader is whom the lease named when it was last read or written. Empty: nobody, or
	// it has not been read yet. Only StateLeading says that this Elector leads: after a
	// loss, the lease may go on naming it for a while.
	Leader string
	// Until is, while leading, the moment until which nobody else can hold the lease,
	// however the next renewals go: RenewDeadline after the last successful one was begun.
	// It carries a reading of the monotonic clock; compare it with time.Now. See the
	// package's documentation for what is assumed of clocks. Otherwise zero.
	Until time.Time
	// Err is why the lease cannot be read or written now. Nil when it can.
	Err error
	// ErrSince is when Err began.
	ErrSince time.Time
}

// Ready returns nil when the Elector does what it should: it leads, or stands by while
// another leads. Otherwise the error says what is missing, down to the verb, the lease
// and the user of a refused request. A leader whose renewals fail is ready as long as it
// leads; Err tells of them.
func (s Status) Ready() error {
	switch {
	case s.State == StateLeading:
		return nil
	case s.State == StateStopped:
		return fmt.Errorf("leader election on lease %s: not running", s.Lease)
	case s.State == StateLost:
		return fmt.Errorf("leader election on lease %s: leadership was lost, and the work has not ended yet", s.Lease)
	case s.Err != nil:
		return fmt.Errorf("leader election: %w", s.Err)
	case s.Leader == "":
		return fmt.Errorf("leader election on lease %s: no leader is known yet", s.Lease)
	}
	return nil
}

// Status returns the Elector's state. It makes no request.
func (e *Elector) Status() Status {
	e.mu.Lock()
	defer e.unlock()
	if e.term != nil {
		e.term.checkLocked()
	}
	s := Status{
		Lease: e.lease, Identity: e.config.Identity,
		State: e.state, Since: e.since,
		Leader: e.leader, Err: e.err, ErrSince: e.errSince,
	}
	if s.State == StateLeading {
		s.Until = e.until.time
		// The monotonic clock does not include the time for which the machine was suspended.
		if suspended := time.Until(s.Until) - (e.until.clock - e.clock()); suspended >= leastSuspension {
			s.Until = s.Until.Add(-suspended)
		}
	}
	return s
}

// Ready is Status().Ready(). It suits a readiness probe.
func (e *Elector) Ready() error { return e.Status().Ready() }

// ReadyWith reports the readiness of a process whose elector stands around work: controllers, for
// instance, that are run in the function that Run takes. Standing by, the process is ready as soon
// as the elector is, because its controllers do not run: otherwise no rolling update could finish.
// While it leads, it is ready when all of work is. It suits a readiness probe.
func (e *Elector) ReadyWith(work ...interface{ Ready() error }) error {
	status := e.Status()
	if err := status.Ready(); err != nil || status.State != StateLeading {
		return err
	}
	var errs []error
	for _, w := range work {
		errs = append(errs, w.Ready())
	}
	return errors.Join(errs...)
}

// enter changes the state. mu must be held.
func (e *Elector) enter(s State) {
	e.state, e.since = s, time.Now()
}

// failed notes why the lease cannot be read or written, and logs it unless the same
// was logged since the last success. mu must be held.
func (e *Elector) failed(verb string, err error) {
	e.err = fmt.Errorf("%s lease %s: %w", verb, e.lease, err)
	if hint := hintFor(err, e.config.Namespace); hint != "" {
		e.err = fmt.Errorf("%w: %s", e.err, hint)
	}
	if e.errSince.IsZero() {
		e.errSince = time.Now()
	}
	e.errVerb = verb
	what := verb + " " + reasonOf(err)
	if e.logged[what] {
		return
	}
	if e.logged == nil {
		e.logged = map[string]bool{}
	}
	e.logged[what] = true
	err = e.err
	e.note(func() { e.logger.Warn("the lease is out of reach", "error", err) })
}

// succeeded forgets what failed has noted. mu must be held.
func (e *Elector) succeeded() {
	if e.err == nil {
		return
	}
	outage := time.Since(e.errSince)
	e.note(func() { e.logger.Info("the lease can be reached again", "after", outage) })
	e.err, e.errVerb, e.errSince, e.logged = nil, "", time.Time{}, nil
}

// note has log called when mu is unlocked: the user's log handler may ask for the Status.
// mu must be held, and be given back with unlock.
func (e *Elector) note(log func()) { e.notes = append(e.notes, log) }

// unlock gives mu back and logs what was noted.
func (e *Elector) unlock() {
	notes := e.notes
	e.notes = nil
	e.mu.Unlock()
	for _, log := range notes {
		log()
	}
}
