package status_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/status"
)

func TestCommitOnServer(t *testing.T) {
	e := newEnv(t)
	created := e.create("books")
	observer := newCalls()
	ctx := kube.ObserveCalls(t.Context(), observer)
	run := func(before, after *Shop, wantChanged bool, want ...string) {
		t.Helper()
		changed, err := status.Commit(ctx, e.Client, before, after)
		if changed != wantChanged || err != nil {
			t.Errorf("changed is %v, the error %v", changed, err)
		}
		if got := observer.Take(); !slices.Equal(got, want) {
			t.Errorf("calls: %q, want %q", got, want)
		}
	}
	after := created.copy()
	run(created, after, false)
	after.Annotations = map[string]string{"not": "status"}
	run(created, after, false)

	// The first status.
	status.SetReady(&after.Status.Conditions, after.Generation, "Open", "")
	after.Status.ObservedGeneration = 1
	run(created, after, true, "patch shops/status")
	live := e.live("books")
	if !meta.IsStatusConditionTrue(live.Status.Conditions, "Ready") || live.Status.ObservedGeneration != 1 || live.Annotations != nil {
		t.Errorf("the Shop is %+v", live)
	}
	run(live, live.copy(), false)

	// A change of a field is accepted with a stale object. A change of a condition is retried with the live object, and
	// keeps the conditions that were written in between.
	stale := live
	after = live.copy()
	after.round("a", 1)
	run(live, after, true, "patch shops/status")
	after = stale.copy()
	after.round("b", 1)
	run(stale, after, true, "patch shops/status", "get shops", "patch shops/status") // both create the map
	after = stale.copy()
	after.Status.ObservedGeneration = 7
	run(stale, after, true, "patch shops/status")
	after = stale.copy()
	status.Set(&after.Status.Conditions, status.True("Other", 1, "Yes", ""))
	run(stale, after, true, "patch shops/status", "get shops", "patch shops/status")
	live = e.live("books")
	if !meta.IsStatusConditionTrue(live.Status.Conditions, "Ready") || !meta.IsStatusConditionTrue(live.Status.Conditions, "Other") || fmt.Sprint(live.Status.Rounds) != "map[a:1 b:1]" || live.Status.ObservedGeneration != 7 {
		t.Errorf("the status is %+v", live.Status)
	}

	// The order of the list differs from that of the stale object.
	stale = live
	after = live.copy()
	slices.Reverse(after.Status.Conditions)
	if _, err := client.Patch(t.Context(), e.Client, live, client.MergeFrom(live, after), client.Subresource("status")); err != nil {
		t.Fatal(err)
	}
	after = stale.copy()
	status.Set(&after.Status.Conditions, status.False("Other", 1, "No", ""))
	run(stale, after, true, "patch shops/status", "get shops", "patch shops/status")
	live = e.live("books")
	if len(live.Status.Conditions) != 2 || !meta.IsStatusConditionTrue(live.Status.Conditions, "Ready") || !meta.IsStatusConditionFalse(live.Status.Conditions, "Other") {
		t.Errorf("the status is %+v", live.Status)
	}

	// All conditions are removed.
	after = live.copy()
	after.Status.Conditions = nil
	run(live, after, true, "patch shops/status")
	if live = e.live("books"); len(live.Status.Conditions) > 0 {
		t.Errorf("conditions are left: %v", live.Status.Conditions)
	}

	// The first status has no conditions.
	created = e.create("wine")
	after = created.copy()
	after.Status.ObservedGeneration = 1
	run(created, after, true, "patch shops/status")

	// An unstructured object, with an int instead of an int64.
	u, err := client.Get[*unstructured.Unstructured](t.Context(), e.Client, kube.KeyOf(live), client.OfKind(gv().WithKind("Shop")))
	if err != nil {
		t.Fatal(err)
	}
	edited := u.DeepCopy()
	edited.Object["status"].(map[string]any)["rounds"].(map[string]any)["a"] = 2
	if err := status.Edit(edited, func(c *[]metav1.Condition) { status.SetStalled(c, 1, "NoMoney", "") }); err != nil {
		t.Fatal(err)
	}
	if changed, err := status.Commit(ctx, e.Client, u, edited); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	if live = e.live("books"); !meta.IsStatusConditionTrue(live.Status.Conditions, "Stalled") || live.Status.Rounds["a"] != 2 || live.Status.Rounds["b"] != 1 {
		t.Errorf("the status is %+v", live.Status)
	}
}

