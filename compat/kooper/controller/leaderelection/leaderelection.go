// Package leaderelection has the API of Kooper v2's package controller/leaderelection.
package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/evenkeel-go/evenkeel/compat/kooper/log"
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
	// Run blocks until leadership is gained, calls f, and returns its error.
	Run(f func() error) error
}

// ContextRunner is a Runner that ends with a context. Those of New are. A Controller uses it if a Runner has it.
type ContextRunner interface {
	Runner
	// RunContext calls work when leadership is gained. The context of work ends with ctx, and when leadership is lost.
	// RunContext returns after work, with its error, or an error about lost leadership. If ctx has ended, it releases
	// the lease.
	RunContext(ctx context.Context, work func(ctx context.Context) error) error
}

// NewDefault is New with the default times.
func NewDefault(key, namespace string, k8scli kubernetes.Interface, logger log.Logger) (Runner, error) {
	return New(key, namespace, nil, k8scli, logger)
}

// New returns a Runner that holds the Lease key in namespace. lockCfg is optional: the defaults are 15 s, 10 s and 2 s.
func New(
	key, namespace string, lockCfg *LockConfig, k8scli kubernetes.Interface, logger log.Logger,
) (Runner, error) {
	var mistakes usercode.Mistakes
	mistakes.AddIf(namespace == "", "running in leader election mode requires the namespace running")
	mistakes.AddIf(key == "", "running in leader election mode requires a key for identification the different "+
		"instances")
	mistakes.AddIf(usercode.IsNil(k8scli), "running in leader election mode requires a Kubernetes client")
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	if lockCfg == nil {
		lockCfg = &LockConfig{LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second}
	}
	if usercode.IsNil(logger) {
		logger = log.Dummy
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("get the host's name: %w", err)
	}
	r := &runner{logger: logger.WithKV(log.KV{
		"source-service": "kooper/leader-election", "leader-election-id": namespace + "/" + key,
	})}
	r.config = leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: key},
			Client:     k8scli.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration: lockCfg.LeaseDuration, RenewDeadline: lockCfg.RenewDeadline, RetryPeriod: lockCfg.RetryPeriod,
		ReleaseOnCancel: true, // only after work has returned: see RunContext
		Callbacks:       leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	}
	if _, err := leaderelection.NewLeaderElector(r.config); err != nil {
		return nil, fmt.Errorf("leader election %s/%s: %w", namespace, key, err)
	}
	return r, nil
}

type runner struct {
	config leaderelection.LeaderElectionConfig
	logger log.Logger
}

// errLost is returned when another process may lead.
var errLost = errors.New("leadership lost")

func (r *runner) Run(f func() error) error {
	return r.RunContext(context.Background(), func(context.Context) error { return f() })
}

func (r *runner) RunContext(ctx context.Context, work func(ctx context.Context) error) error {
	// The election must not end with ctx: the lease must be renewed until work has returned.
	electing, endElection := context.WithCancel(context.WithoutCancel(ctx))
	defer endElection()
	working, endWork := context.WithCancelCause(ctx)
	defer endWork(nil)
	leads := make(chan struct{})
	config := r.config
	config.Callbacks.OnStartedLeading = func(context.Context) { close(leads) }
	config.Callbacks.OnStoppedLeading = func() {}
	elector, err := leaderelection.NewLeaderElector(config)
	if err != nil {
		return fmt.Errorf("error creating leader election: %w", err)
	}
	r.logger.Infof("running in leader election mode, waiting to acquire leadership...")
	ended := make(chan struct{})
	go func() { // waited for at the end of this function
		defer close(ended)
		elector.Run(electing)
		endWork(kube.ErrLeadershipLost) // without an effect if work has returned
	}()
	defer func() {
		endElection()
		<-ended
	}()
	select {
	case <-leads:
	case <-ctx.Done():
		return nil
	}
	r.logger.Infof("lead acquire, starting...")
	err = work(working)
	r.logger.Infof("lead execution stopped")
	if errors.Is(context.Cause(working), kube.ErrLeadershipLost) {
		return errors.Join(errLost, err)
	}
	return err
}
