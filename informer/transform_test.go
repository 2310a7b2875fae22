package informer_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestTransformChangesCachedObjects checks reads, views, indexes, snapshots, changes and new Retrievers, and that each
// state is transformed once and a relist announces nothing.
func TestTransformChangesCachedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, other := holding("a", "b"), holding("c")
		calls := atomic.Int64{}
		retriever := func(s *kindserver.Server[configMap]) informer.Retriever[configMap] {
			return ofKind[configMap]{s, configMapKind()}
		}
		f := startWith(t, server, informer.Config[configMap]{
			Retriever: retriever(server), Indexes: byValue(), Cut: []string{"metadata.annotations.note"},
			Transform: func(m configMap) error {
				calls.Add(1)
				m.Data["value"] = "changed " + m.Data["value"]
				m.Annotations = map[string]string{"note": "is cut", "kept": "yes"}
				return nil
			},
		})
		var states []string
		defer f.informer.Subscribe(func(c informer.Change) {
			before, after, err := informer.Decode[configMap](c)
			if err != nil {
				t.Error(err)
			}
			for _, state := range []configMap{before, after} {
				if state != nil {
					states = append(states, string(c.Type)+" "+state.Data["value"])
				}
			}
		})()
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			if diff := cmp.Diff(want, states); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			states = nil
		}
		expect("listed changed 1", "listed changed 1")
		view, err := informer.As[*unstructured.Unstructured](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		obj, _, err := view.Get(key("a"))
		if value, _, _ := unstructured.NestedString(obj.Object, "data", "value"); err != nil || value != "changed 1" {
			t.Errorf("the view has %v, %v", obj, err)
		}
		if got, _, _ := f.informer.Get(key("a")); len(got.Annotations) != 1 || got.Annotations["kept"] != "yes" {
			t.Errorf("the annotations are %v, want those that are not cut", got.Annotations)
		}
		if n, err := f.informer.Snapshot().Count(informer.Query{Index: "value", Value: "changed 1"}); n != 2 || err != nil {
			t.Errorf("the index has %d objects, %v", n, err)
		}
		server.Put(object("a", "2"))
		expect("updated changed 1", "updated changed 2")
		if n := calls.Load(); n != 3 {
			t.Errorf("%d calls for 3 states", n)
		}
		server.DropWatches()
		server.Compact()
		time.Sleep(time.Minute)
		expect()
		server.Delete(key("b"))
		expect("deleted changed 1")
		if err := f.informer.SetRetriever(t.Context(), informer.Combine(retriever(server), retriever(other))); err != nil {
			t.Fatal(err)
		}
		expect("added changed 1")
		if obj := server.Get(key("a")); obj.Data["value"] != "2" {
			t.Errorf("the Transform has changed the Retriever's object: %v", obj)
		}
	})
}

func TestTransformThatFailsHidesOnlyItsObject(t *testing.T) {
	for name, transform := range map[string]func(configMap) error{
		"broken transform": func(configMap) error { return errors.New("broken transform") },
		"panicked":         func(configMap) error { panic("broken transform") },
		"must not change":  func(m configMap) error { m.Name = "other"; return nil },
		"must not change ": func(m configMap) error { m.ResourceVersion = ""; return nil },
		"must not change  ": func(m configMap) error {
			m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := holding("a", "b", "c")
				f := startWith(t, server, informer.Config[configMap]{
					Retriever: ofKind[configMap]{server, configMapKind()},
					Transform: func(m configMap) error {
						if m.Name == "b" && m.Data["value"] == "1" {
							return transform(m)
						}
						return nil
					},
				})
				f.expect("listed a", "listed b", "listed c")
				expectHidden(t, f.informer, strings.TrimSpace(name))
				view, err := informer.As[*metav1.PartialObjectMetadata](f.informer)
				if err != nil {
					t.Fatal(err)
				}
				expectHidden(t, view, strings.TrimSpace(name))
				if logs := f.logs.String(); !strings.Contains(logs, "ns/b") {
					t.Errorf("the log does not name the object: %s", logs)
				}
				if err := f.informer.WaitSynced(t.Context()); err != nil || f.informer.Ready() != nil {
					t.Errorf("the informer is not ready: %v", err)
				}
				server.DropWatches()
				server.Compact()
				time.Sleep(time.Minute)
				f.expect() // the same failure is the same state
				server.Put(object("b", "2"))
				f.expect("updated b")
				if got := f.value("b"); got != "2" {
					t.Errorf("b is %q", got)
				}
				server.Put(object("b", "1"))
				server.Delete(key("b"))
				f.expect("updated b", "deleted b")
			})
		})
	}
}

