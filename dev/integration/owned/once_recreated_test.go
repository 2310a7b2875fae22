package owned

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

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
