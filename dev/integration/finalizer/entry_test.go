package finalizer_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// edited is a call of Add or Remove, and its expected result.
type edited struct {
	obj        kube.Object
	remove     bool
	changed    bool
	err        error // wrapped
	calls      []string
	finalizers []string // of obj after the call
	current    bool     // obj has the live resourceVersion after the call
}

func (e env) edit(what string, want edited) {
	e.Helper()
	observer := newCalls()
	edit := finalizer.Add
	if want.remove {
		edit = finalizer.Remove
	}
	changed, err := edit(kube.ObserveCalls(e.Context(), observer), e.Client, want.obj, own)
	if changed != want.changed || !errors.Is(err, want.err) {
		e.Errorf("%s: changed is %v, the error %v", what, changed, err)
	}
	observer.Want(e.T, what, want.calls...)
	if got := want.obj.GetFinalizers(); !slices.Equal(got, want.finalizers) {
		e.Errorf("%s: the object has finalizers %q, want %q", what, got, want.finalizers)
	}
	if err != nil || !e.exists(want.obj.GetName()) {
		return
	}
	live := e.live(want.obj.GetName())
	if live.UID == want.obj.GetUID() && (live.ResourceVersion == want.obj.GetResourceVersion()) != want.current {
		e.Errorf("%s: the object's resourceVersion is %s, the live one's %s", what, want.obj.GetResourceVersion(), live.ResourceVersion)
	}
	if live.UID == want.obj.GetUID() && !slices.Equal(live.Finalizers, want.finalizers) {
		e.Errorf("%s: the live object has finalizers %q, want %q", what, live.Finalizers, want.finalizers)
	}
}

func TestAddAndRemove(t *testing.T) {
	e := newEnv(t)
	obj := e.create("alone")
	e.edit("add the first", edited{obj: obj, changed: true, calls: []string{"patch"}, finalizers: []string{own}, current: true})
	e.edit("add again", edited{obj: obj, finalizers: []string{own}, current: true})
	e.edit("remove the only one", edited{obj: obj, remove: true, changed: true, calls: []string{"patch"}, current: true})
	e.edit("remove again", edited{obj: obj, remove: true, current: true})
	e.edit("add to what is empty again", edited{obj: obj, changed: true, calls: []string{"patch"}, finalizers: []string{own}, current: true})

	obj = e.create("with", other)
	e.edit("add another", edited{obj: obj, changed: true, calls: []string{"patch"}, finalizers: []string{other, own}, current: true})
	e.change("with", func(c *corev1.ConfigMap) { c.Finalizers = append(c.Finalizers, third) })
	e.edit("remove from the middle of a list that has grown", edited{
		obj: obj, remove: true, changed: true, calls: []string{"patch"}, finalizers: []string{other, third}, current: true,
	})

	obj = e.create("twice", own, other, own)
	e.edit("remove two", edited{obj: obj, remove: true, changed: true, calls: []string{"patch"}, finalizers: []string{other}, current: true})
}

// With a stale object, the result is correct too. A second try is necessary only if the finalizers differ.
func TestAddAndRemoveWithStaleObject(t *testing.T) {
	e := newEnv(t)
	stale := func(name string, before, after []string) *corev1.ConfigMap {
		obj := e.create(name, before...)
		e.change(name, func(c *corev1.ConfigMap) { c.Finalizers = after })
		return obj
	}
	twice := []string{"patch", "get", "patch"}
	e.edit("another has begun the list", edited{
		obj: stale("a", nil, []string{other}), changed: true, calls: twice, finalizers: []string{other, own}, current: true,
	})
	e.edit("another was added", edited{
		obj: stale("b", []string{other}, []string{third, other}), changed: true, calls: twice, finalizers: []string{third, other, own}, current: true,
	})
	e.edit("all are gone", edited{obj: stale("c", []string{other}, nil), changed: true, calls: twice, finalizers: []string{own}, current: true})
	e.edit("the own one is there", edited{
		obj: stale("d", []string{other}, []string{own, other}), calls: twice[:2], finalizers: []string{own, other}, current: true,
	})
	e.edit("the own one has moved", edited{
		obj: stale("e", []string{other, own}, []string{own, third}), remove: true, changed: true, calls: twice, finalizers: []string{third}, current: true,
	})
	e.edit("the own one is gone", edited{
		obj: stale("f", []string{other, own}, []string{other}), remove: true, calls: twice[:2], finalizers: []string{other}, current: true,
	})
	labeled := func(name string, finalizers ...string) *corev1.ConfigMap {
		obj := e.create(name, finalizers...)
		e.change(name, func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} })
		return obj
	}
	// The resourceVersion stays old, because the content is not that of the live object.
	e.edit("labels have changed, add", edited{obj: labeled("g"), changed: true, calls: twice[:1], finalizers: []string{own}})
	e.edit("labels have changed, remove", edited{obj: labeled("h", own), remove: true, changed: true, calls: twice[:1]})
}

