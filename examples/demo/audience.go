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

// audience watches the Pods and the PodTerminator, as anybody could, and tells what it
// sees. It is made of two more controllers.
type audience struct {
	// Immutable.
	story       *story
	pods        *informer.Informer[*corev1.Pod]
	watcher     *controller.Controller[*corev1.Pod]
	terminators *controller.Controller[*v1alpha1.PodTerminator]

	mu      sync.Mutex
	present map[kube.Key]*corev1.Pod // guarded by mu; Pods that run, as they were seen last
	seen    map[types.UID]bool       // guarded by mu; every Pod that ever ran
	wounds  []time.Time              // guarded by mu; when Pods ended that are not replaced yet
	ended   int                      // guarded by mu
	healed  int                      // guarded by mu
	rounds  int64                    // guarded by mu
}

func newAudience(cluster *kube.Cluster, namespace string, s *story) (*audience, error) {
	a := &audience{
		story:   s,
		present: map[kube.Key]*corev1.Pod{},
		seen:    map[types.UID]bool{},
	}
	selection := informer.Selection{Namespaces: []string{namespace}}
	var err error
	a.pods, err = informer.New(informer.Config[*corev1.Pod]{
		Name: "audience-pods", Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, selection), Logger: s.logger(),
	})
	if err != nil {
		return nil, err
	}
	// A Reconciler, not a Handler: it hears of Pods that are gone.
	a.watcher, err = controller.New(controller.Config[*corev1.Pod]{
		Name: "audience-pods", Informer: a.pods, Reconciler: controller.ReconcilerFunc(a.sawPod), Workers: 1, Logger: s.logger(),
	})
	if err != nil {
		return nil, err
	}
	a.terminators, err = controller.New(controller.Config[*v1alpha1.PodTerminator]{
		Name:      "audience-terminators",
		Retriever: informer.RetrieveSelected[*v1alpha1.PodTerminator](cluster, selection),
		Handler:   controller.HandlerFunc[*v1alpha1.PodTerminator](a.sawTerminator),
		Logger:    s.logger(),
	})
	return a, err
}

// run watches until ctx ends.
func (a *audience) run(ctx context.Context) {
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { _ = a.watcher.Run(ctx) }) // waited for here; it has no source that could fail
	_ = a.terminators.Run(ctx)
}

// sawPod compares the Pod of that key with how it was seen last.
func (a *audience) sawPod(_ context.Context, key kube.Key) error {
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

// began tells of a Pod that runs, if it stands in for one that was ended.
func (a *audience) began(pod *corev1.Pod) {
	if len(a.wounds) == 0 {
		return
	}
	since := time.Since(a.wounds[0])
	a.wounds = a.wounds[1:]
	a.healed++
	a.story.tell(kindHealed, pod.Name, "runs on %s, %s after the loss; %d run", pod.Spec.NodeName, short(since), len(a.present))
}

// over tells of a Pod that ran and does so no more.
func (a *audience) over(pod *corev1.Pod) {
	a.wounds = append(a.wounds, time.Now())
	a.ended++
	by := "by somebody else"
	if name, ok := pod.Annotations[v1alpha1.VictimAnnotation]; ok {
		by = "by PodTerminator " + name
	}
	a.story.tell(kindEnded, pod.Name, "%s; %d run", by, len(a.present))
}

func (a *audience) sawTerminator(_ context.Context, pt *v1alpha1.PodTerminator) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if pt.Status.Rounds > a.rounds {
		a.rounds = pt.Status.Rounds
		words := ""
		for _, c := range pt.Status.Conditions {
			words = c.Message
		}
		a.story.tell(kindRound, fmt.Sprintf("PodTerminator %s", pt.Name), "round %d: %s, %d so far", a.rounds, words, pt.Status.TerminatedTotal)
	}
	return nil
}

// sight is what the audience has seen so far.
type sight struct {
	running, ended, healed int
	rounds                 int64
}

func (a *audience) sight() sight {
	a.mu.Lock()
	defer a.mu.Unlock()
	return sight{running: len(a.present), ended: a.ended, healed: a.healed, rounds: a.rounds}
}

// everSeen returns the UIDs of all Pods that ever ran.
func (a *audience) everSeen() map[types.UID]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.seen)
}

// ready returns nil when the audience sees what happens.
func (a *audience) ready() error { return errors.Join(a.watcher.Ready(), a.terminators.Ready()) }

// short rounds a duration for reading.
func short(d time.Duration) string {
	if d >= 10*time.Second {
		return d.Round(time.Second).String()
	}
	return d.Round(time.Millisecond).String()
}
