//go:build unix

// Package election tests that a process writes only while it holds its lease: in two processes, with a real
// kube-apiserver.
package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
)

// replicaVariable is the environment variable that makes the test binary a replica. Its value is a replicaConfig in
// JSON.
const replicaVariable = "EVENKEEL_LEADER_REPLICA"

// replicaConfig configures a replica.
type replicaConfig struct {
	Kubeconfig string
	Namespace  string
	Identity   string
	Writers    Writers
}

// Writers is the kind of code that makes a replica's writes.
type Writers string

// The kinds of writers.
const (
	Handlers         Writers = "handlers of a controller"
	Outliving        Writers = "contexts that outlive the run"
	OwnContext       Writers = "the elector's own context"
	Slow             Writers = "handlers that work for longer than a lease"
	ManagedHandlers  Writers = "handlers of a controller in a manager"
	ManagedRunnables Writers = "a runnable of a manager"
)

// The lease and its settings, and the times of the writers.
const (
	LeaseName     = "lease"
	termName      = "term"
	Targets       = 32
	LeaseDuration = 3 * time.Second
	RenewDeadline = 2 * time.Second
	RetryPeriod   = 500 * time.Millisecond
	// slowPause is the time between two writes of a writer, until SIGUSR1 makes the replica write without pauses for
	// the rest of its term.
	slowPause = 500 * time.Millisecond
	// writeAfterEnd is how long writers continue after their context has ended.
	writeAfterEnd = 500 * time.Millisecond
	// SlowWork is how long a slow handler works before it writes.
	SlowWork = LeaseDuration + time.Second
)

func targetName(i int) string { return fmt.Sprintf("target-%02d", i) }

// replica is one process that competes for the lease, and writes while it leads.
type replica struct {
	replicaConfig
	maps  corev1client.ConfigMapInterface
	term  atomic.Int64
	fast  atomic.Bool  // no pauses between writes
	count atomic.Int64 // of writes, so that each write differs
}

// Main runs a replica and ends the process, if a test has started the process for that. TestMain must call it first.
func Main() {
	encoded := os.Getenv(replicaVariable)
	if encoded == "" {
		return
	}
	if err := runReplica(encoded); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runReplica(encoded string) error {
	r := &replica{}
	if err := json.Unmarshal([]byte(encoded), &r.replicaConfig); err != nil {
		return err
	}
	return r.run()
}

func (r *replica) run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fastSignals := make(chan os.Signal, 1)
	signal.Notify(fastSignals, syscall.SIGUSR1)
	go func() { // ends with the process
		for range fastSignals {
			r.fast.Store(true)
		}
	}()
	config, err := clientcmd.BuildConfigFromFlags("", r.Kubeconfig)
	if err != nil {
		return err
	}
	cluster, err := kube.Connect(config)
	if err != nil {
		return err
	}
	client, err := corev1client.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		return err
	}
	r.maps = client.ConfigMaps(r.Namespace)
	cluster.SetLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	election := leader.Config{
		Cluster: cluster, Namespace: r.Namespace, Name: LeaseName, Identity: r.Identity,
		LeaseDuration: LeaseDuration, RenewDeadline: RenewDeadline, RetryPeriod: RetryPeriod,
	}
	if r.Writers == ManagedHandlers || r.Writers == ManagedRunnables {
		return r.runManager(cluster, election)
	}
	elector, err := leader.New(election)
	if err != nil {
		return err
	}
	if r.Writers == Handlers || r.Writers == Slow {
		ctrl, err := r.controller(cluster, &reportingElector{r, elector})
		if err != nil {
			return err
		}
		return ctrl.Run(ctx)
	}
	return (&reportingElector{r, elector}).Run(ctx, r.write)
}

// reportingElector is an elector that numbers its terms in the cluster, and prints their begin and end for the test.
type reportingElector struct {
	*replica
	elector *leader.Elector
}

// Ready implements controller.LeaderElector.
func (a *reportingElector) Ready() error { return a.elector.Ready() }

// Run implements controller.LeaderElector.
func (a *reportingElector) Run(ctx context.Context, work func(ctx context.Context) error) error {
	return a.elector.Run(ctx, func(ctx context.Context) error { return a.lead(ctx, work) })
}

