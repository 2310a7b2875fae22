package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Reasons of a loss.
var (
	errGaveUp   = errors.New("the lease could not be renewed")
	errPanicked = errors.New("work panicked")
	errDeleted  = errors.New("the lease was deleted")
)

// errMissing is returned to client-go in place of NotFound, for which it would create the lease and
// lead at once.
var errMissing = errors.New("the lease was deleted as soon as it was created")

// noLeaderYet is the holder that a candidate writes into a lease that did not exist. Nobody has this
// identity, and nobody renews it: as after a leader that has gone, candidates wait until it has expired.
const noLeaderYet = "no-leader-yet"

// term is one candidacy: from standing for leadership to its end. It is the lock that
// client-go's elector works on, and decides by what goes through it when the lease was
// gained and lost. (client-go itself would go on for RetryPeriod plus RenewDeadline after
// the last renewal, also when it has already seen another's name in the lease.)
type term struct {
	// Immutable after newTerm.
	owner        *Elector
	lock         resourcelock.Interface
	started      chan struct{} // closed by client-go when it has gained the lease
	stopElecting func()

	// Guarded by owner.mu.
	leadership *kube.Leadership // nil until the lease was written with our name
	over       bool             // lost or ended: no further request is made
	lost       bool             // over, because the lease was lost
	unsure     bool             // a write may or may not have reached the lease
	seen       []byte           // another's record, as last read
	namesake   bool             // another process with the same identity was logged
}

func (e *Elector) newTerm(stopElecting func()) *term {
	return &term{
		owner: e,
		lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.config.Namespace, Name: e.config.Name},
			Client:     e.config.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.config.Identity},
			Labels:     e.config.Labels,
		},
		started:      make(chan struct{}),
		stopElecting: stopElecting,
	}
}

// Get implements resourcelock.Interface.
func (t *term) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if _, err := t.begin(); err != nil {
		return nil, nil, err
	}
	request, cancel := context.WithTimeout(ctx, t.requestTimeout())
	defer cancel()
	record, raw, err := t.lock.Get(request)
	if apierrors.IsNotFound(err) {
		if err := t.missing(request); err != nil {
			return nil, nil, err
		}
		if record, raw, err = t.lock.Get(request); apierrors.IsNotFound(err) {
			return nil, nil, errMissing
		}
	}
	e := t.owner
	e.mu.Lock()
	defer e.unlock()
	if err != nil {
		e.disconnectAfter(request)
		t.failed(ctx, "get", err)
		return nil, nil, err
	}
	// raw has times in whole seconds: renewals within a second would not be seen as renewals.
	raw = fmt.Appendf(raw, " %d", record.RenewTime.UnixMicro())
	// client-go adds 1, and the API has 32 bits for it.
	record.LeaderTransitions = min(record.LeaderTransitions, math.MaxInt32-1)
	if e.leader = record.HolderIdentity; e.leader == noLeaderYet {
		e.leader = ""
	}
	own := e.leader == e.config.Identity && e.wrote(record)
	if own {
		t.readable(false)
		return record, raw, nil
	}
	changed := !bytes.Equal(t.seen, raw)
	if changed {
		// Writes of this Elector that are still on their way come too late. Its records that come back are those
		// of an etcd that was restored from a backup, during the term of another one.
		e.written = nil
	}
	// A record that another goes on renewing leaves nothing to be written.
	t.readable(e.leader != "" && changed)
	t.seen, t.unsure = raw, false
	// Another client may have shortened or removed it, which the holder does not see before its next renewal.
	record.LeaseDurationSeconds = max(record.LeaseDurationSeconds, e.leaseSeconds())
	if t.leadership != nil {
		holder := e.leader
		switch holder {
		case "":
			holder = "nobody"
		case e.config.Identity:
			holder = "another process with the same identity"
		}
		t.loseLocked(fmt.Errorf("the lease names %s", holder))
		return nil, nil, kube.ErrLeadershipLost
	}
	if e.leader == e.config.Identity {
		// client-go would take it at once, as its own.
		record.HolderIdentity += " (another process)"
		if !t.namesake {
			t.namesake = true
			e.note(func() {
				e.logger.Warn("lease names this identity, but this process did not write it: waiting until it has expired",
					"hint", "if no process with this identity has just ended, give each process an Identity of its own")
			})
		}
	}
	return record, raw, nil
}

// leaseSeconds returns LeaseDuration as a Lease has it.
func (e *Elector) leaseSeconds() int { return int(e.config.LeaseDuration / time.Second) }

// wrote reports whether record may be one that this Elector has written. mu must be held.
func (e *Elector) wrote(record *resourcelock.LeaderElectionRecord) bool {
	return slices.Contains(e.written, stampOf(record))
}

