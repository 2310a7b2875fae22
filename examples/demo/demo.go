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
	"github.com/evenkeel-go/evenkeel/localcluster"
)

const (
	deploymentName = "web"
	terminatorName = "chaos"
	pollInterval   = 50 * time.Millisecond
)

// demo is one run of the demo.
type demo struct {
	// Immutable.
	options  options
	cluster  *kube.Cluster
	local    *localcluster.Cluster
	client   kubernetes.Interface
	printer  *printer
	operator *operator.Operator
	observer *observer

	namespace    string // set by setUp; empty: not created
	crdIsOurs    bool   // set by setUp
	replicas     int    // set by setUp
	stopObserver func() // set by runRounds; stops the observer

	mu       sync.Mutex
	problems int64 // guarded by mu; failed runs of the operator's handler
	last     error // guarded by mu; the error of the last one
}

func newDemo(o options, local *localcluster.Cluster, s *printer) (*demo, error) {
	cluster, err := kube.Connect(local.RESTConfig(), v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	cluster.SetLogger(s.logger())
	client, err := kubernetes.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return &demo{options: o, cluster: cluster, local: local, client: client, printer: s, stopObserver: func() {}}, nil
}

// figures are the result of the demo.
type figures struct {
	rounds, terminated int64
	healed             int
	errors             int64
}

func (f figures) String() string {
	return fmt.Sprintf("demo: %d rounds, %d pods terminated, %d healed, %d errors", f.rounds, f.terminated, f.healed,
		f.errors)
}

// runRounds runs the operator until enough rounds have ended or ctx ends.
func (d *demo) runRounds(ctx context.Context) (figures, error) {
	// Until the cleanup, so that the last Pods are seen to heal after Ctrl-C.
	d.stopObserver = inBackground(context.WithoutCancel(ctx), d.observer.run)
	_, err := d.untilObserved(ctx, fmt.Sprintf("see all %d Pods", d.replicas), func(s observations) bool {
		return s.running == d.replicas && d.observer.ready() == nil
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
		d.printer.text("(Ctrl-C ends the demo and cleans up)")
		<-ctx.Done()
		d.printer.text("(interrupted: waiting for the current round to end)")
		stopOperator() // it finishes the current round
		return d.figures(context.WithoutCancel(ctx))
	}
	// Each round takes its period, and the time limit of a step in addition.
	for n := int64(1); n <= d.options.rounds; n++ {
		if _, err := d.untilObserved(ctx, fmt.Sprintf("see round %d", n), func(s observations) bool {
			return s.rounds >= n
		}); err != nil {
			return figures{}, err
		}
	}
	stopOperator() // so that the figures do not change any more
	return d.check(ctx)
}

// check compares the status with the cluster.
func (d *demo) check(ctx context.Context) (figures, error) {
	stepCtx, cancel := d.step(ctx)
	defer cancel()
	now, err := d.figures(stepCtx)
	if err != nil {
		return now, err
	}
	if err := d.problem(); err != nil {
		return now, err
	}
	want := int(now.terminated)
	if want == 0 {
		return now, fmt.Errorf("%d rounds ended no Pod", now.rounds)
	}
	what := fmt.Sprintf("see %d rounds, %d Pods end and as many heal, so that %d run", now.rounds, want, d.replicas)
	seen, err := d.untilObserved(ctx, what, func(s observations) bool {
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

// figures reads the PodTerminator's status, and adds the observer's data.
func (d *demo) figures(ctx context.Context) (figures, error) {
	ctx, cancel := d.step(ctx)
	defer cancel()
	client, err := d.cluster.RESTClient(v1alpha1.GroupVersion())
	if err != nil {
		return figures{}, err
	}
	pt := &v1alpha1.PodTerminator{}
	if err := client.Get().Namespace(d.namespace).Resource(v1alpha1.Resource).Name(terminatorName).Do(ctx).
		Into(pt); err != nil {
		return figures{}, fmt.Errorf("read the status of PodTerminator %s/%s: %w", d.namespace, terminatorName, err)
	}
	return figures{
		rounds:     pt.Status.Rounds,
		terminated: pt.Status.TerminatedTotal,
		healed:     d.observer.observations().healed,
		errors:     d.failures(),
	}, nil
}

// checkPods lists the Pods with a request instead of a cache, and checks that the ended Pods are deleted.
func (d *demo) checkPods(ctx context.Context, ended int) error {
	list, err := d.client.CoreV1().Pods(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the Pods: %w", err)
	}
	gone := d.observer.allSeen()
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			delete(gone, pod.UID)
		}
	}
	if len(gone) != ended || len(list.Items) < d.replicas {
		return fmt.Errorf("%d Pods should have ended, but %d were deleted, and %d of %d exist", ended, len(gone),
			len(list.Items), d.replicas)
	}
	return nil
}

func (d *demo) operate(ctx context.Context) {
	if err := d.operator.Run(ctx); err != nil {
		d.printer.event(kindProblem, "operator", "%v", err)
	}
}

// printRuns is a middleware that prints each run of the handler.
func (d *demo) printRuns(next controller.Handler[*v1alpha1.PodTerminator]) controller.Handler[*v1alpha1.PodTerminator] {
	return func(ctx context.Context, pt *v1alpha1.PodTerminator) error {
		err := next(ctx, pt)
		run, _ := controller.RunFrom(ctx)
		kind, answer := kindReconcile, "done"
		var requeue *controller.RequeueError
		switch {
		case controller.OutcomeOf(err) == controller.OutcomeRequeue && errors.As(err, &requeue):
			answer = "again in " + short(requeue.After)
		case err != nil && ctx.Err() == nil:
			d.failed(err)
			kind, answer = kindProblem, err.Error()
		}
		d.printer.event(kind, "PodTerminator "+pt.Name, "cause: %s; took %s; %s", run.Causes,
			short(time.Since(run.Started)), answer)
		return err
	}
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

// problem returns an error if the operator's handler has failed, because failures are not part of the demo.
func (d *demo) problem() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.problems == 0 {
		return nil
	}
	return fmt.Errorf("the operator failed %d times, the last time with: %w", d.problems, d.last)
}

// step returns a context with the time limit of a step.
func (d *demo) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.options.timeout)
}

func (d *demo) untilObserved(ctx context.Context, what string, done func(observations) bool) (observations, error) {
	ctx, cancel := d.step(ctx)
	defer cancel()
	var seen observations
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		seen = d.observer.observations()
		return done(seen), nil
	})
	if err != nil {
		err = fmt.Errorf("wait to %s: seen so far: %d rounds, %d Pods ended, %d healed, %d running: %w",
			what, seen.rounds, seen.ended, seen.healed, seen.running, err)
		if problem := d.problem(); problem != nil {
			err = fmt.Errorf("%w (%w)", err, problem)
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