// lead runs the work of a term.
func (r *replica) lead(ctx context.Context, work func(ctx context.Context) error) error {
	r.fast.Store(false)
	fmt.Println("begins")
	defer fmt.Println("ended")
	term, err := r.takeTerm(ctx)
	if err != nil {
		return err
	}
	r.term.Store(term)
	fmt.Println("leads", term)
	return work(ctx)
}

// runManager runs a manager whose only runnable writes.
func (r *replica) runManager(cluster *kube.Cluster, election leader.Config) error {
	work := r.write
	if r.Writers == ManagedHandlers {
		ctrl, err := r.controller(cluster, nil)
		if err != nil {
			return err
		}
		work = ctrl.Run
	}
	m, err := manager.New(manager.Config{
		LeaderElection: &election,
		Runnables: []manager.Runnable{{
			Name: "writers", Runner: manager.RunFunc(func(ctx context.Context) error { return r.lead(ctx, work) }),
		}},
	})
	if err != nil {
		return err
	}
	return m.Run(context.Background())
}

// takeTerm writes and returns the number of the new term.
func (r *replica) takeTerm(ctx context.Context) (int64, error) {
	for {
		current, err := r.maps.Get(ctx, termName, metav1.GetOptions{})
		if err != nil {
			return 0, err
		}
		term, err := strconv.ParseInt(current.Data["term"], 10, 64)
		if err != nil {
			return 0, err
		}
		current.Data = map[string]string{"term": strconv.FormatInt(term+1, 10), "by": r.Identity}
		if _, err = r.maps.Update(ctx, current, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return term + 1, err
		}
	}
}

// patch writes the current term into a target.
func (r *replica) patch(ctx context.Context, name string) error {
	body := fmt.Sprintf(`{"data":{"term":"%d","by":%q,"count":"%d"}}`, r.term.Load(), r.Identity, r.count.Add(1))
	_, err := r.maps.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}

func (r *replica) pause() time.Duration {
	if r.fast.Load() {
		return 0
	}
	return slowPause
}

// controller returns a controller with handlers that write.
func (r *replica) controller(
	cluster *kube.Cluster, elector controller.LeaderElector,
) (*controller.Controller[*corev1.ConfigMap], error) {
	return controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "writers", Workers: Targets, LeaderElector: elector,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{
			Namespaces: []string{r.Namespace}, LabelSelector: "target=true",
		}),
		Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
			if r.Writers == Slow {
				fmt.Println("works")
				select {
				case <-time.After(SlowWork):
				case <-ctx.Done():
				}
				fmt.Println("writes")
			}
			if err := r.patch(ctx, m.Name); err != nil {
				return err
			}
			return controller.RequeueAfter(max(r.pause(), time.Millisecond), "the next write")
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
}

// write runs one writer for each target. They continue for writeAfterEnd after the end of ctx.
func (r *replica) write(ctx context.Context) error {
	var writers sync.WaitGroup
	for i := range Targets {
		writers.Go(func() { r.writeTo(ctx, targetName(i)) }) // waited for below
	}
	writers.Wait()
	return ctx.Err()
}

func (r *replica) writeTo(ctx context.Context, name string) {
	var ended time.Time
	for ended.IsZero() || time.Since(ended) < writeAfterEnd {
		writing, cancel := ctx, context.CancelFunc(func() {})
		if r.Writers == Outliving {
			writing, cancel = context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		}
		err := r.patch(writing, name)
		cancel()
		if ended.IsZero() && ctx.Err() != nil {
			ended = time.Now()
		}
		pause := r.pause()
		if err != nil {
			pause = time.Millisecond
			if !errors.Is(err, kube.ErrLeadershipLost) && !errors.Is(err, context.Canceled) {
				fmt.Fprintf(os.Stderr, "write to %s: %v\n", name, err)
				pause = 50 * time.Millisecond
			}
		}
		if pause == 0 {
			continue
		}
		timer := time.NewTimer(pause)
		wake := ctx.Done()
		if !ended.IsZero() {
			wake = nil
		}
		select {
		case <-timer.C:
		case <-wake:
			timer.Stop()
		}
	}
}
