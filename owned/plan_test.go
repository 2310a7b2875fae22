package owned

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestPlanStringWithoutChildren(t *testing.T) {
	t.Parallel()
	if got, want := (Report{owner: "WebApp shop/web"}).String(), "WebApp shop/web: no children\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	plan := Report{owner: "WebApp shop/web", OwnerTerminating: true}
	if got, want := plan.String(), "WebApp shop/web: nothing to do, because it is being deleted\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The format of a plan.
func TestPlanString(t *testing.T) {
	t.Parallel()
	result := func(kind, name string, outcome ChildOutcome, changed ...client.FieldChange) Result {
		return Result{
			Kind: corev1.SchemeGroupVersion.WithKind(kind), Key: kube.Key{Namespace: "shop", Name: name},
			Desired: outcome != Deleted, Outcome: outcome, Changed: changed,
		}
	}
	service := result("Service", "web", Updated, client.FieldChange{Path: "spec.ports[http].port", Before: 80, After: 8080})
	service.wave = 1
	plan := Report{owner: "WebApp shop/web", Results: []Result{
		result("ConfigMap", "colours", Created, client.FieldChange{Path: "data.primary", After: "blue"}),
		result("ConfigMap", "web", Unchanged),
		result("Secret", "web", Updated, client.FieldChange{Path: "data.password", Before: client.Hidden, After: client.Hidden}),
		service,
		result("ConfigMap", "old", Deleted),
	}}
	want := `WebApp shop/web: create 1, update 2, delete 1, unchanged 1
+ ConfigMap shop/colours
    data.primary: none -> "blue"
~ Secret shop/web
    data.password: (hidden) -> another value (hidden)
~ Service shop/web (wave 1)
    spec.ports[http].port: 80 -> 8080
- ConfigMap shop/old
`
	if diff := cmp.Diff(want, plan.String()); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
}
