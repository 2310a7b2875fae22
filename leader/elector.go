package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Elector runs work only while it holds a Lease. New creates one. The logger of the Cluster receives acquired and
// released leadership at info level; lost leadership, and the first failure of a series of requests, at warning level.
type Elector struct {
	// Immutable after New.
	config Config
	lease  string // namespace/name
	leases *leaseClient
	logger *slog.Logger
	clock  func() time.Duration
	fence  *fence // nil without Config.Fence

	mu       sync.Mutex
	state    state           // guarded by mu
	since    time.Time       // guarded by mu; when state began
	leader   string          // guarded by mu; the holder in the lease as last read or written
	deadline moment          // guarded by mu; of the latest leadership: see Status.Until
	err      error           // guarded by mu; why the last request for the lease failed, or nil
	errVerb  string          // guarded by mu; the verb of that request
	errSince time.Time       // guarded by mu
	logged   map[string]bool // guarded by mu; failures logged since the last success
	pending  []func()        // guarded by mu; log records that unlock writes
	term     *term           // guarded by mu; nil between terms
	written  []stamp         // guarded by mu; the latest records that were or may have been written
	fenceErr error           // guarded by mu; why this process must not lead or work, or nil
}

// New returns an Elector. It starts nothing and makes no request. The error lists every mistake in config.
func New(config Config) (*Elector, error) { return newElector(config, kubeconfig.NamespaceFile) }

func newElector(config Config, namespaceFile string) (*Elector, error) {
	name := config.Name
	config, err := config.withDefaults(namespaceFile)
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("new elector for lease %q: %w", name, err)
	}
	leases, err := newLeaseClient(config.Cluster, config.Namespace, config.Name)
	if err != nil {
		return nil, fmt.Errorf("new elector for lease %q: create a client: %w", name, err)
	}
	lease := config.Namespace + "/" + config.Name
	e := &Elector{
		config: config,
		state:  stateStopped,
		lease:  lease,
		leases: leases,
		logger: config.Cluster.Logger().With("lease", lease, "identity", config.Identity),
		clock:  newClock(suspended),
	}
	observers := apiobject.ObserversOf(config.Cluster)
	if config.Fence {
		if first := observers.ClaimFence(lease); first != lease {
			return nil, fmt.Errorf("new elector for lease %q: Fence: the lease %s has a fence on this Cluster, which "+
				"would reject the writes of another leader: fence one lease for all of the work, or run the parts "+
				"as two programs with service accounts of their own", lease, first)
		}
		e.fence = newFence(e)
	}
	renew := apiobject.Permission{
		Kind:  coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		Names: []string{config.Name}, Namespaces: []string{config.Namespace}, Verbs: []string{"get", "update"},
		Fence: config.Fence, Standby: !config.Fence, // beside the fence of another lease
	}
	observers.Require(renew)
	if !config.Fence {
		create := renew
		create.Names, create.Verbs = nil, []string{"create"} // its name is not known when a create is authorized
		observers.Require(create)
	}
	return e, nil
}

