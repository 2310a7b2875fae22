package leader

import (
	"context"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
)

// jitterFactor lengthens RetryPeriod at random, to at most 2.2 times, so that candidates do not make their attempts at
// the same time. client-go's elector uses the same factor.
const jitterFactor = 1.2

// noLeaderYet is the holder of a lease that a candidate has created. No process has this identity and no process
// renews it, so candidates wait until the lease has expired.
const noLeaderYet = "no-leader-yet"

// acquire makes attempts to acquire the lease until one succeeds. It returns nil if ctx ends first.
func (t *term) acquire(ctx context.Context) *leadership.Term {
	probed := t.elector.fence == nil
	for ctx.Err() == nil {
		// The fence is probed early too, so that a standby without one is not ready.
		if mayWrite := t.read(ctx); (mayWrite || !probed && t.lease != nil) && t.mayLead(ctx) {
			probed = true
			if mayWrite {
				t.write(ctx)
			}
		}
		if held := t.current(); held != nil {
			return held
		}
		retryrules.Wait(ctx, wait.Jitter(t.elector.config.RetryPeriod, jitterFactor))
	}
	return nil
}

// mayLead reports whether the fence, if there is one, stands. This cannot be known while the lease names this Pod: then
// an earlier process of the Pod, or an earlier term, has seen it.
func (t *term) mayLead(ctx context.Context) bool {
	e := t.elector
	return e.fence == nil || strings.HasPrefix(holderOf(&t.lease.Spec), e.config.podUID()+identitySeparator) ||
		e.fence.stands(ctx)
}

// renew renews the lease every RetryPeriod until ctx ends. The end of the term cancels ctx.
func (t *term) renew(ctx context.Context) {
	ticker := time.NewTicker(t.elector.config.RetryPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		// The resourceVersion of the last write is usually the current one.
		if !t.write(ctx) && t.read(ctx) {
			t.write(ctx)
		}
	}
}

// requestTimeout leaves time for a second request before the lease is lost if the first one is never answered. The
// second one uses a new connection: see failed.
func (t *term) requestTimeout() time.Duration { return t.elector.config.RenewDeadline / 2 }

// read reads the lease, and reports whether this Elector may write it: it holds the lease, the lease has no holder, or
// its holder has not renewed it in time.
func (t *term) read(ctx context.Context) (mayWrite bool) {
	t.begin()
	request, cancel := context.WithTimeout(ctx, t.requestTimeout())
	defer cancel()
	lease, err := t.elector.leases.get(request)
	switch {
	case apierrors.IsNotFound(err):
		if !t.deleted() {
			t.create(ctx, request)
		}
		return false
	case err != nil:
		t.failed(ctx, request, "get", err)
		return false
	}
	return t.observe(lease)
}

// observe evaluates a lease that was read. Its result is that of read.
func (t *term) observe(lease *coordinationv1.Lease) (mayWrite bool) {
	t.lease = lease
	spec := &lease.Spec
	e := t.elector
	e.mu.Lock()
	defer e.unlock()
	holder := holderOf(spec)
	if e.leader = holder; holder == noLeaderYet {
		e.leader = ""
	}
	if e.owns(spec) {
		e.readSucceeded()
		return true
	}
	changed := t.other == nil || !equality.Semantic.DeepEqual(t.other, spec)
	if changed {
		// The monotonic clock without suspensions: a candidate may wait longer than LeaseDuration, never shorter.
		t.other, t.seenAt = spec.DeepCopy(), time.Now()
		// This Elector's writes in flight will fail with a conflict. If one of its earlier records appears again, etcd
		// was restored from a backup, and another process leads.
		e.written = nil
	}
	t.unsure = false
	if changed && holder != "" {
		e.requestSucceeded() // another process renews the lease, so there is nothing to write
	} else {
		e.readSucceeded()
	}
	if t.leadership != nil {
		t.loseLocked(heldBy(holder, e.config.Identity))
		return false
	}
	if holder == e.config.Identity && !t.warned {
		t.warned = true
		e.logLater(func() {
			e.logger.Warn("lease held by another process with the same identity, waiting until it expires",
				"hint", "if no process with this identity has just ended, give each process its own Identity")
		})
	}
	// Another client may have shortened or removed leaseDurationSeconds. The holder does not notice before its next
	// renewal.
	return holder == "" || time.Since(t.seenAt) >= max(e.config.LeaseDuration, durationOf(spec))
}

