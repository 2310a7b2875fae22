package leader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
)

// term is one candidacy: from standing for leadership to its end. It is the lock that
// client-go's elector works on, and decides by what goes through it when the lease was
// gained and lost. (client-go itself would go on for RetryPeriod plus RenewDeadline after
// the last renewal, also when it has already seen another's name in the lease.)
type term struct {
	// Immutable after newTerm.
	owner   *Elector
	lock    resourcelock.Interface
	started chan struct{}   // closed by client-go when it has gained the lease
	lost    <-chan struct{} // closed by onLoss
	ended   chan struct{}   // closed by end, unless the lease was lost
	onLoss  func()

	// Guarded by owner.mu.
	gained bool   // the lease was written with our name
	over   bool   // lost or ended: no further request is made
	unsure bool   // a write may or may not have reached the lease
	seen   []byte // another's record, as last read
}

func (e *Elector) newTerm(lost <-chan struct{}, onLoss func()) *term {
	return &term{
		owner: e,
		lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.config.Namespace, Name: e.config.Name},
			Client:     e.config.Client,
			LockConfig: resourcelock.ResourceLockConfig{Identity: e.config.Identity},
			Labels:     e.config.Labels,
		},
		started: make(chan struct{}),
		lost:    lost,
		ended:   make(chan struct{}),
		onLoss:  onLoss,
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
	e := t.owner
	e.mu.Lock()
	defer e.unlock()
	switch {
	case apierrors.IsNotFound(err): // client-go creates it
		e.leader = ""
		return nil, nil, err
	case err != nil:
		t.failed(ctx, "get", err)
		return nil, nil, err
	}
	e.leader = record.HolderIdentity
	if e.leader == e.config.Identity {
		t.readable(false)
		return record, raw, nil
	}
	// A record that another goes on renewing leaves nothing to be written.
	t.readable(e.leader != "" && !bytes.Equal(t.seen, raw))
	t.seen, t.unsure = raw, false
	if t.gained {
		holder := e.leader
		if holder == "" {
			holder = "nobody"
		}
		t.loseLocked(fmt.Errorf("the lease names %s", holder))
		return nil, nil, kube.ErrLeadershipLost
	}
	return record, raw, nil
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
	return t.write(ctx, "create", func(ctx context.Context) error { return t.lock.Create(ctx, record) })
}

// Update implements resourcelock.Interface.
func (t *term) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return t.write(ctx, "update", func(ctx context.Context) error { return t.lock.Update(ctx, record) })
}

// write puts our name into the lease.
func (t *term) write(ctx context.Context, verb string, do func(ctx context.Context) error) error {
	begun, err := t.begin()
	if err != nil {
		return err
	}
	request, cancel := context.WithTimeout(ctx, t.requestTimeout())
	defer cancel()
	err = do(request)
	e := t.owner
	e.mu.Lock()
	defer e.unlock()
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), verb == "update" && apierrors.IsNotFound(err):
		return err // somebody else was quicker; client-go reads the lease again
	case err != nil:
		t.unsure = true
		t.failed(ctx, verb, err)
		return err
	}
	e.succeeded()
	e.leader = e.config.Identity
	// Counted from the beginning: the others cannot have seen the renewal any earlier.
	e.until = begun.Add(e.config.RenewDeadline)
	if !t.gained && !t.over {
		e.enter(StateLeading)
		e.note(func() { e.logger.Info("leadership gained") })
	}
	t.gained = true
	return nil
}

// begin refuses requests of a term that is over, and returns the time.
func (t *term) begin() (time.Time, error) {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	if t.over {
		return time.Time{}, kube.ErrLeadershipLost
	}
	return time.Now(), nil
}

// failed notes a failed request, unless it failed because the election was ended.
// owner.mu must be held.
func (t *term) failed(ctx context.Context, verb string, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		t.owner.failed(verb, err)
	}
}

// requestTimeout leaves time for a second request before the lease is lost, when one is
// never answered.
func (t *term) requestTimeout() time.Duration { return t.owner.config.RenewDeadline / 2 }

// RecordEvent implements resourcelock.Interface.
func (t *term) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (t *term) Identity() string { return t.owner.config.Identity }

// Describe implements resourcelock.Interface.
func (t *term) Describe() string { return t.owner.lease }

// watch ends the term when the lease was not renewed in time. It returns when the term
// is over.
func (t *term) watch() {
	e := t.owner
	for {
		e.mu.Lock()
		left := time.Until(e.until)
		if left <= 0 {
			t.loseLocked(fmt.Errorf("the lease was not renewed for %s", e.config.RenewDeadline))
		}
		e.unlock()
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
		case <-t.lost:
			timer.Stop()
			return
		case <-t.ended:
			timer.Stop()
			return
		}
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
	if t.over || !t.gained {
		return
	}
	t.over = true
	e := t.owner
	e.enter(StateLost)
	attrs := []any{"reason", reason}
	if e.err != nil {
		attrs = append(attrs, "error", e.err)
	}
	e.note(func() { e.logger.Warn("leadership lost: work is cancelled", attrs...) })
	t.onLoss()
}

// end ends the term, and reports whether leadership had been lost before. What happens
// to the lease from now on is no loss.
func (t *term) end() (wasLost bool) {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	if !t.over {
		t.over = true
		close(t.ended)
	}
	select {
	case <-t.lost:
		return true
	default:
		return false
	}
}

// mayHold reports whether the lease may carry our name. The election must have ended.
func (t *term) mayHold() bool {
	t.owner.mu.Lock()
	defer t.owner.unlock()
	return t.gained || t.unsure
}

// waitStarted waits for the callback that client-go runs, once it has gained the lease,
// in a goroutine that it does not wait for itself.
func (t *term) waitStarted() {
	t.owner.mu.Lock()
	gained := t.gained
	t.owner.unlock()
	if gained {
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
		case record.HolderIdentity != t.owner.config.Identity:
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
