package finalizer_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

const cleanup = "shop.example.com/cleanup"

// Steps must see the live object: an outdated cache may lack the bucket that was recorded last, and that bucket would
// never be deleted.
func TestStepsReceiveLiveObject(t *testing.T) {
	t.Parallel()
	server, c := newServer()
	edit(server, func(obj map[string]any) { obj["data"] = map[string]any{"bucket": "a"} })
	stale := read[*corev1.ConfigMap](t, c)
	edit(server, func(obj map[string]any) {
		obj["data"] = map[string]any{"bucket": "b"}
		obj["metadata"].(map[string]any)["labels"] = map[string]any{"later": "yes"}
	})
	removed := ""
	f := one(t, c, func(_ context.Context, obj *corev1.ConfigMap) error {
		removed = obj.Data["bucket"]
		obj.Data["said"] = "by the step"
		return nil
	}, nil)
	if err := f.Teardown(t.Context(), stale); err != nil {
		t.Error(err)
	}
	if removed != "b" || stale.Data["said"] == "" || stale.Labels["later"] == "" || len(stale.Finalizers) > 0 {
		t.Errorf("the step saw the bucket %q; afterwards the object is %+v", removed, stale)
	}
}

// Changes of the run to an object that is not outdated stay.
func TestStepsReceiveStatusOfRun(t *testing.T) {
	t.Parallel()
	server, c := newServer()
	fresh := read[*corev1.ConfigMap](t, c)
	fresh.Data = map[string]string{"said": "before"}
	f := one(t, c, func(_ context.Context, obj *corev1.ConfigMap) error {
		if obj.Data["said"] != "before" {
			t.Errorf("the data are %v", obj.Data)
		}
		return nil
	}, nil)
	if err := f.Teardown(t.Context(), fresh); err != nil || server.Object("configmaps", books()) != nil {
		t.Errorf("the error is %v", err)
	}
}

// For an unstructured object, the steps and the last known state must share no memory.
func TestTeardownOfUnstructuredObject(t *testing.T) {
	t.Parallel()
	server, c := newServer()
	stale := read[*unstructured.Unstructured](t, c, client.OfKind(corev1.SchemeGroupVersion.WithKind("ConfigMap")))
	edit(server, func(obj map[string]any) { obj["data"] = map[string]any{"bucket": "b"} })
	errStop := errors.New("stop")
	var seen []string
	f := one(t, c, func(_ context.Context, obj *unstructured.Unstructured) error {
		bucket, _, _ := unstructured.NestedString(obj.Object, "data", "bucket")
		seen = append(seen, bucket)
		return unstructured.SetNestedField(obj.Object, "the step", "data", "said")
	}, errStop)
	if err := f.Teardown(t.Context(), stale); !errors.Is(err, errStop) || !slices.Equal(seen, []string{"b"}) {
		t.Errorf("the error is %v, the step saw %q", err, seen)
	}
	live := server.Object("configmaps", books())
	if stale.GetResourceVersion() != live.GetResourceVersion() || stale.GetAnnotations()[cleanup+"-done"] != string(live.GetUID())+":first" {
		t.Errorf("the resourceVersion is %s, live %s; the annotations are %v", stale.GetResourceVersion(), live.GetResourceVersion(), stale.GetAnnotations())
	}
}

// Another client has created the object again from a copy of an earlier one with its name, including the annotation of
// that object's teardown. Everything that was created for the new object must be cleaned up.
func TestTeardownOfCopyRunsAllSteps(t *testing.T) {
	t.Parallel()
	server, c := newServer()
	edit(server, func(obj map[string]any) {
		obj["metadata"].(map[string]any)["annotations"] = map[string]any{cleanup + "-done": "the-uid-of-another:first"}
	})
	ran := 0
	f := one(t, c, func(context.Context, *corev1.ConfigMap) error { ran++; return nil }, nil)
	obj := read[*corev1.ConfigMap](t, c)
	if report := f.Blocking(obj); report.Step != "first" || len(report.Done) > 0 {
		t.Errorf("the report is %+v", report)
	}
	if err := f.Teardown(t.Context(), obj); err != nil || ran != 1 || server.Object("configmaps", books()) != nil {
		t.Errorf("the error is %v, the first step ran %d times", err, ran)
	}
}

// one returns a Finalizer with two steps: first, and a step that returns err.
func one[T kube.Object](t *testing.T, c *client.Client, first func(context.Context, T) error, err error) *finalizer.Finalizer[T] {
	t.Helper()
	f, failed := finalizer.New(finalizer.Config[T]{Client: c, Name: cleanup, Steps: []finalizer.Step[T]{
		{Name: "first", Run: first}, {Name: "second", Run: func(context.Context, T) error { return err }},
	}})
	if failed != nil {
		t.Fatal(failed)
	}
	return f
}

func edit(server *apitest.Server, change func(obj map[string]any)) {
	server.Edit("configmaps", books(), "others", func(obj map[string]any) bool { change(obj); return true })
}

func read[T kube.Object](t *testing.T, c *client.Client, options ...client.ReadOption) T {
	t.Helper()
	obj, err := client.Get[T](t.Context(), c, books(), options...)
	if err != nil {
		t.Fatal(err)
	}
	obj.SetManagedFields(nil)
	return obj
}