// writes remembers a record before it is written. mu must be held. All writes since the last successful renewal are
// remembered, because the lease may contain any of them after requests whose answer was lost.
func (e *Elector) writes(record *resourcelock.LeaderElectionRecord) {
	const more = 16 // of candidates
	if len(e.written) >= more+int(e.config.RenewDeadline/e.config.RetryPeriod) {
		e.written = slices.Delete(e.written, 0, 1)
	}
	e.written = append(e.written, stampOf(record))
}

// stamp tells the records of one identity apart.
type stamp struct{ acquired, renewed int64 } // microseconds, as a Lease has them

func stampOf(record *resourcelock.LeaderElectionRecord) stamp {
	return stamp{record.AcquireTime.UnixMicro(), record.RenewTime.UnixMicro()}
}

// missing is called when the lease does not exist. A leader has lost it: then it returns an error. A candidate creates it with the
// holder noLeaderYet: another process may have led when the lease was deleted, and lead until it tries
// to renew it. Nobody leads before the new lease has expired, which is a LeaseDuration after the
// deletion at the earliest. That is certain however often the lease is deleted between two looks.
func (t *term) missing(ctx context.Context) error {
	e := t.owner
	if t.deleted() {
		return kube.ErrLeadershipLost
	}
	now := metav1.Now()
	err := t.lock.Create(ctx, resourcelock.LeaderElectionRecord{
		HolderIdentity: noLeaderYet, LeaseDurationSeconds: e.leaseSeconds(), AcquireTime: now, RenewTime: now,
	})
	e.mu.Lock()
	defer e.unlock()
	switch {
	case apierrors.IsAlreadyExists(err): // another candidate was quicker
	case err != nil:
		t.failed(ctx, "create", err)
		return err
	default:
		e.succeeded()
		e.note(func() {
			e.logger.Info("lease did not exist: it was created, and nobody leads until it has expired, because another process may still lead",
				"delay", e.config.LeaseDuration)
		})
	}
	return nil
}

// deleted notes that the lease does not exist. It returns true when that is the loss of the lease.
func (t *term) deleted() bool {
	e := t.owner
	e.mu.Lock()
	defer e.unlock()
	e.leader = ""
	t.readable(false)
	if t.leadership == nil {
		return false
	}
	t.loseLocked(errDeleted)
	return true
}

// readable notes a successful read. It mends failed reads only, unless mends is true.
// owner.mu must be held.
func (t *term) readable(mends bool) {
	if mends || t.owner.errVerb == "get" {
		t.owner.succeeded()
	}
}

// Create implements resourcelock.Interface.
func (t *term) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, "create", record, func(ctx context.Context) error { return t.lock.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (t *term) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, "update", record, func(ctx context.Context) error { return t.lock.Update(ctx, record) })
}

// write puts our name into the lease.
func (t *term) write(ctx context.Context, verb string, record resourcelock.LeaderElectionRecord, do func(ctx context.Context) error) error {
	begun, err := t.begin()
	if err != nil {
		return err
	}
	e := t.owner
	e.mu.Lock()
	e.writes(&record)
	e.unlock()
	request, cancel := context.WithTimeout(ctx, t.requestTimeout())
	defer cancel()
	err = do(request)
	e.mu.Lock()
	defer e.unlock()
	switch {
	case verb == "update" && apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return err // somebody else was quicker; client-go reads the lease again
	case err != nil:
		t.unsure = true
		e.disconnectAfter(request)
		t.failed(ctx, verb, err)
		return err
	}
	e.succeeded()
	e.leader = e.config.Identity
	if t.over {
		t.unsure = true // its answer was not waited for
		return nil
	}
	// Counted from the beginning: the others cannot have seen the renewal any earlier.
	until := begun.clock + e.config.RenewDeadline
	e.until = moment{begun.time.Add(e.config.RenewDeadline), until}
	if t.leadership != nil {
		_ = t.leadership.Extend(until) // an error is noted below
		t.checkLocked()
		return nil
	}
	t.leadership = kube.NewLeadership(e.clock, until)
	e.enter(StateLeading)
	e.note(func() { e.logger.Info("leadership gained") })
	t.checkLocked() // the request may have taken longer than the lease lasts
	return nil
}

// moment is a time on two clocks.
type moment struct {
	time  time.Time     // what Status tells
	clock time.Duration // what leadership is measured by
}

// begin refuses requests of a term that is over, and returns the time.
func (t *term) begin() (moment, error) {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	t.checkLocked()
	if t.over {
		return moment{}, kube.ErrLeadershipLost
	}
	return moment{time.Now(), t.owner.clock()}, nil
}