// deleted records that the lease does not exist, and reports whether that was a loss of leadership.
func (t *term) deleted() (lost bool) {
	e := t.elector
	e.mu.Lock()
	defer e.unlock()
	e.leader = ""
	e.readSucceeded()
	if t.leadership == nil {
		return false
	}
	t.loseLocked(errDeleted)
	return true
}

// create creates a missing lease with the holder noLeaderYet: another process may have led when the lease was deleted,
// and may lead until its next renewal. No process leads until the new lease has expired, which is at least a
// LeaseDuration after the deletion, however often the lease is deleted between two reads.
func (t *term) create(ctx, request context.Context) {
	e := t.elector
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.config.Namespace, Name: e.config.Name, Labels: e.config.Labels},
	}
	setHolder(&lease.Spec, noLeaderYet, e.config.LeaseDuration, false)
	created, err := e.leases.create(request, lease)
	switch {
	case apierrors.IsAlreadyExists(err): // another candidate was faster: the next attempt reads its lease
		return
	case err != nil:
		t.failed(ctx, request, "create", err)
		return
	}
	t.observe(created)
	e.mu.Lock()
	defer e.unlock()
	e.requestSucceeded()
	e.logLater(func() {
		e.logger.Info("missing lease created, waiting until it expires because another process may still lead",
			"delay", e.config.LeaseDuration)
	})
}

// write acquires or renews the lease, unless it has changed since it was read or written. It reports whether that
// succeeded.
func (t *term) write(ctx context.Context) bool {
	begun := t.begin()
	e := t.elector
	lease := e.claim(t.lease)
	request, cancel := context.WithTimeout(ctx, t.requestTimeout())
	defer cancel()
	written, err := e.leases.update(request, lease)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false // deleted or written by another client: the next read shows it
	case err != nil:
		t.failed(ctx, request, "update", err)
		return false
	}
	t.lease = written
	e.mu.Lock()
	defer e.unlock()
	e.requestSucceeded()
	e.leader = e.config.Identity
	t.extendLocked(begun)
	return true
}

// failed handles a failed request. A request that the end of ctx has cancelled is not recorded.
func (t *term) failed(ctx, request context.Context, verb string, err error) {
	e := t.elector
	e.disconnectAfter(request, err)
	e.mu.Lock()
	defer e.unlock()
	if verb == "update" {
		t.unsure = true
	}
	if ctx.Err() == nil {
		e.requestFailed(verb, err)
	}
}

// claim returns a copy of a lease for the next write: a renewal if this Elector holds it, otherwise an acquisition. It
// remembers the write.
func (e *Elector) claim(from *coordinationv1.Lease) *coordinationv1.Lease {
	lease := from.DeepCopy()
	e.mu.Lock()
	defer e.unlock()
	renewal := e.owns(&lease.Spec)
	if !renewal {
		countTransition(&lease.Spec)
	}
	setHolder(&lease.Spec, e.config.Identity, e.config.LeaseDuration, renewal)
	for key, value := range e.config.Labels {
		metav1.SetMetaDataLabel(&lease.ObjectMeta, key, value)
	}
	// All writes since the last successful renewal are remembered, because the lease may contain any of them after
	// requests without a response. An attempt writes twice at most.
	const candidates = 16 // the limit for candidates, which have no deadline
	if len(e.written) >= candidates+2*int(e.config.RenewDeadline/e.config.RetryPeriod) {
		e.written = slices.Delete(e.written, 0, 1)
	}
	e.written = append(e.written, stampOf(&lease.Spec))
	return lease
}

// owns reports whether a record names this Elector, and may be one that it has written. mu must be held.
func (e *Elector) owns(spec *coordinationv1.LeaseSpec) bool {
	return holderOf(spec) == e.config.Identity && slices.Contains(e.written, stampOf(spec))
}