// TestTransformMustKeepDeletionTimestamp checks an object that is being deleted: readers of the cache compute
// with the time.
func TestTransformMustKeepDeletionTimestamp(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*metav1.Time) *metav1.Time
		hidden bool
	}{
		"unchanged": {change: func(at *metav1.Time) *metav1.Time { return at }},
		"copied":    {change: func(at *metav1.Time) *metav1.Time { return at.DeepCopy() }},
		"replaced":  {change: func(at *metav1.Time) *metav1.Time { return &metav1.Time{Time: at.Add(time.Hour)} }, hidden: true},
		"changed":   {change: func(at *metav1.Time) *metav1.Time { at.Time = at.Add(time.Hour); return at }, hidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := holding("a", "c")
				deleting := object("b", "1")
				deleting.Finalizers = []string{"example.com/hold"}
				server.Put(deleting)
				server.Delete(key("b"))
				f := startWith(t, server, informer.Config[configMap]{
					Retriever: ofKind[configMap]{server, configMapKind()},
					Transform: func(m configMap) error {
						if m.DeletionTimestamp != nil {
							m.DeletionTimestamp = test.change(m.DeletionTimestamp)
						}
						return nil
					},
				})
				f.expect("listed a", "listed b", "listed c")
				if test.hidden {
					expectHidden(t, f.informer, "must not change")
				} else if obj, _, err := f.informer.Get(key("b")); err != nil || obj.DeletionTimestamp == nil {
					t.Errorf("the object is %v, %v", obj, err)
				}
			})
		})
	}
}

func expectHidden[T kube.Object](t *testing.T, i *informer.Informer[T], want string) {
	t.Helper()
	if _, found, err := i.Get(key("b")); found || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "ns/b") {
		t.Errorf("Get: %t, %v, want %q in the error", found, err, want)
	}
	whole, failed := 0, 0
	for _, err := range i.List(informer.Query{}) {
		if err != nil {
			failed++
		} else {
			whole++
		}
	}
	if whole != 2 || failed != 1 {
		t.Errorf("%d objects and %d errors, want 2 and 1", whole, failed)
	}
}

// TestClientsDoNotReadTransformedObjects also checks objects that the API server sends as JSON.
func TestClientsDoNotReadTransformedObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, _ := selected(t)
		i, err := informer.New(informer.Config[*corev1.ConfigMap]{
			Retriever: informer.Retrieve[*corev1.ConfigMap](cluster), Logger: (&logBuffer{}).logger(),
			Transform: func(m *corev1.ConfigMap) error { m.Labels["app"] = "changed"; return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer joinSynced(t, i)()
		obj, _, err := i.Get(key("kept"))
		if err != nil || obj.Labels["app"] != "changed" {
			t.Errorf("from JSON of the API server: %v, %v", obj, err)
		}
		// A client must not take the changed object for that of the API server.
		untyped := cache.Of(i)
		_, whole := untyped.NewObject()
		_, _, found, err := untyped.Object(key("kept"))
		if whole || found || err != nil || untyped.Covers("", nil) || untyped.Covers("ns", nil) {
			t.Errorf("for clients: whole %t, found %t, covered %t, %v", whole, found, untyped.Covers("", nil), err)
		}
	})
}

func TestTransformOfMetadataAndUnstructured(t *testing.T) {
	checkTransform[*metav1.PartialObjectMetadata](t)
	checkTransform[*unstructured.Unstructured](t)
	checkTransform[*corev1.ConfigMap](t)
}

func checkTransform[T kube.Object](t *testing.T) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := kindserver.New[T](apiserver.ConfigMaps(), true)
		server.Apply("configmaps", key("a"), "me", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"web"}}}`)
		i, err := informer.New(informer.Config[T]{
			Name: "test", Retriever: ofKind[T]{server, configMapKind()}, Logger: (&logBuffer{}).logger(), KeepManagedFields: true,
			Transform: func(obj T) error { obj.SetLabels(map[string]string{"app": "changed"}); return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		defer joinSynced(t, i)()
		obj, found, err := i.Get(key("a"))
		if !found || err != nil || obj.GetLabels()["app"] != "changed" || len(obj.GetManagedFields()) != 1 {
			t.Errorf("%T: %v, %t, %v", obj, obj, found, err)
		}
		if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind == "" && any(obj) != nil {
			if _, typed := any(obj).(*corev1.ConfigMap); !typed {
				t.Errorf("%T has no kind", obj)
			}
		}
	})
}

func TestTransformWithKeepAppliedByIsRejected(t *testing.T) {
	_, err := informer.New(informer.Config[configMap]{
		Retriever: newServer(true), KeepAppliedBy: "me", Transform: func(configMap) error { return nil },
	})
	if err == nil || !strings.Contains(err.Error(), "Transform") {
		t.Errorf("New: %v", err)
	}
}
