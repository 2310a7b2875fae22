package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

const (
	deploymentName = "web"
	terminatorName = "chaos"
	pollInterval   = 50 * time.Millisecond
)

// demo is one performance.
type demo struct {
	// Immutable.
	options  options
	cluster  *kube.Cluster
	local    *localcluster.Cluster
	client   kubernetes.Interface
	story    *story
	operator *operator.Operator
	audience *audience

	namespace  string // set by setUp; empty: there is none
	crdIsOurs  bool   // set by setUp
	replicas   int    // set by setUp
	stopSeeing func() // set by play; ends the audience

	mu       sync.Mutex
	problems int64 // guarded by mu; runs of the operator's handler that failed
	last     error // guarded by mu; the last one's error
}

func newDemo(o options, local *localcluster.Cluster, s *story) (*demo, error) {
	cluster, err := kube.Connect(local.RESTConfig(), v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &demo{options: o, cluster: cluster, local: local, client: client, story: s, stopSeeing: func() {}}, nil
}

// figures are the result of the demo.
type figures struct {
	rounds, terminated int64
	healed             int
	errors             int64
}

func (f figures) String() string {
	return fmt.Sprintf("demo: %d rounds, %d pods terminated, %d healed, %d errors", f.rounds, f.terminated, f.healed, f.errors)
}

// play runs the operator until enough rounds have ended or ctx has.
func (d *demo) play(ctx context.Context) (figures, error) {
	// Until the clean-up, so that after Ctrl-C the last Pods are seen to heal.
	d.stopSeeing = inBackground(context.WithoutCancel(ctx), d.audience.run)
	_, err := d.untilSeen(ctx, fmt.Sprintf("see all %d Pods", d.replicas), func(s sight) bool {
		return s.running == d.replicas && d.audience.ready() == nil
	})
	if err != nil {
		return figures{}, err
	}
	if err := d.applyTerminator(ctx); err != nil {
		return figures{}, err
	}
	stopOperator := inBackground(ctx, d.operate)
	defer stopOperator()
	if !d.options.once {
		d.story.text("(Ctrl-C ends the demo and cleans up)")
		<-ctx.Done()
		d.story.text("(interrupted: waiting for the round that is under way to end)")
		stopOperator() // it finishes the round that is under way
		return d.figures(context.WithoutCancel(ctx))
	}
	// Each round has its period, and a whole step's time on top.
	for n := int64(1); n <= d.options.rounds; n++ {
		if _, err := d.untilSeen(ctx, fmt.Sprintf("see round %d", n), func(s sight) bool { return s.rounds >= n }); err != nil {
			return figures{}, err
		}
	}
	stopOperator() // so that the figures stand still
	return d.check(ctx)
}

// check compares what the status says with what the cluster shows.
func (d *demo) check(ctx context.Context) (figures, error) {
	stepCtx, cancel := d.step(ctx)
	defer cancel()
	now, err := d.figures(stepCtx)
	if err != nil {
		return now, err
	}
	if err := d.trouble(); err != nil {
		return now, err
	}
	want := int(now.terminated)
	if want == 0 {
		return now, fmt.Errorf("%d rounds ended no Pod", now.rounds)
	}
	what := fmt.Sprintf("see %d rounds, %d Pods end and as many heal, so that %d run", now.rounds, want, d.replicas)
	seen, err := d.untilSeen(ctx, what, func(s sight) bool {
		return s.rounds == now.rounds && s.ended == want && s.healed == want && s.running == d.replicas
	})
	if err != nil {
		return now, err
	}
	now.healed = seen.healed
	if _, err := d.untilReady(stepCtx); err != nil {
		return now, err
	}
	return now, d.checkPods(stepCtx, want)
}

// figures reads the PodTerminator's status, and adds what the audience has seen.
func (d *demo) figures(ctx context.Context) (figures, error) {
	ctx, cancel := d.step(ctx)
	defer cancel()
	client, err := d.cluster.RESTClient(v1alpha1.GroupVersion())
	if err != nil {
		return figures{}, err
	}
	pt := &v1alpha1.PodTerminator{}
	if err := client.Get().Namespace(d.namespace).Resource(v1alpha1.Resource).Name(terminatorName).Do(ctx).Into(pt); err != nil {
		return figures{}, fmt.Errorf("read the status of PodTerminator %s/%s: %w", d.namespace, terminatorName, err)
	}
	return figures{
		rounds:     pt.Status.Rounds,
		terminated: pt.Status.TerminatedTotal,
		healed:     d.audience.sight().healed,
		errors:     d.failures(),
	}, nil
}

// checkPods asks the API server, rather than any cache, whether the ended Pods are gone.
func (d *demo) checkPods(ctx context.Context, ended int) error {
	list, err := d.client.CoreV1().Pods(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the Pods: %w", err)
	}
	gone := d.audience.everSeen()
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			delete(gone, pod.UID)
		}
	}
	if len(gone) != ended || len(list.Items) < d.replicas {
		return fmt.Errorf("%d Pods were to be ended, but %d that ran are gone, and %d of %d are there", ended, len(gone), len(list.Items), d.replicas)
	}
	return nil
}

func (d *demo) operate(ctx context.Context) {
	if err := d.operator.Run(ctx); err != nil {
		d.story.tell(kindProblem, "operator", "%v", err)
	}
}

// tellReconciles is a middleware: it tells of each run of the handler.
func (d *demo) tellReconciles(next controller.Handler[*v1alpha1.PodTerminator]) controller.Handler[*v1alpha1.PodTerminator] {
	return controller.HandlerFunc[*v1alpha1.PodTerminator](func(ctx context.Context, pt *v1alpha1.PodTerminator) error {
		err := next.Handle(ctx, pt)
		run, _ := controller.RunFrom(ctx)
		kind, answer := kindReconcile, "done"
		var requeue *controller.RequeueError
		switch {
		case controller.IsRequeue(err) && errors.As(err, &requeue):
			answer = "again in " + short(requeue.After)
		case err != nil && ctx.Err() == nil:
			d.failed(err)
			kind, answer = kindProblem, err.Error()
		}
		d.story.tell(kind, "PodTerminator "+pt.Name, "cause: %s; took %s; %s", run.Causes, short(time.Since(run.Started)), answer)
		return err
	})
}

func (d *demo) failed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.problems++
	d.last = err
}

func (d *demo) failures() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.problems
}

// trouble is what the operator has failed at, or nil: none of it is part of the story.
func (d *demo) trouble() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.problems == 0 {
		return nil
	}
	return fmt.Errorf("the operator failed %d times, the last time with: %w", d.problems, d.last)
}

// step bounds what must not take for ever.
func (d *demo) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.options.timeout)
}

func (d *demo) untilSeen(ctx context.Context, what string, done func(sight) bool) (sight, error) {
	ctx, cancel := d.step(ctx)
	defer cancel()
	var seen sight
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		seen = d.audience.sight()
		return done(seen), nil
	})
	if err != nil {
		err = fmt.Errorf("wait to %s: seen so far: %d rounds, %d Pods ended, %d healed, %d running: %w",
			what, seen.rounds, seen.ended, seen.healed, seen.running, err)
		if trouble := d.trouble(); trouble != nil {
			err = fmt.Errorf("%w (%w)", err, trouble)
		}
	}
	return seen, err
}

// inBackground runs f until stop is called, which waits for f.
func inBackground(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) }) // waited for by stop
	return func() {
		cancel()
		running.Wait()
	}
}
