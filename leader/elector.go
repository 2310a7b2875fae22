package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Elector runs work only while it holds a Lease. Make one with New.
type Elector struct {
	// Immutable after New.
	config Config
	lease  string // namespace/name
	logger *slog.Logger
	clock  func() time.Duration

	mu       sync.Mutex
	state    State           // guarded by mu
	since    time.Time       // guarded by mu; when state began
	leader   string          // guarded by mu; holder in the lease as last seen
	until    moment          // guarded by mu; see Status; of the latest term that led
	err      error           // guarded by mu; why the lease is out of reach
	errVerb  string          // guarded by mu; what err is about
	errSince time.Time       // guarded by mu
	logged   map[string]bool // guarded by mu; failures logged since the last success
	notes    []func()        // guarded by mu; what unlock logs
	term     *term           // guarded by mu; nil unless Run runs
	written  []stamp         // guarded by mu; of the latest records that were written, or may have been
}

// New makes an Elector. It starts nothing and makes no request. The error names every
// mistake in config at once.
func New(config Config) (*Elector, error) { return newElector(config, namespaceFile) }

func newElector(config Config, namespaceFile string) (*Elector, error) {
	config, err := config.withDefaults(namespaceFile)
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("new elector for lease %q: %w", config.Name, err)
	}
	lease := config.Namespace + "/" + config.Name
	return &Elector{
		config: config,
		lease:  lease,
		logger: config.Logger.With("lease", lease, "identity", config.Identity),
		clock:  newClock(suspended),
	}, nil
}

// Run calls work while this Elector leads, until ctx ends or work returns by itself.
//
// Flow:
//  1. It stands for leadership until it gains it. What stands in the way (a permission,
//     a network) is logged, shown by Status, and waited for.
//  2. It calls work, and keeps renewing the lease until work has returned.
//  3. When ctx ends, the context that work got ends too. When leadership is lost, that
//     context is cancelled with the cause kube.ErrLeadershipLost.
//  4. When work has returned and the lease is still held, it is released, so that
//     another can lead within 2.2 times its RetryPeriod. When it was lost, Run goes back to step 1.
//
// Guarantees:
//   - work is not called before leadership is gained, and never twice at once.
//   - The lease is held from before work is called until after it has returned, or it is
//     counted as lost at the latest RenewDeadline after the last successful renewal was
//     begun: LeaseDuration minus RenewDeadline before another can take it. It is also
//     lost as soon as it is seen to name another holder, or none, or to be deleted.
//   - kube.LeadershipLost of work's context is closed when leadership is lost, also while
//     work drains, and when work has returned.
//   - Clients of a kube.Cluster send no write under work's context, or under one that is
//     derived from it, after that.
//   - The lease is never written between a loss and the return of work.
//   - Everything that Run starts has ended when it returns.
//
// The caller must see to it that work stops writing when leadership is lost, returns when
// its context ends, and can be called again. One Elector runs once at a time: for several
// controllers under one lease, run all of them in work, and let readiness probes ask ReadyWith.
//
// Errors: nil when ctx ended while standing by; otherwise what work returned, whether it
// ended by itself or because ctx did. What work returns because of a loss is not Run's
// error: unless it says no more than that (kube.ErrLeadershipLost, context.Canceled) it
// is logged, or returned when ctx has ended as well. A lease that could not be released
// is logged. A call while Run runs is refused, and so is one in the work of another
// elector.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context) error) error {
	if work == nil {
		return fmt.Errorf("leader election on lease %s: there is no work: Run needs a function", e.lease)
	}
	if kube.LeadershipLost(ctx) != nil {
		return fmt.Errorf("leader election on lease %s: it is run in the work of another election, whose loss it would hide: let one elector stand around all of it", e.lease)
	}
	e.mu.Lock()
	running := e.state != StateStopped
	if !running {
		e.enter(StateStandby)
	}
	e.unlock()
	if running {
		return fmt.Errorf("leader election on lease %s: Run runs already: give each controller an Elector with a lease of its own, or run all of them in one work", e.lease)
	}
	defer e.stopped()
	for ctx.Err() == nil {
		if done, err := e.stand(ctx, work); done {
			return err
		}
	}
	return nil
}

