package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// observer watches the Pods and the PodTerminator like any client, and prints their changes. It consists of two more
// controllers.
type observer struct {
	// Immutable.
	printer     *printer
	pods        *informer.Informer[*corev1.Pod]
	watcher     *controller.Controller[*corev1.Pod]
	terminators *controller.Controller[*v1alpha1.PodTerminator]

	mu      sync.Mutex
	present map[kube.Key]*corev1.Pod // guarded by mu; running Pods, in their last known state
	seen    map[types.UID]bool       // guarded by mu; every Pod that ever ran
	lostAt  []time.Time              // guarded by mu; when Pods ended that were not replaced yet
	ended   int                      // guarded by mu
	healed  int                      // guarded by mu
	rounds  int64                    // guarded by mu
}

func newObserver(cluster *kube.Cluster, namespace string, s *printer) (*observer, error) {
	a := &observer{
		printer: s,
		present: map[kube.Key]*corev1.Pod{},
		seen:    map[types.UID]bool{},
	}
	selection := kube.Selection{Namespaces: []string{namespace}}
	var err error
	a.pods, err = informer.New(informer.Config[*corev1.Pod]{
		Name: "observer-pods", Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, selection),
	})
	if err != nil {
		return nil, err
	}
	// A Reconciler instead of a Handler, because it is also called for deleted Pods.
	a.watcher, err = controller.New(controller.Config[*corev1.Pod]{
		Name: "observer-pods", Informer: a.pods, Reconciler: a.sawPod, Workers: 1,
	})
	if err != nil {
		return nil, err
	}
	a.terminators, err = controller.New(controller.Config[*v1alpha1.PodTerminator]{
		Name:      "observer-terminators",
		Retriever: informer.RetrieveSelected[*v1alpha1.PodTerminator](cluster, selection),
		Handler:   a.sawTerminator,
	})
	return a, err
}

// run watches until ctx ends.
func (a *observer) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { _ = a.watcher.Run(ctx) }) // waited for here; it has no source that could fail
	_ = a.terminators.Run(ctx)
}

// sawPod compares the Pod with its last known state.
func (a *observer) sawPod(_ context.Context, key kube.Key) error {
	pod, found, err := a.pods.Get(key)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.present[key]
	runs := found && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
	switch {
	case runs && before == nil:
		a.present[key] = pod
		a.seen[pod.UID] = true
		a.began(pod)
	case runs:
		a.present[key] = pod
	case before != nil:
		delete(a.present, key)
		if found {
			before = pod
		}
		a.over(before)
	}
	return nil
}

// began prints a running Pod that replaces an ended one.
func (a *observer) began(pod *corev1.Pod) {
	if len(a.lostAt) == 0 {
		return
	}
	since := time.Since(a.lostAt[0])
	a.lostAt = a.lostAt[1:]
	a.healed++
	a.printer.event(kindHealed, pod.Name, "runs on %s, %s after the loss; %d run", pod.Spec.NodeName, short(since),
		len(a.present))
}

// over prints a Pod that has ended.
func (a *observer) over(pod *corev1.Pod) {
	a.lostAt = append(a.lostAt, time.Now())
	a.ended++
	by := "by another client"
	if name, ok := pod.Annotations[v1alpha1.VictimAnnotation]; ok {
		by = "by PodTerminator " + name
	}
	a.printer.event(kindEnded, pod.Name, "%s; %d run", by, len(a.present))
}

func (a *observer) sawTerminator(_ context.Context, pt *v1alpha1.PodTerminator) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pt.Status.Rounds > a.rounds {
		a.rounds = pt.Status.Rounds
		words := ""
		for _, c := range pt.Status.Conditions {
			words = c.Message
		}
		a.printer.event(kindRound, fmt.Sprintf("PodTerminator %s", pt.Name), "round %d: %s, %d so far", a.rounds, words,
			pt.Status.TerminatedTotal)
	}
	return nil
}

// observations is the data that the observer has collected.
type observations struct {
	running, ended, healed int
	rounds                 int64
}

func (a *observer) observations() observations {
	a.mu.Lock()
	defer a.mu.Unlock()
	return observations{running: len(a.present), ended: a.ended, healed: a.healed, rounds: a.rounds}
}

// allSeen returns the UIDs of all Pods that ever ran.
func (a *observer) allSeen() map[types.UID]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.seen)
}

// ready returns nil if both controllers are ready.
func (a *observer) ready() error { return errors.Join(a.watcher.Ready(), a.terminators.Ready()) }

// short rounds a duration for reading.
func short(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
