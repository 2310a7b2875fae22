package informer_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ofKind is a Retriever that specifies the kind of its objects.
type ofKind[T kube.Object] struct {
	informer.Retriever[T]
	kind schema.GroupVersionKind
}

func (r ofKind[T]) Describe() informer.Description[T] {
	d := r.Retriever.Describe()
	d.GroupVersionKind = r.kind
	return d
}

func configMapKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}

// startWith runs an informer with config. The defaults of Retriever and Name are those of start.
func startWith(t *testing.T, server *kindserver.Server[configMap], config informer.Config[configMap]) fixture {
	t.Helper()
	if config.Retriever == nil {
		config.Retriever = server
	}
	config.Name = "test"
	logs := &logBuffer{}
	config.Logger = logs.logger()
	inf, err := informer.New(config)
	if err != nil {
		t.Fatal(err)
	}
	f := fixture{T: t, server: server, informer: inf, seen: &recorder{}, logs: logs}
	inf.Subscribe(f.seen.notify)
	f.stop = testrun.Start(t, inf.Run)
	synctest.Wait()
	return f
}

func TestAsConvertsToOtherTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		a := object("a", "1")
		a.Labels = map[string]string{"app": "web"}
		server.Put(a)
		f := start(t, server, ofKind[configMap]{server, configMapKind()})

		metadata, err := informer.As[*metav1.PartialObjectMetadata](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		m, found, err := metadata.Get(key("a"))
		if err != nil || !found || m.Labels["app"] != "web" || m.GroupVersionKind() != configMapKind() {
			t.Errorf("metadata of a: %+v, found %v, %v", m, found, err)
		}
		for _, i := range []cache.Informer{cache.Of(f.informer), cache.Of(metadata)} {
			for range 3 { // it is kept decoded by the second read, also for the view
				for obj, err := range i.Metadata().Objects("", labels.SelectorFromSet(labels.Set{"app": "web"})) {
					if only, ok := obj.(*metav1.PartialObjectMetadata); err != nil || !ok || !reflect.DeepEqual(only, m) {
						t.Errorf("only the metadata of a: %+v, %v; want %+v", obj, err, m)
					}
				}
				if again, _, err := metadata.Get(key("a")); err != nil || !reflect.DeepEqual(again, m) {
					t.Errorf("metadata of a, again: %+v, %v", again, err)
				}
			}
			if reader := i.Metadata(); reader != i.Metadata() {
				t.Error("each call makes another reader")
			}
		}
		dynamic, err := informer.As[*unstructured.Unstructured](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		u, found, err := dynamic.Get(key("a"))
		if err != nil || !found {
			t.Fatalf("a as unstructured: found %v, %v", found, err)
		}
		value, _, _ := unstructured.NestedString(u.Object, "data", "value")
		if value != "1" || u.GroupVersionKind() != configMapKind() {
			t.Errorf("a as unstructured is %v", u.Object)
		}
		same, err := informer.As[configMap](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		if obj, _, err := same.Get(key("a")); err != nil || obj.Data["value"] != "1" {
			t.Errorf("a through the same type: %v, %v", obj, err)
		}

		// The views share the subscribers, the sync, and the one watch.
		seen := &recorder{}
		unsubscribe := metadata.Subscribe(seen.notify)
		defer unsubscribe()
		leave := dynamic.Join(t.Context())
		server.Put(object("b", "1"))
		f.expect("listed a", "added b")
		if diff := cmp.Diff([]string{"listed a", "added b"}, seen.take()); diff != "" {
			t.Errorf("changes of a view (-want +got):\n%s", diff)
		}
		if metadata.Len() != 2 || metadata.WaitSynced(t.Context()) != nil || metadata.Ready() != nil || metadata.Name() != "test" {
			t.Error("a view has a state of its own")
		}
		leave()
		if _, watches, open := server.Counts(); watches != 1 || open != 1 {
			t.Errorf("%d watches, %d open; want one", watches, open)
		}
	})
}

func TestAsOfUnstructuredDecodesGoTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kindserver.New[*unstructured.Unstructured](apiserver.ConfigMaps(), true)
		server.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": "ns", "name": "a"},
			"data":     map[string]any{"value": "1"},
		}})
		inf, err := informer.New(informer.Config[*unstructured.Unstructured]{
			Retriever: ofKind[*unstructured.Unstructured]{server, configMapKind()},
		})
		if err != nil {
			t.Fatal(err)
		}
		typed, err := informer.As[configMap](inf)
		if err != nil {
			t.Fatal(err)
		}
		testrun.Start(t, typed.Run)
		synctest.Wait()
		if obj, found, err := typed.Get(key("a")); err != nil || !found || obj.Data["value"] != "1" {
			t.Errorf("a as a ConfigMap: %v, found %v, %v", obj, found, err)
		}
		// As also returns a view of a view, and the original type.
		metadata, err := informer.As[*metav1.PartialObjectMetadata](typed)
		if err != nil {
			t.Fatal(err)
		}
		if m, found, err := metadata.Get(key("a")); err != nil || !found || m.Name != "a" {
			t.Errorf("metadata of a: %v, found %v, %v", m, found, err)
		}
		dynamic, err := informer.As[*unstructured.Unstructured](typed)
		if err != nil {
			t.Fatal(err)
		}
		if u, found, err := dynamic.Get(key("a")); err != nil || !found || u.GetKind() != "ConfigMap" {
			t.Errorf("a as unstructured again: %v, found %v, %v", u, found, err)
		}
		if err := typed.SetRetriever(t.Context(), newServer(true)); err == nil || !strings.Contains(err.Error(), "Unstructured") {
			t.Errorf("the view is given a Retriever of another type than the informer's: %v", err)
		}
	})
}

func TestAsRejectsIncompatibleTypes(t *testing.T) {
	typed, err := informer.New(informer.Config[configMap]{Retriever: newServer(true)})
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := informer.As[*metav1.PartialObjectMetadata](typed)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		as   func() error
		want []string
	}{
		"one Go type as another":  {func() error { _, err := informer.As[*corev1.Secret](typed); return err }, []string{"*v1.ConfigMap", "*v1.Secret", "unstructured"}},
		"metadata as a Go type":   {func() error { _, err := informer.As[configMap](metadata); return err }, []string{"nothing but metadata"}},
		"metadata as unstructure": {func() error { _, err := informer.As[*unstructured.Unstructured](metadata); return err }, []string{"nothing but metadata"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.as()
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestManagedFieldsAndCutsAreNotKept(t *testing.T) {
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	for name, test := range map[string]struct {
		config                       informer.Config[configMap]
		managed, applied, binaryData bool
	}{
		"by default": {informer.Config[configMap]{}, false, true, true},
		"kept":       {informer.Config[configMap]{KeepManagedFields: true}, true, true, true},
		"cut":        {informer.Config[configMap]{Cut: []string{"binaryData", informer.LastApplied}}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(true)
				obj := object("a", "1")
				obj.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "test", Operation: "Update"}}
				obj.Annotations = map[string]string{lastApplied: "{}", "other": "stays"}
				obj.BinaryData = map[string][]byte{"b": {1, 2, 3}}
				server.Put(obj)
				f := startWith(t, server, test.config)
				got, found, err := f.informer.Get(key("a"))
				if err != nil || !found {
					t.Fatal(found, err)
				}
				_, applied := got.Annotations[lastApplied]
				if (got.ManagedFields != nil) != test.managed || applied != test.applied || (got.BinaryData != nil) != test.binaryData {
					t.Errorf("managed fields %v, annotations %v, binary data %v", got.ManagedFields, got.Annotations, got.BinaryData)
				}
				if got.Annotations["other"] != "stays" || got.Data["value"] != "1" {
					t.Errorf("more was cut than should be: %v", got)
				}
			})
		})
	}
}

func TestHealthFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		f := start(t, server, nil)
		empty := f.informer.Health()
		if empty.ResourceVersion != "1000" || empty.Objects != 0 || !empty.Synced || empty.Optional || empty.Degraded {
			t.Errorf("health of an empty informer: %+v", empty)
		}
		zoo(server)
		synctest.Wait()
		h := f.informer.Health()
		if h.ResourceVersion != "1012" || h.Objects != 12 || h.Bytes <= empty.Bytes || h.Decoded != 0 || h.DecodeTime != 0 {
			t.Errorf("health: %+v", h)
		}
		if h.Received != 0 {
			t.Errorf("%d bytes were received from a Retriever that hands over objects", h.Received)
		}
		names(t, f.informer.List(informer.Query{}))
		if h := f.informer.Health(); h.Decoded != 12 {
			t.Errorf("%d decoded, want 12", h.Decoded)
		}
	})
}

