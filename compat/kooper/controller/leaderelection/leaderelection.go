// Package leaderelection has the API of Kooper v2's package controller/leaderelection.
package leaderelection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// LockConfig has the times of an election: those of client-go's leaderelection.LeaderElectionConfig.
type LockConfig struct {
	// LeaseDuration is the time after which another process may take over from a leader that does not renew the lease.
	LeaseDuration time.Duration
	// RenewDeadline is the time after which a leader that cannot renew the lease stops.
	RenewDeadline time.Duration
	// RetryPeriod is the time between attempts.
	RetryPeriod time.Duration
}

// Runner runs a function while this process leads.
type Runner interface {
	// Run blocks until leadership is gained, and calls f. It returns the error of f, or an error when leadership is
	// lost.
	Run(f func() error) error
}

// NewDefault is New with the default times.
func NewDefault(key, namespace string, k8scli kubernetes.Interface, logger log.Logger) (Runner, error) {
	return New(key, namespace, nil, k8scli, logger)
}

// New returns a Runner that holds the Lease key in namespace. lockCfg is optional: the defaults are 15 s, 10 s and 2 s.
// Several controllers may share the Runner.
func New(
	key, namespace string, lockCfg *LockConfig, k8scli kubernetes.Interface, logger log.Logger,
) (Runner, error) {
	var mistakes usercode.Mistakes
	mistakes.AddIf(namespace == "", "leader election needs a namespace")
	mistakes.AddIf(key == "", "leader election needs a key, the name of the Lease")
	mistakes.AddIf(usercode.IsNil(k8scli), "leader election needs a Kubernetes client")
	mistakes.AddIf(usercode.IsNil(logger), "leader election needs a Logger, such as log.Dummy")
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // for people
	r := &runner{
		lease: metav1.ObjectMeta{Namespace: namespace, Name: key}, identity: host + "_" + string(uuid.NewUUID()),
		times: *cmp.Or(lockCfg, &LockConfig{15 * time.Second, 10 * time.Second, 2 * time.Second}), client: k8scli,
		logger: logger.WithKV(log.KV{
			"source-service": "kooper/leader-election", "leader-election-id": namespace + "/" + key,
		}),
	}
	if _, err := r.elector(nil); err != nil {
		return nil, err
	}
	return r, nil
}

// runner holds a Lease. Each call of Run has an election of its own, under the same identity: if one of them leads, the
// others lead too. The last one that ends releases the Lease.
type runner struct {
	lease    metav1.ObjectMeta
	identity string
	times    LockConfig
	client   kubernetes.Interface
	logger   log.Logger

	mu   sync.Mutex
	uses int // guarded by mu; elections, and functions that run
}

// Run implements Runner. f has no context: after a loss it runs on when Run has returned, as in Kooper, and the Lease
// is not released before it has ended.
func (r *runner) Run(f func() error) error {
	return r.RunContext(context.Background(), func(ctx context.Context) error {
		ended := make(chan error, 1)
		r.use(1, false)
		go func() { // waited for below, unless leadership is lost
			err := f()
			r.use(-1, false)
			ended <- err
		}()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
			return nil
		}
	})
}

// RunContext is Run with a context: that of work ends with ctx, and when leadership is lost, also after ctx has ended.
// RunContext returns after work. Unless leadership was lost, it then releases the Lease.
func (r *runner) RunContext(ctx context.Context, work func(ctx context.Context) error) (err error) {
	leads := make(chan struct{})
	elector, err := r.elector(leads)
	if err != nil {
		return err
	}
	r.use(1, false)
	defer func() {
		if !errors.Is(err, leadership.ErrStillRunning) { // otherwise the Lease must expire
			r.use(-1, elector.IsLeader() && !errors.Is(err, kube.ErrLeadershipLost))
		}
	}()
	r.logger.Infof("waiting for leadership")
	term := leadership.New(nil, math.MaxInt64) // the elector ends it
	working, endWork := leadership.With(ctx, term)
	defer endWork()
	// The election must not end with ctx: the Lease must be renewed until work has returned.
	electing, endElection := context.WithCancel(context.WithoutCancel(ctx))
	var election sync.WaitGroup
	defer election.Wait()
	defer endElection()
	election.Go(func() {
		elector.Run(electing)
		term.Lose(errors.New("the election has ended"))
	})
	select {
	case <-leads:
	case <-ctx.Done():
		return nil
	}
	r.logger.Infof("leadership gained")
	err = work(working)
	if term.Err() != nil {
		return errors.Join(kube.ErrLeadershipLost, err)
	}
	return err
}

// elector returns an elector of client-go, which closes leads when this process leads. It never releases the Lease,
// because it would do so while work runs if it cannot renew the Lease.
func (r *runner) elector(leads chan struct{}) (*leaderelection.LeaderElector, error) {
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: r.lock(), Name: r.lease.Name,
		LeaseDuration: r.times.LeaseDuration, RenewDeadline: r.times.RenewDeadline, RetryPeriod: r.times.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leads) }, OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("leader election %s/%s: %w", r.lease.Namespace, r.lease.Name, err)
	}
	return elector, nil
}

// lock returns a lock, which one election at a time may use.
func (r *runner) lock() *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: r.lease, Client: r.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: r.identity},
	}
}

// use adds n to the uses. It waits for a release of the Lease, which would end a new leadership. With release, the last
// use releases the Lease.
func (r *runner) use(n int, release bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.uses += n; release && r.uses == 0 {
		r.release()
	}
}

// release removes the holder of the Lease if it is this runner. No election may run. It gives up after RenewDeadline.
func (r *runner) release() {
	ctx, cancel := context.WithTimeout(context.Background(), r.times.RenewDeadline)
	defer cancel()
	lock := r.lock()
	for {
		record, _, err := lock.Get(ctx)
		if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != r.identity {
			return
		}
		if err == nil {
			// The API rejects a duration of 0.
			record.HolderIdentity, record.LeaseDurationSeconds, record.RenewTime = "", 1, metav1.Now()
			if err = lock.Update(ctx, *record); err == nil {
				r.logger.Infof("leadership released")
				return
			}
		}
		// A conflict is a last renewal whose response was not awaited.
		if !retryrules.Wait(ctx, min(r.times.RetryPeriod, time.Second)) {
			r.logger.Warningf("leadership not released, it expires after %s: %s", r.times.LeaseDuration, err)
			return
		}
	}
}