// A condition list with a schema: the API server accepts every condition that Set creates.
func TestServerAcceptsConditionsOfSet(t *testing.T) {
	e := newEnv(t)
	// The conditions of a Service are validated as every metav1.Condition.
	service, err := client.Create(t.Context(), e.Client, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: "web"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	after := service.DeepCopy()
	for i, c := range []metav1.Condition{
		{},
		{Reason: "no such thing: 404", Message: "\xff\xfe", ObservedGeneration: -1},
		{Reason: "-:,", Message: strings.Repeat("ü", 40000), Status: metav1.ConditionTrue},
		{Reason: strings.Repeat("long ", 1000)},
	} {
		c.Type = fmt.Sprint("shop.example.com/C", i)
		status.Set(&after.Status.Conditions, c)
	}
	if changed, err := status.Commit(t.Context(), e.Client, service, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
}

func TestCommitToMissingObject(t *testing.T) {
	e := newEnv(t)
	change := map[string]func(*Shop){
		"fields":     func(s *Shop) { s.Status.ObservedGeneration = 1 },
		"conditions": func(s *Shop) { status.SetReady(&s.Status.Conditions, 1, "Open", "") },
	}
	// The objects have an existing status, the same for each object of a name.
	begin := func(name string) *Shop {
		e.create(name)
		before := e.live(name)
		after := before.copy()
		after.Status.Conditions = []metav1.Condition{status.False("Ready", 1, "Closed", "")}
		after.Status.ObservedGeneration = 5
		if _, err := status.Commit(t.Context(), e.Client, before, after); err != nil {
			t.Fatal(err)
		}
		return e.live(name)
	}
	for name, change := range change {
		before := begin("books-" + name)
		after := before.copy()
		change(after)
		if err := client.Delete(t.Context(), e.Client, before); err != nil {
			t.Fatal(err)
		}
		if changed, err := status.Commit(t.Context(), e.Client, before, after); changed || err != nil {
			t.Errorf("gone, %s: changed is %v, the error %v", name, changed, err)
		}
		begin(before.Name)
		if changed, err := status.Commit(t.Context(), e.Client, before, after); changed || err != nil {
			t.Errorf("replaced, %s: changed is %v, the error %v", name, changed, err)
		}
		if live := e.live(before.Name); live.Status.ObservedGeneration != 5 || !meta.IsStatusConditionFalse(live.Status.Conditions, "Ready") {
			t.Errorf("%s: another object's status was written: %+v", name, live.Status)
		}
	}
}

func TestCommitWithoutSubresource(t *testing.T) {
	e := newEnv(t)
	e.install("Stall", false, "Namespaced")
	for kind, obj := range map[string]*unstructured.Unstructured{
		"Stall": e.object("Stall", "fish"), "ConfigMap": func() *unstructured.Unstructured {
			c := e.object("", "fish")
			c.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			return c
		}(),
	} {
		before, err := client.Create(t.Context(), e.Client, obj)
		if err != nil {
			t.Fatal(err)
		}
		after := before.DeepCopy()
		after.Object["status"] = map[string]any{"open": true}
		_, err = status.Commit(t.Context(), e.Client, before, after)
		if !errors.Is(err, kube.ErrNotServed) || !strings.Contains(err.Error(), kind+" "+e.Namespace+"/fish") {
			t.Errorf("the error is %v, want one that names %s", err, kind)
		}
	}
}

func TestCommitOfClusterScopedKind(t *testing.T) {
	e := newEnv(t)
	e.install("Town", true, "Cluster")
	town := e.object("Town", e.Namespace)
	town.SetNamespace("")
	before, err := client.Create(t.Context(), e.Client, town)
	if err != nil {
		t.Fatal(err)
	}
	after := before.DeepCopy()
	if err := status.Edit(after, func(c *[]metav1.Condition) { status.SetReady(c, 1, "Open", "") }); err != nil {
		t.Fatal(err)
	}
	if changed, err := status.Commit(t.Context(), e.Client, before, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
}
