package informer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
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

// shownApplied returns the manager of the entry that cache.Informer.Object returns with an object, and the managers of the
// entries in the object itself.
func shownApplied(t *testing.T, reader cache.Reader, name string) string {
	t.Helper()
	obj, entry, found, err := reader.Object(key(name))
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
	all := []string{shownApplied(t, cache.Of(i), name), shownApplied(t, cache.Of(i).Metadata(), name)}
	if v, err := informer.As[*unstructured.Unstructured](i); err == nil {
		all = append(all, shownApplied(t, cache.Of(v), name))
	}
	if v, err := informer.As[*corev1.ConfigMap](i); err == nil {
		all = append(all, shownApplied(t, cache.Of(v), name))
	}
	if v, err := informer.As[*metav1.PartialObjectMetadata](i); err == nil {
		all = append(all, shownApplied(t, cache.Of(v), name))
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
		checkApplied[*corev1.ConfigMap](t)
	})
	t.Run("JSON", func(t *testing.T) {
		checkApplied[*unstructured.Unstructured](t)
	})
	t.Run("metadata", func(t *testing.T) {
		checkApplied[*metav1.PartialObjectMetadata](t)
	})
}

func checkApplied[T kube.Object](t *testing.T) {
	t.Helper()
	for _, keep := range []bool{false, true} {
		for _, watchList := range []bool{false, true} {
			t.Run(fmt.Sprintf("managedFields kept: %t, watchList: %t", keep, watchList), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					// apply makes managers apply a field each. A manager without the field applies nothing.
					apply := func(s *kindserver.Server[T], name string, managers map[string]bool) {
						for _, manager := range slices.Sorted(maps.Keys(managers)) {
							data := ""
							if managers[manager] {
								data = fmt.Sprintf(`,"data":{%q:"1"}`, manager)
							}
							s.Apply("configmaps", key(name), manager, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}%s}`, name, data))
						}
					}
					server := func(name string, managers map[string]bool) *kindserver.Server[T] {
						s := kindserver.New[T](apiserver.ConfigMaps(), watchList)
						apply(s, name, managers)
						return s
					}
					retriever := func(s *kindserver.Server[T]) informer.Retriever[T] { return ofKind[T]{s, configMapKind()} }
					mine, otherServer := server("mine", map[string]bool{"other": true, "me": true}), server("others", map[string]bool{"other": true})
					both := server("both", map[string]bool{"me": true, "other": true})
					both.Edit("configmaps", key("nobody"), "editor", func(obj map[string]any) bool {
						obj["data"] = map[string]any{"value": "1"}
						return true
					})
					i, err := informer.New(informer.Config[T]{
						Name: "test", Retriever: informer.Combine(retriever(mine), retriever(otherServer)),
						KeepAppliedBy: "me", KeepManagedFields: keep, Logger: (&logBuffer{}).logger(),
					})
					if err != nil {
						t.Fatal(err)
					}
					defer joinSynced(t, i)()
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
					expect("mine", "me", "+me+other")
					expect("others", "", "+other")
					view, err := informer.As[T](i) // a view of the same type may set it
					if err != nil {
						t.Fatal(err)
					}
					if err := view.SetRetriever(t.Context(), informer.Combine(retriever(otherServer), retriever(both))); err != nil {
						t.Fatal(err)
					}
					expect("others", "", "+other")
					expect("both", "me", "+me+other")
					expect("nobody", "", "+editor")
					// An object of a watch is kept in the same way as an object of a list.
					apply(otherServer, "others", map[string]bool{"me": true})
					expect("others", "me", "+me+other")
					apply(both, "both", map[string]bool{"me": false})
					expect("both", "", "+other")
				})
			})
		}
	}
}