func TestAddAndRemoveOnMissingObject(t *testing.T) {
	e := newEnv(t)
	gone := e.create("gone")
	e.remove("gone")
	e.edit("add to what is gone", edited{obj: gone, err: client.ErrGone, calls: []string{"patch"}})
	gone.Finalizers = []string{own}
	e.edit("remove from what is gone", edited{obj: gone, remove: true, calls: []string{"patch"}, finalizers: []string{own}})

	e.create("gone", own)
	e.edit("remove from what was replaced", edited{obj: gone, remove: true, calls: []string{"patch", "get"}, finalizers: []string{own}})
	if live := e.live("gone"); !slices.Equal(live.Finalizers, []string{own}) {
		t.Errorf("another object has lost its finalizer: %q", live.Finalizers)
	}
	gone.Finalizers = nil
	e.edit("add to what was replaced", edited{obj: gone, err: client.ErrReplaced, calls: []string{"patch", "get"}})

	deleting := e.create("deleting", other)
	e.remove("deleting")
	e.edit("add, stale, to what is being deleted", edited{
		obj: deleting, err: client.ErrTerminating, calls: []string{"patch", "get"}, finalizers: []string{other},
	})
	e.edit("add to what is being deleted", edited{obj: e.live("deleting"), err: client.ErrTerminating, finalizers: []string{other}})
	last := e.create("last", own)
	e.remove("last")
	e.edit("remove the last one", edited{obj: last, remove: true, changed: true, calls: []string{"patch"}})
	if e.exists("last") {
		t.Error("it is still there")
	}
}

func TestAddValidatesArguments(t *testing.T) {
	e := newEnv(t)
	obj := e.create("a")
	observer := newCalls()
	ctx := kube.ObserveCalls(t.Context(), observer)
	for _, name := range []string{"", "cleanup", "kubernetes", "shop.example.com/", "Shop/cleanup", "shop.example.com/a/b"} {
		if _, err := finalizer.Add(ctx, e.Client, obj, name); err == nil {
			t.Errorf("the name %q was taken", name)
		}
	}
	if _, err := finalizer.Add(ctx, e.Client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}}, own); err == nil {
		t.Error("an object without uid was taken")
	}
	if _, err := finalizer.Add(ctx, e.Client, (*corev1.ConfigMap)(nil), own); err == nil {
		t.Error("nil was taken")
	}
	if _, err := finalizer.Add(ctx, nil, obj, own); err == nil {
		t.Error("no client was taken")
	}
	observer.Want(t, "mistakes")
	// If the API server rejects the request for another reason, that error is returned without a retry.
	e.change("a", func(c *corev1.ConfigMap) { c.Immutable = new(true) })
	if _, err := finalizer.Add(ctx, e.Client, obj, own, client.FieldOwner("not\x00printable")); !apierrors.IsInvalid(err) {
		t.Errorf("the error is %v", err)
	}
	if seen := observer.Take(); len(seen) > 2 {
		t.Errorf("it was tried again: %q", seen)
	}
}

func TestAddToUnstructuredAndMetadata(t *testing.T) {
	e := newEnv(t)
	typed := e.create("typed")
	key := kube.KeyOf(typed)
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	meta, err := client.Get[*metav1.PartialObjectMetadata](t.Context(), e.Client, key, client.OfKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	e.edit("metadata only", edited{obj: meta, changed: true, calls: []string{"patch"}, finalizers: []string{own}, current: true})
	u, err := client.Get[*unstructured.Unstructured](t.Context(), e.Client, key, client.OfKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	e.edit("unstructured", edited{obj: u, remove: true, changed: true, calls: []string{"patch"}, current: true})

	namespace, err := client.Get[*corev1.Namespace](t.Context(), e.Client, kube.Key{Name: e.Namespace})
	if err != nil {
		t.Fatal(err)
	}
	for _, edit := range []func(context.Context, *client.Client, kube.Object, string, ...client.WriteOption) (bool, error){finalizer.Add, finalizer.Remove} {
		if changed, err := edit(t.Context(), e.Client, namespace, own); !changed || err != nil {
			t.Errorf("cluster-scoped: changed is %v, the error %v", changed, err)
		}
	}
	dry, err := finalizer.Add(t.Context(), e.Client, typed, own, client.DryRun())
	if !dry || err != nil || len(e.live("typed").Finalizers) > 0 {
		t.Errorf("dry run: %v %v", dry, err)
	}
}
