package owned

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// A child that the Set itself deletes to create it with other immutable fields ends as a consequence (kube-controller-manager
// sets Failed on a Job whose Pods the deletion kills). That is not the end of the child that is desired now.
func TestRecreatedOnceChildRuns(t *testing.T) {
	for _, last := range []string{"Failed", "Current"} {
		t.Run(last, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			app, set := e.app("web"), e.set()
			child := func(colour string) owned.Child {
				config := e.configMap("migrate", "image", colour)
				config.Immutable = new(true)
				return owned.Child{Object: config, Once: true, Recreate: true, Ready: func(obj kube.Object) readiness.State {
					if status := obj.(*corev1.ConfigMap).Annotations["status"]; status != "" {
						return readiness.State{Status: readiness.Status(status)}
					}
					return readiness.State{Status: readiness.InProgress}
				}}
			}
			e.want(e.apply(set, app, child("v1")).Results, "ConfigMap migrate: created")
			e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":["example.com/pods"]}}`)
			e.want(e.apply(set, app, child("v2")).Results, "ConfigMap migrate: recreating")
			e.merge(e.configMap("migrate"), `{"metadata":{"annotations":{"status":"`+last+`"}}}`) // the deletion kills its Pods
			e.want(e.apply(set, app, child("v2")).Results, "ConfigMap migrate: terminating")
			e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":null}}`)
			report := e.apply(set, app, child("v2"))
			e.want(report.Results, "ConfigMap migrate: created")
		}))
	}
}

// A child that runs once and is not desired any more is pruned as any other, before and after its end, and stays with
// PruneNever. Its end stays noted: the child is not created when it is desired again.
func TestUndesiredOnceChildIsPruned(t *testing.T) {
	for prune, outcome := range map[owned.Prune]string{owned.PruneLast: "deleted", owned.PruneFirst: "deleted", owned.PruneNever: "waiting"} {
		for _, hasFinished := range []bool{false, true} {
			t.Run(fmt.Sprint(int(prune), hasFinished), inBubble(func(t *testing.T) {
				t.Helper()
				e := newEnv(t)
				app := e.app("web")
				set := e.set(func(c *owned.Config) { c.Prune = prune })
				once := owned.Child{Object: e.configMap("migrate"), Once: true, Ready: doneByAnnotation}
				e.want(e.apply(set, app, once).Results, "ConfigMap migrate: created")
				again := "created"
				if hasFinished {
					e.merge(e.configMap("migrate"), `{"metadata":{"annotations":{"done":"yes"}}}`)
					e.apply(set, app, once)
					again = "unchanged"
				}
				if prune == owned.PruneNever {
					again = "unchanged"
				}
				e.want(e.apply(set, app).Results, "ConfigMap migrate: "+outcome)
				if exists := e.get(e.key("migrate")) != nil; exists != (prune == owned.PruneNever) {
					t.Errorf("it exists: %v", exists)
				}
				e.want(e.apply(set, must(client.GetLive(t.Context(), e.c, app))(t), once).Results, "ConfigMap migrate: "+again)
			}))
		}
	}
}