// The parts of a combined Retriever are at different resource versions. Health has the lowest one.
func TestHealthOfJoinedPartsHasLowestVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := newServer(true), newServer(true)
		zoo(left)
		f := start(t, nil, informer.Combine[configMap](left, right))
		if h := f.informer.Health(); h.ResourceVersion != "1000" || h.Objects != 12 {
			t.Errorf("resource version %q, %d objects; want 100 and 12", h.ResourceVersion, h.Objects)
		}
	})
}

// picky is a type for which decoding fails for some objects whose metadata can be decoded.
type picky struct {
	corev1.ConfigMap
	Number int `json:"number"`
}

func pickyKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Picky"}
}

func (p *picky) DeepCopyObject() runtime.Object {
	return &picky{ConfigMap: *p.DeepCopy(), Number: p.Number}
}

func TestUndecodableObjectFailsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kindserver.New[*unstructured.Unstructured](apiserver.Custom(pickyKind(), "pickies"), true)
		put := func(name string, number any) {
			server.Put(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "example.com/v1", "kind": "Picky",
				"metadata": map[string]any{"namespace": "ns", "name": name},
				"number":   number,
			}})
		}
		put("good", int64(1))
		put("bad", "one")
		inf, err := informer.New(informer.Config[*unstructured.Unstructured]{Name: "picky", Retriever: server})
		if err != nil {
			t.Fatal(err)
		}
		typed, err := informer.As[*picky](inf)
		if err != nil {
			t.Fatal(err)
		}
		var failed, decoded int
		typed.Subscribe(func(c informer.Change) {
			if _, _, err := informer.Decode[*picky](c); err != nil {
				failed++
				if !strings.Contains(err.Error(), "ns/bad") || !strings.Contains(err.Error(), string(c.Type)) {
					t.Errorf("the error does not say what is wrong: %v", err)
				}
				return
			}
			decoded++
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave := typed.Join(ctx)
		defer leave()
		synctest.Wait()
		if err := typed.WaitSynced(ctx); err != nil {
			t.Error(err)
		}
		if obj, _, found, err := cache.Of(typed).Metadata().Object(key("bad")); err != nil || !found || obj.GetName() != "bad" {
			t.Errorf("the metadata of bad: %v, %v", obj, err)
		}
		if failed != 1 || decoded != 1 {
			t.Errorf("%d changes failed and %d were decoded; want one of each", failed, decoded)
		}
		// A change whose state before it cannot be decoded returns an error too.
		put("bad", int64(2))
		synctest.Wait()
		if failed != 2 || decoded != 1 {
			t.Errorf("after the object was repaired, %d changes failed and %d were decoded; want 2 and 1", failed, decoded)
		}
		put("bad", "two")
		synctest.Wait()
		if obj, found, err := typed.Get(key("good")); err != nil || !found || obj.Number != 1 {
			t.Errorf("good: %v, found %v, %v", obj, found, err)
		}
		if _, found, err := typed.Get(key("bad")); err == nil || found || !strings.Contains(err.Error(), `"picky"`) || !strings.Contains(err.Error(), "ns/bad") {
			t.Errorf("bad: found %v, %v", found, err)
		}
		good, bad := 0, 0
		for obj, err := range typed.List(informer.Query{}) {
			if err != nil {
				bad++
			} else if obj.Number == 1 {
				good++
			}
		}
		if good != 1 || bad != 1 || typed.Len() != 2 {
			t.Errorf("All has %d good and %d bad objects, Len is %d", good, bad, typed.Len())
		}
		put("bad", int64(1)) // the new state is valid; the state before still cannot be decoded
		synctest.Wait()
		if _, found, err := typed.Get(key("bad")); err != nil || !found {
			t.Errorf("mended: found %v, %v", found, err)
		}
	})
}
