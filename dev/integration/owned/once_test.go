package owned

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// A child that runs once, such as a Job with ttlSecondsAfterFinished, is created again only if it was deleted before it
// had finished. The owner records that, so a new process with a stale owner does not create it either.
func TestFinishedChildIsNotCreatedAgain(t *testing.T) {
	for _, last := range []string{"Current", "Failed"} {
		t.Run(last, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			app := e.app("web")
			once := owned.Child{Object: e.configMap("migrate"), Once: true, CreateOnly: true, Ready: func(obj kube.Object) readiness.State {
				if status := obj.(*corev1.ConfigMap).Data["status"]; status != "" {
					return readiness.State{Status: readiness.Status(status)}
				}
				return readiness.State{Status: readiness.InProgress}
			}}
			after := owned.Child{Object: e.configMap("server"), Wave: 1}
			remove := func() {
				if err := client.Delete(t.Context(), e.c, e.configMap("migrate")); err != nil {
					t.Fatal(err)
				}
			}
			e.want(e.apply(e.set(), app, once, after).Results, "ConfigMap migrate: created", "ConfigMap server: waiting")
			remove() // it has not finished
			e.want(e.apply(e.set(), app, once, after).Results, "ConfigMap migrate: created", "ConfigMap server: waiting")

			e.merge(e.configMap("migrate"), `{"data":{"status":"`+last+`"}}`)
			e.apply(e.set(), app, once, after)
			remove()
			stale := app
			live := must(client.GetLive(t.Context(), e.c, app))(t)
			for _, owner := range []*unstructured.Unstructured{stale, live} {
				report := e.apply(e.set(), owner, once, after)
				server := "ConfigMap server: waiting"
				if last == "Current" {
					server = "ConfigMap server: unchanged"
				}
				e.want(report.Results, "ConfigMap migrate: unchanged", server)
				if report.Ready() != (last == "Current") {
					t.Errorf("ready %t: %s", report.Ready(), report.Pending())
				}
				if _, err := client.Get[*corev1.ConfigMap](t.Context(), e.c, e.key("migrate")); !errors.Is(err, client.ErrGone) {
					t.Errorf("it was created again: %v", err)
				}
			}
			// Another child of the set that runs once is another record, and a set of another name has its own.
			next := once
			next.Object = e.configMap("migrate-2")
			e.want(e.apply(e.set(), live, next).Results[:1], "ConfigMap migrate-2: created")
			other := e.set(func(c *owned.Config) { c.Name = "another" })
			e.want(e.apply(other, live, once).Results[:1], "ConfigMap migrate: created")
		}))
	}
}

// A child that has finished and is being deleted when the first run after its end begins is not created again.
func TestFinishedChildBeingDeletedIsNotCreatedAgain(t *testing.T) {
	for name, createOnly := range map[string]bool{"applied": false, "create-only": true} {
		t.Run(name, inBubble(func(t *testing.T) {
			t.Helper()
			e := newEnv(t)
			app := e.app("web")
			child := owned.Child{Object: e.configMap("migrate"), Once: true, CreateOnly: createOnly, Ready: func(obj kube.Object) readiness.State {
				switch {
				case obj.GetDeletionTimestamp() != nil:
					return readiness.State{Status: readiness.Terminating}
				case obj.(*corev1.ConfigMap).Data["status"] == "done":
					return readiness.State{Status: readiness.Current}
				}
				return readiness.State{Status: readiness.InProgress}
			}}
			remove := func(data string) {
				e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":["example.com/hold"]}`+data+`}`)
				if err := client.Delete(t.Context(), e.c, e.configMap("migrate")); err != nil {
					t.Fatal(err)
				}
				e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: terminating")
				e.merge(e.configMap("migrate"), `{"metadata":{"finalizers":null}}`)
			}
			e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: created")
			remove("") // it has not finished
			e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: created")
			remove(`,"data":{"status":"done"}`)
			e.want(e.apply(e.set(), app, child).Results, "ConfigMap migrate: unchanged")
		}))
	}
}
