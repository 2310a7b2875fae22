package controllers_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/simulation/internal/controllers"
)

// conditions returns the conditions of an object: type=status and reason, of those with a status.
func (w *world) conditions(resource, key, status string) string {
	w.t.Helper()
	conditions, _ := w.get(resource, key)["status"].(map[string]any)["conditions"].([]any)
	var texts []string
	for _, c := range conditions {
		condition := c.(map[string]any)
		if condition["status"] == status {
			text := condition["type"].(string)
			for _, name := range []string{"reason", "message"} {
				if value, ok := condition[name].(string); ok {
					text += ": " + value
				}
			}
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}

func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	const namespaces = "v1/namespaces"
	inWorlds(t, map[string]func(w *world){
		"with content": func(w *world) {
			w.apply(cms, `{metadata: {name: a}}`)
			w.apply(gadgets, `{metadata: {name: b}}`)
			w.apply(cms, `{metadata: {name: other, namespace: two}}`)
			w.delete(namespaces, "one", "")
			w.run(4 * time.Second)
			w.expect(cms, "a")
			w.run(time.Second)
			if w.get(namespaces, "one") != nil {
				w.t.Errorf("the namespace exists 5 s after its deletion; writes:\n%s", strings.Join(w.requests, "\n"))
			}
			if w.get(gadgets, "one/b") != nil || w.get(cms, "two/other") == nil {
				w.t.Error("the wrong objects were deleted")
			}
		},
		"with a finalizer": func(w *world) {
			w.apply(cms, `{metadata: {name: a, finalizers: [example.org/x]}}`)
			w.delete(namespaces, "one", "")
			w.run(time.Hour)
			w.expect(cms, "a(deleting)")
			want := "NamespaceContentRemaining: SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances\n" +
				"NamespaceFinalizersRemaining: SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.org/x in 1 resource instances"
			if got := w.conditions(namespaces, "one", "True"); got != want {
				w.t.Errorf("the conditions are\n%s\nwant\n%s", got, want)
			}
			w.patch(cms, "one/a", `{metadata: {finalizers: null}}`)
			w.run(15 * time.Second)
			if w.get(namespaces, "one") != nil {
				w.t.Error("the namespace exists 15 s after its last object")
			}
		},
		"with a Pod": func(w *world) {
			w.pods = func(*corev1.Pod) controllers.PodBehavior { return controllers.PodBehavior{StopAfter: 20 * time.Second} }
			w.apply(podsPath, `{metadata: {name: a}, spec: {containers: [{name: c, image: a}]}}`)
			w.apply(cms, `{metadata: {name: a}}`)
			w.run(time.Minute)
			w.delete(namespaces, "one", "")
			w.run(20 * time.Second)
			w.expect(podsPath, "a(deleting)")
			w.expect(cms, "a")
			w.run(30 * time.Second)
			if w.get(namespaces, "one") != nil {
				w.t.Error("the namespace was not deleted")
			}
		},
		"that fails": func(w *world) {
			w.apply(cms, `{metadata: {name: a}}`)
			began := time.Now()
			w.fail = func(req *http.Request) int {
				if req.Method == http.MethodDelete && time.Since(began) < time.Minute {
					return http.StatusServiceUnavailable
				}
				return 0
			}
			w.delete(namespaces, "one", "")
			w.run(10 * time.Second)
			if got := w.conditions(namespaces, "one", "True"); !strings.HasPrefix(got, "NamespaceDeletionContentFailure: ContentDeletionFailed") {
				w.t.Errorf("the conditions are %q", got)
			}
			w.run(2 * time.Minute)
			if w.get(namespaces, "one") != nil {
				w.t.Error("the namespace was not deleted")
			}
		},
	})
}