// stopped leaves no trace of a Run that has ended.
func (e *Elector) stopped() {
	e.mu.Lock()
	defer e.unlock()
	e.disconnect()
	e.enter(StateStopped)
	e.err, e.errVerb, e.errSince, e.logged = nil, "", time.Time{}, nil
}

// stand stands for leadership once, and works when it is gained. Done is false when
// leadership was lost and is to be stood for again.
func (e *Elector) stand(ctx context.Context, work func(ctx context.Context) error) (done bool, err error) {
	// The election outlives ctx: the lease is renewed while work drains.
	electing, stopElecting := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	t := e.newTerm(stopElecting)
	elector, err := t.elector()
	if err != nil {
		stopElecting()
		return true, err
	}
	e.setTerm(t)
	defer e.setTerm(nil)
	var election sync.WaitGroup
	join := func() {
		stopElecting()
		election.Wait()
		t.waitStarted()
	}
	defer join()
	// Only a panic of work gets here with the term still going on. What work has left
	// running is told to stop, and the lease is left to expire.
	defer t.lose(errPanicked)

	election.Go(func() { // waited for by join
		elector.Run(electing)
		t.lose(errGaveUp)
	})
	select {
	case <-t.started:
		leadership := t.gained()
		election.Go(func() { t.watch(leadership) }) // waited for by join
		if ctx.Err() == nil && leadership.Err() == nil {
			err = e.call(ctx, leadership, work)
		}
	case <-ctx.Done():
	}
	wasLost := t.end()
	join()
	if wasLost {
		return e.afterLoss(ctx, err)
	}
	if t.mayHold() {
		e.release(context.WithoutCancel(ctx), t)
	}
	return true, err
}

// call calls work under leadership.
func (e *Elector) call(ctx context.Context, leadership *kube.Leadership, work func(ctx context.Context) error) error {
	// The context is cancelled by the end of leadership, also when work panics: then with that cause.
	working, _ := kube.WithLeadership(ctx, leadership)
	return work(working)
}

// setTerm keeps the term that goes on; nil when it has ended.
func (e *Elector) setTerm(t *term) {
	e.mu.Lock()
	defer e.unlock()
	e.term = t
}

// afterLoss decides what becomes of the error of work whose leadership was lost.
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
	e.enter(StateStandby)
	return false, nil
}

// releaseTimeout bounds the attempts to release the lease. Together with a controller's
// default drain time it fits into a Pod's default termination grace period, 30 s.
const releaseTimeout = 5 * time.Second

// release gives up the lease, if it still names this Elector. Work and election must have
// ended.
func (e *Elector) release(ctx context.Context, t *term) {
	timeout := min(releaseTimeout, e.config.RenewDeadline)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		request, cancelRequest := context.WithTimeout(ctx, timeout/2)
		released, err := t.release(request)
		e.disconnectAfter(request)
		cancelRequest()
		if err == nil {
			if released {
				e.mu.Lock()
				e.leader = ""
				e.unlock()
				e.logger.InfoContext(ctx, "leadership released")
			}
			return
		}
		pause := time.NewTimer(min(e.config.RetryPeriod, time.Second))
		select {
		case <-pause.C:
			continue
		case <-ctx.Done():
			pause.Stop()
		}
		e.logger.WarnContext(ctx, "leadership was not released: others wait until the lease has expired",
			"error", err, "leaseDuration", e.config.LeaseDuration)
		return
	}
}

// released turns a record into that of a lease that nobody holds.
func released(record resourcelock.LeaderElectionRecord) resourcelock.LeaderElectionRecord {
	now := metav1.Now()
	record.HolderIdentity = ""
	record.LeaseDurationSeconds = 1 // as client-go does; the API refuses zero
	record.AcquireTime, record.RenewTime = now, now
	return record
}

// elector makes client-go's elector for this term. It works on the term, which sees
// everything that it reads and writes.
func (t *term) elector() (*leaderelection.LeaderElector, error) {
	c := t.owner.config
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          t,
		Name:          c.Name,
		LeaseDuration: c.LeaseDuration,
		RenewDeadline: c.RenewDeadline,
		RetryPeriod:   c.RetryPeriod,
		// It would also release after a failed renewal, while work is still ending.
		ReleaseOnCancel: false,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(t.started) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("leader election on lease %s: %w", t.owner.lease, err)
	}
	return elector, nil
}