// failed notes a failed request, unless it failed because the election was ended.
// owner.mu must be held.
func (t *term) failed(ctx context.Context, verb string, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.owner.failed(verb, err)
	}
}

// requestTimeout leaves time for a second request before the lease is lost, when one is
// never answered. The second one gets another connection: see disconnectAfter.
func (t *term) requestTimeout() time.Duration { return t.owner.config.RenewDeadline / 2 }

// disconnectAfter closes the connections for leases if a request was not answered in time. Otherwise HTTP/2 would
// send the next one on the same connection, for up to 45 s after it has died.
func (e *Elector) disconnectAfter(request context.Context) {
	if errors.Is(request.Err(), context.DeadlineExceeded) {
		e.disconnect()
	}
}

// disconnect closes the connections for leases, unless they are used for other requests too.
func (e *Elector) disconnect() {
	if client, ok := e.config.Client.(ownConnection); ok {
		client.CloseAll()
	}
}

// RecordEvent implements resourcelock.Interface.
func (t *term) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (t *term) Identity() string { return t.owner.config.Identity }

// Describe implements resourcelock.Interface.
func (t *term) Describe() string { return t.owner.lease }

// watch notes the loss of leadership when the deadline has passed. It returns when leadership has
// ended.
func (t *term) watch(leadership *kube.Leadership) {
	<-leadership.Lost()
	t.owner.mu.Lock()
	defer t.owner.unlock()
	t.checkLocked()
}

// checkLocked notes the loss of leadership when the deadline has passed. owner.mu must be held.
func (t *term) checkLocked() {
	if t.leadership == nil || t.over {
		return
	}
	if t.leadership.Err() != nil {
		t.loseLocked(fmt.Errorf("the lease was not renewed for %s", t.owner.config.RenewDeadline))
	}
}

// lose ends the term for the given reason, unless it is over already.
func (t *term) lose(reason error) {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	t.loseLocked(reason)
}

// loseLocked is lose with owner.mu held.
func (t *term) loseLocked(reason error) {
	if t.over || t.leadership == nil {
		return
	}
	t.over, t.lost = true, true
	t.leadership.Lose(reason) // before anything else
	e := t.owner
	e.enter(StateLost)
	attrs := []any{"reason", reason}
	if e.err != nil {
		attrs = append(attrs, "error", e.err)
	}
	e.note(func() { e.logger.Warn("leadership lost: work is cancelled", attrs...) })
	t.stopElecting()
}

// gained returns the leadership that was gained, or nil.
func (t *term) gained() *kube.Leadership {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	return t.leadership
}

// end ends the term, and reports whether leadership had been lost before. What happens
// to the lease from now on is not a loss. No write of the term is sent after end has returned.
func (t *term) end() (wasLost bool) {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	t.checkLocked()
	t.over = true
	if t.leadership != nil {
		t.leadership.Release()
	}
	return t.lost
}

// mayHold reports whether the lease may carry our name. The election must have ended.
func (t *term) mayHold() bool {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	return t.leadership != nil || t.unsure
}

// waitStarted waits for the callback that client-go runs, once it has gained the lease,
// in a goroutine that it does not wait for itself.
func (t *term) waitStarted() {
	if t.gained() != nil {
		<-t.started
	}
}

// release takes our name out of the lease, if it is there. It returns false without an
// error when it is not.
func (t *term) release(ctx context.Context) (bool, error) {
	for {
		record, _, err := t.lock.Get(ctx)
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("get lease %s: %w", t.owner.lease, err)
		case !t.owns(record):
			return false, nil
		}
		// The update carries the resourceVersion of that read.
		err = t.lock.Update(ctx, released(*record))
		switch {
		case apierrors.IsConflict(err):
			continue // by a last renewal, most likely, whose answer was not waited for
		case err != nil:
			return false, fmt.Errorf("update lease %s: %w", t.owner.lease, err)
		}
		return true, nil
	}
}

// owns reports whether record names this Elector, and may be one that it has written.
func (t *term) owns(record *resourcelock.LeaderElectionRecord) bool {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	return record.HolderIdentity == t.owner.config.Identity && t.owner.wrote(record)
}

// reasonOf returns what kind of failure err is, in a form that does not change from one
// attempt to the next.
func reasonOf(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "failure"
}

// hintFor returns what to do about err, or nothing.
func hintFor(err error, namespace string) string {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("a Role must allow get, create and update of leases (coordination.k8s.io) in namespace %s", namespace)
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("create namespace %s, or set another one", namespace)
	}
	return ""
}
