package informer_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/fakeapi"
	"github.com/evenkeel-go/evenkeel/kube"
)

// appliedEntries returns managedFields in which each manager has applied a field of its name.
func appliedEntries(managers ...string) (entries []metav1.ManagedFieldsEntry) {
	for _, manager := range managers {
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(fmt.Sprintf(`{"f:data":{"f:%s":{}}}`, manager)),
		})
	}
	return entries
}

// shownApplied returns the manager of the entry that Untyped().Object returns with an object, and the managers of the
// entries in the object itself.
func shownApplied[T kube.Object](t *testing.T, i *informer.Informer[T], name string) string {
	t.Helper()
	obj, entry, found, err := i.Untyped().Object(key(name))
	if err != nil || !found {
		t.Fatalf("%s as a %T: found %t, %v", name, obj, found, err)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && strings.Contains(fmt.Sprint(u.Object), "applied") {
		t.Errorf("%s as a %T shows the entry: %v", name, obj, u.Object)
	}
	managers := ""
	if entry != nil {
		managers = entry.Manager
		if want := appliedEntries(entry.Manager)[0].FieldsV1.GetRawString(); entry.FieldsV1 == nil || entry.FieldsV1.GetRawString() != want {
			t.Errorf("%s as a %T: the entry's fields are %v, want %s", name, obj, entry.FieldsV1, want)
		}
	}
	for _, inside := range obj.GetManagedFields() {
		managers += "+" + inside.Manager
	}
	return managers
}

// viewApplied checks that shownApplied is the same through all types of views, and returns it.
func viewApplied[T kube.Object](t *testing.T, i *informer.Informer[T], name string) string {
	t.Helper()
	all := []string{shownApplied(t, i, name)}
	if v, err := informer.As[*unstructured.Unstructured](i); err == nil {
		all = append(all, shownApplied(t, v, name))
	}
	if v, err := informer.As[*corev1.ConfigMap](i); err == nil {
		all = append(all, shownApplied(t, v, name))
	}
	if v, err := informer.As[*metav1.PartialObjectMetadata](i); err == nil {
		all = append(all, shownApplied(t, v, name))
	}
	for _, shown := range all {
		if shown != all[0] {
			t.Errorf("%s is not the same through all types: %q", name, all)
		}
	}
	return all[0]
}

func TestAppliedFieldsThroughViewsAndJoinedAndReplacedRetrievers(t *testing.T) {
	t.Run("protobuf", func(t *testing.T) {
		checkApplied(t, func() runtime.Object { return &corev1.ConfigMapList{} }, func(name, value string) *corev1.ConfigMap { return object(name, value) })
	})
	t.Run("JSON", func(t *testing.T) {
		kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMapList"}
		list := func() runtime.Object {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(kind)
			return l
		}
		checkApplied(t, list, func(name, value string) *unstructured.Unstructured {
			u := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"value": value}}}
			u.SetGroupVersionKind(configMapKind())
			u.SetNamespace("ns")
			u.SetName(name)
			return u
		})
	})
	t.Run("metadata", func(t *testing.T) {
		checkApplied(t, func() runtime.Object { return &metav1.PartialObjectMetadataList{} }, func(name, _ string) *metav1.PartialObjectMetadata {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		})
	})
}

func checkApplied[T kube.Object](t *testing.T, list func() runtime.Object, object func(name, value string) T) {
	t.Helper()
	for _, keep := range []bool{false, true} {
		for _, watchList := range []bool{false, true} {
			t.Run(fmt.Sprintf("managedFields kept: %t, watchList: %t", keep, watchList), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := func(names map[string][]string) *fakeapi.Server[T] {
						s := fakeapi.New[T](list, watchList)
						for name, managers := range names {
							obj := object(name, "1")
							obj.SetManagedFields(appliedEntries(managers...))
							s.Put(obj)
						}
						return s
					}
					retriever := func(s *fakeapi.Server[T]) informer.Retriever[T] { return ofKind[T]{s, configMapKind()} }
					mine, others := server(map[string][]string{"mine": {"other", "me"}}), server(map[string][]string{"others": {"other"}})
					both := server(map[string][]string{"both": {"me", "other"}, "nobody": nil})
					i, err := informer.New(informer.Config[T]{
						Name: "test", Retriever: informer.Combine(retriever(mine), retriever(others)),
						KeepAppliedBy: "me", KeepManagedFields: keep, Logger: (&logBuffer{}).logger(),
					})
					if err != nil {
						t.Fatal(err)
					}
					defer i.Join(t.Context())()
					if err := i.WaitSynced(t.Context()); err != nil {
						t.Fatal(err)
					}
					expect := func(name, cut, kept string) {
						t.Helper()
						synctest.Wait()
						want := cut
						if keep {
							want = kept
						}
						if got := viewApplied(t, i, name); got != want {
							t.Errorf("%s shows %q, want %q", name, got, want)
						}
					}
					expect("mine", "me", "+other+me")
					expect("others", "", "+other")
					view, err := informer.As[T](i) // a view of the same type may set it
					if err != nil {
						t.Fatal(err)
					}
					if err := view.SetRetriever(t.Context(), informer.Combine(retriever(others), retriever(both))); err != nil {
						t.Fatal(err)
					}
					expect("others", "", "+other")
					expect("both", "me", "+me+other")
					expect("nobody", "", "")
					// An object of a watch is kept in the same way as an object of a list.
					changed := object("others", "2")
					changed.SetManagedFields(appliedEntries("other", "me"))
					others.Put(changed)
					expect("others", "me", "+other+me")
					changed = object("both", "2")
					changed.SetManagedFields(appliedEntries("other"))
					both.Put(changed)
					expect("both", "", "+other")
				})
			})
		}
	}
}
