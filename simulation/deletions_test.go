package simulation_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Each state of an object that is deleted lasts for some time, so that each cache has it.
func TestDeletionStepsTakeTime(t *testing.T) {
	t.Parallel()
	const pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {terminationGracePeriodSeconds: 30, containers: [{name: c, image: i}]}}"
	secrets := func(finalizers string) string {
		return "{apiVersion: v1, kind: Secret, metadata: {name: a" + finalizers + "}}"
	}
	for name, test := range map[string]struct {
		config   simulation.Config
		resource string
		object   string
		delete   func(c *simulation.Cluster)
	}{
		"Pod without a node": {simulation.Config{WithoutControllers: true}, "pods", pod, func(c *simulation.Cluster) {
			simulation.Delete[*corev1.Pod](c, "default/a")
		}},
		"Pod on a node": {simulation.Config{}, "pods", pod, func(c *simulation.Cluster) { simulation.Delete[*corev1.Pod](c, "default/a") }},
		"foreground": {simulation.Config{}, "secrets", secrets(", finalizers: [foregroundDeletion]"), func(c *simulation.Cluster) {
			simulation.Delete[*corev1.Secret](c, "default/a")
		}},
		"foreground of dependents": {simulation.Config{}, "secrets", secrets(""), func(c *simulation.Cluster) {
			owner := simulation.Get[*corev1.Secret](c, "default/a")
			refs := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: "a", UID: owner.UID, BlockOwnerDeletion: new(true)}}
			for _, name := range []string{"b", "c"} {
				dependent := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: refs}}
				if name == "b" {
					dependent.Finalizers = []string{"foregroundDeletion"}
				}
				create(t, c, dependent)
			}
			simulation.Edit(c, "default/a", "", func(s *corev1.Secret) { s.Finalizers = []string{"foregroundDeletion"} })
			simulation.Delete[*corev1.Secret](c, "default/a")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, test.config, func(t *testing.T, c *simulation.Cluster) {
				c.Apply(test.object)
				c.Settle()
				states := watchStates(t, c, test.resource)
				test.delete(c)
				c.Settle()
				time.Sleep(time.Minute)
				deleted := 0
				for key, all := range states() {
					terminating := false
					for i, s := range all {
						terminating = terminating || s.terminating
						if s.kind == watch.Deleted {
							deleted++
						}
						if i > 0 && all[i-1].terminating && !s.at.After(all[i-1].at) {
							t.Errorf("%s was %+v only for an instant: %+v", key, all[i-1], s)
						}
					}
					if !terminating && len(all) > 2 {
						t.Errorf("%s was never terminating: %+v", key, all)
					}
				}
				if deleted == 0 {
					t.Errorf("nothing was deleted: %+v", states())
				}
			})
		})
	}
}

type observedState struct {
	kind        watch.EventType
	at          time.Time
	terminating bool
}

func (s observedState) String() string { return fmt.Sprint(s.kind, s.at, s.terminating) }

// watchStates watches a resource, and returns a function that returns the states of each object since.
func watchStates(t *testing.T, c *simulation.Cluster, resource string) func() map[kube.Key][]observedState {
	t.Helper()
	clients, err := dynamic.NewForConfig(c.RESTConfig("watcher"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	w, err := clients.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	states, ended := map[kube.Key][]observedState{}, make(chan struct{})
	go func() { // ends with the watch; waited for below
		defer close(ended)
		for event := range w.ResultChan() {
			obj, ok := event.Object.(metav1.Object)
			if !ok {
				continue
			}
			key := kube.Key{Namespace: obj.GetNamespace(), Name: obj.GetName()}
			// The last state of a deleted object is the one before.
			terminating := obj.GetDeletionTimestamp() != nil && event.Type != watch.Deleted
			states[key] = append(states[key], observedState{event.Type, time.Now(), terminating})
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() map[kube.Key][]observedState { synctest.Wait(); return states }
}