// Run calls work while this Elector leads, until ctx ends or work returns by itself.
//
// Flow:
//  1. It makes attempts to acquire the lease until one succeeds. Failures (a permission, the network) are logged and
//     shown by Status, and do not end the attempts.
//  2. It calls work, and renews the lease until work has returned. With Config.Fence it first waits until the API
//     server accepts its writes, and therefore rejects those of other processes. If it does not for LeaseDuration, Run
//     releases the lease, and goes back to step 1 after another LeaseDuration, so that another process leads.
//  3. When ctx ends, work's context ends too. When leadership is lost, work's context is cancelled with the cause
//     kube.ErrLeadershipLost.
//  4. When work has returned and the lease is still held, Run releases it, so that another process can lead within 2.2
//     times its RetryPeriod. If leadership was lost, Run goes back to step 1. If work returns the error of a controller
//     with a handler that ignores its context, Run returns it, and the lease expires: the process must end.
//
// The caller must ensure that work stops writing when leadership is lost, returns when its context ends, and can be
// called again. Run must not be called twice at the same time: to run several controllers under one lease, run all of
// them in work, and call ReadyWith in readiness probes.
//
// Errors: nil if ctx ended before work was called; otherwise the error of work, whether work ended by itself or because
// ctx ended. An error of work after a loss is logged, or returned if ctx has ended too; kube.ErrLeadershipLost and
// context.Canceled are ignored there. A failed release is logged. Run returns an error at once if the Elector is
// already running, or if ctx is the context of another elector's work.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context) error) error {
	if work == nil {
		return fmt.Errorf("leader election on lease %s: work is nil: pass a function to Run", e.lease)
	}
	if leadership.Lost(ctx) != nil {
		return fmt.Errorf("leader election on lease %s: called in the work of another election, whose loss it "+
			"would hide: "+
			"use one elector for all of the work", e.lease)
	}
	e.mu.Lock()
	running := e.state != stateStopped
	if !running {
		e.enter(stateStandby)
	}
	e.unlock()
	if running {
		return fmt.Errorf("leader election on lease %s: already running: give each controller its own Elector "+
			"and lease, "+
			"or run all of them in one work", e.lease)
	}
	defer e.stopped()
	defer apiobject.ObserveLeadership(apiobject.ObserversOf(e.config.Cluster), e.Status)()
	for ctx.Err() == nil {
		if done, err := e.runTerm(ctx, work); done {
			return err
		}
	}
	return nil
}

// stopped resets the Elector at the end of Run.
func (e *Elector) stopped() {
	e.leases.disconnect()
	e.mu.Lock()
	defer e.unlock()
	e.enter(stateStopped)
	e.err, e.errVerb, e.errSince, e.logged, e.fenceErr = nil, "", time.Time{}, nil, nil
}

// runTerm acquires the lease and calls work. done is false if leadership was lost, and another term must follow.
func (e *Elector) runTerm(ctx context.Context, work func(ctx context.Context) error) (done bool, err error) {
	// Renewals outlive ctx, because the lease is renewed while work drains.
	renewing, stopRenewing := context.WithCancel(context.WithoutCancel(ctx))
	t := &term{elector: e, stopRenewing: stopRenewing}
	e.setTerm(t)
	defer e.setTerm(nil)
	var renewals sync.WaitGroup
	join := func() {
		stopRenewing()
		renewals.Wait()
	}
	defer join()
	// The term is over here unless work has panicked. Then the contexts of goroutines that work has started are
	// cancelled, and the lease expires.
	defer t.lose(errPanicked)

	givenUp := false
	if held := t.acquire(ctx); held != nil {
		renewals.Go(func() { t.renew(renewing) }) // waited for by join
		renewals.Go(func() { t.watch(held) })     // waited for by join
		if ctx.Err() == nil && held.Err() == nil {
			// The end of the leadership cancels the context, also when work panics: then with that cause.
			working, _ := leadership.With(ctx, held)
			if e.fence == nil || e.fence.await(working) {
				err = work(working)
			} else {
				givenUp = working.Err() == nil
			}
		}
	}
	wasLost := t.end()
	join()
	switch {
	case errors.Is(err, leadership.ErrStillRunning):
		e.logger.WarnContext(ctx, "lease kept until it expires, work has not ended", "error", err)
		return true, err
	case wasLost:
		return e.afterLoss(ctx, err)
	case t.mayHold():
		e.release(context.WithoutCancel(ctx))
	}
	if givenUp {
		e.mu.Lock()
		e.enter(stateStandby)
		e.unlock()
		retryrules.Wait(ctx, e.config.LeaseDuration) // another candidate leads before
		return false, nil
	}
	return true, err
}

// setTerm sets the current term, or nil when it has ended.
func (e *Elector) setTerm(t *term) {
	e.mu.Lock()
	defer e.unlock()
	e.term = t
}

// afterLoss handles the error of work after a loss.
func (e *Elector) afterLoss(ctx context.Context, err error) (done bool, _ error) {
	if errors.Is(err, kube.ErrLeadershipLost) || errors.Is(err, context.Canceled) {
		err = nil
	}
	if ctx.Err() != nil {
		return true, err
	}
	if err != nil {
		e.logger.WarnContext(ctx, "work failed after leadership was lost", "error", err)
	}
	e.mu.Lock()
	defer e.unlock()
	e.enter(stateStandby)
	return false, nil
}
