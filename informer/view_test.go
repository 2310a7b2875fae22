package informer_test

import (
	"context"
	"fmt"
	"iter"
	"slices"
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
	"github.com/evenkeel-go/evenkeel/internal/fakeapi"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/store"
	"github.com/evenkeel-go/evenkeel/wire"
)

// ofKind is a Retriever that tells the kind of its objects.
type ofKind[T kube.Object] struct {
	informer.Retriever[T]
	kind schema.GroupVersionKind
}

func (r ofKind[T]) Describe() informer.Description[T] {
	d := r.Retriever.Describe()
	d.GroupVersionKind = r.kind
	return d
}

var configMapKind = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// startWith runs an informer with a config whose Retriever and Name default as in start.
func startWith(t *testing.T, server *fakeapi.Server[configMap], config informer.Config[configMap]) fixture {
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
	f.stop = run(t, inf)
	synctest.Wait()
	return f
}

func TestAsShowsOneInformerThroughOtherTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		a := object("a", "1")
		a.Labels = map[string]string{"app": "web"}
		server.Put(a)
		f := start(t, server, ofKind[configMap]{server, configMapKind})
		defer f.stop()

		metadata, err := informer.As[*metav1.PartialObjectMetadata](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		m, found, err := metadata.Get(key("a"))
		if err != nil || !found || m.Labels["app"] != "web" || m.GroupVersionKind() != configMapKind {
			t.Errorf("metadata of a: %+v, found %v, %v", m, found, err)
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
		if value != "1" || u.GroupVersionKind() != configMapKind {
			t.Errorf("a as unstructured is %v", u.Object)
		}
		same, err := informer.As[configMap](f.informer)
		if err != nil {
			t.Fatal(err)
		}
		if obj, _, err := same.Get(key("a")); err != nil || obj.Data["value"] != "1" {
			t.Errorf("a through the same type: %v, %v", obj, err)
		}

		// They share everything: subscribers, the sync, and the one watch.
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
		server := fakeapi.New[*unstructured.Unstructured](func() runtime.Object { return &unstructured.UnstructuredList{} }, true)
		server.Put(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": "ns", "name": "a"},
			"data":     map[string]any{"value": "1"},
		}})
		inf, err := informer.New(informer.Config[*unstructured.Unstructured]{
			Retriever: ofKind[*unstructured.Unstructured]{server, configMapKind},
		})
		if err != nil {
			t.Fatal(err)
		}
		typed, err := informer.As[configMap](inf)
		if err != nil {
			t.Fatal(err)
		}
		defer run(t, typed)()
		synctest.Wait()
		if obj, found, err := typed.Get(key("a")); err != nil || !found || obj.Data["value"] != "1" {
			t.Errorf("a as a ConfigMap: %v, found %v, %v", obj, found, err)
		}
		// A view of the view, and back.
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

func TestAsRefusesWhatCannotBeRead(t *testing.T) {
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

// names returns the sorted names of what is listed.
func names(t *testing.T, objects iter.Seq2[configMap, error]) []string {
	t.Helper()
	var all []string
	for obj, err := range objects {
		if err != nil {
			t.Error(err)
			continue
		}
		all = append(all, obj.Name)
	}
	slices.Sort(all)
	return all
}

// zoo fills a server with objects that queries tell apart.
func zoo(server *fakeapi.Server[configMap]) {
	for i := range 12 {
		obj := object(fmt.Sprintf("m%02d", i), fmt.Sprint(i%3))
		obj.Namespace = fmt.Sprintf("ns%d", i%2)
		obj.Labels = map[string]string{"app": fmt.Sprintf("app%d", i%4)}
		if i%6 == 0 {
			obj.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "X", Name: "owner", UID: "owner-uid"}}
		}
		server.Put(obj)
	}
}

func byValue() []informer.Index[configMap] {
	return []informer.Index[configMap]{{Name: "value", Values: func(m configMap) []string { return []string{m.Data["value"]} }}}
}

func TestQueriesSelectAndCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		zoo(server)
		f := startWith(t, server, informer.Config[configMap]{Indexes: byValue()})
		defer f.stop()
		selector := func(text string) labels.Selector {
			s, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		snapshot := f.informer.Snapshot()
		for name, test := range map[string]struct {
			query store.Query
			want  []string
		}{
			"all":             {store.Query{}, []string{"m00", "m01", "m02", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11"}},
			"namespace":       {store.Query{Namespace: "ns1"}, []string{"m01", "m03", "m05", "m07", "m09", "m11"}},
			"label":           {store.Query{Labels: selector("app=app3")}, []string{"m03", "m07", "m11"}},
			"labels, negated": {store.Query{Labels: selector("app!=app3,app!=app1")}, []string{"m00", "m02", "m04", "m06", "m08", "m10"}},
			"owner":           {store.Query{OwnerUID: "owner-uid"}, []string{"m00", "m06"}},
			"user index":      {store.Query{Index: "value", Value: "2"}, []string{"m02", "m05", "m08", "m11"}},
			"several":         {store.Query{Namespace: "ns1", Labels: selector("app=app3"), Index: "value", Value: "2"}, []string{"m11"}},
			"none":            {store.Query{Namespace: "elsewhere"}, nil},
		} {
			if diff := cmp.Diff(test.want, names(t, f.informer.List(test.query))); diff != "" {
				t.Errorf("%s: List (-want +got):\n%s", name, diff)
			}
			if diff := cmp.Diff(test.want, names(t, snapshot.List(test.query))); diff != "" {
				t.Errorf("%s: Snapshot.List (-want +got):\n%s", name, diff)
			}
			n, err := f.informer.Count(test.query)
			m, err2 := snapshot.Count(test.query)
			if n != len(test.want) || m != n || err != nil || err2 != nil {
				t.Errorf("%s: Count %d, %v; of the snapshot %d, %v; want %d", name, n, err, m, err2, len(test.want))
			}
		}

		// What changes moves between the values of an index.
		moved := object("m00", "2")
		moved.Namespace = "ns0"
		server.Put(moved)
		synctest.Wait()
		if n, err := f.informer.Count(store.Query{Index: "value", Value: "2"}); n != 5 || err != nil {
			t.Errorf("after one came to the value: %d, %v", n, err)
		}
		if n, err := f.informer.Count(store.Query{OwnerUID: "owner-uid"}); n != 1 || err != nil {
			t.Errorf("after one lost its owner: %d, %v", n, err)
		}
	})
}

func TestUnknownIndexIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		zoo(server)
		f := start(t, server, nil)
		defer f.stop()
		query := store.Query{Index: "colour", Value: "red"}
		snapshot := f.informer.Snapshot()
		_, countErr := f.informer.Count(query)
		_, snapshotErr := snapshot.Count(query)
		errs := map[string]error{"Count": countErr, "Snapshot.Count": snapshotErr}
		for name, list := range map[string]iter.Seq2[configMap, error]{"List": f.informer.List(query), "Snapshot.List": snapshot.List(query)} {
			n := 0
			for obj, err := range list {
				n++
				errs[name] = err
				if obj != nil {
					t.Errorf("%s yields %v", name, obj)
				}
			}
			if n != 1 {
				t.Errorf("%s yields %d times, want just the error", name, n)
			}
		}
		for name, err := range errs {
			if err == nil || !strings.Contains(err.Error(), "colour") {
				t.Errorf("%s: %v; want the index named", name, err)
			}
		}
	})
}

func TestIndexesAreChecked(t *testing.T) {
	_, err := informer.New(informer.Config[configMap]{
		Name: "x", Retriever: newServer(true), Cut: []string{"no.such.field"},
		Indexes: []informer.Index[configMap]{{Name: "nameless"}, {Values: byValue()[0].Values}},
	})
	for _, want := range []string{`Indexes[0] ("nameless")`, `Indexes[1] ("")`, "Cut", "no"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	_, err = informer.New(informer.Config[configMap]{Name: "x", Retriever: newServer(true), Indexes: append(byValue(), byValue()...)})
	if err == nil || !strings.Contains(err.Error(), "value") {
		t.Errorf("two indexes of one name: %v", err)
	}
}

func TestSnapshotDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		server.Put(object("a", "1"))
		server.Put(object("b", "1"))
		f := start(t, server, nil)
		defer f.stop()
		snapshot := f.informer.Snapshot()
		server.Put(object("a", "2"))
		server.Delete(key("b"))
		server.Put(object("c", "1"))
		synctest.Wait()
		if got := names(t, snapshot.List(store.Query{})); !slices.Equal(got, []string{"a", "b"}) || snapshot.Len() != 2 {
			t.Errorf("the snapshot has %v", got)
		}
		if n, err := snapshot.Count(store.Query{Namespace: "ns"}); n != 2 || err != nil {
			t.Errorf("it counts %d, %v", n, err)
		}
		obj, found, err := snapshot.Get(key("a"))
		if err != nil || !found || obj.Data["value"] != "1" {
			t.Errorf("a in it is %v, found %v, %v", obj, found, err)
		}
		obj.Data["value"] = "mine"
		if again, _, _ := snapshot.Get(key("a")); again.Data["value"] != "1" {
			t.Error("a reader changed the snapshot")
		}
		if _, found, err := snapshot.Get(key("c")); found || err != nil {
			t.Errorf("c, which came later, is in it: %v", err)
		}
		if got := names(t, f.informer.All()); !slices.Equal(got, []string{"a", "c"}) {
			t.Errorf("the informer has %v", got)
		}
	})
}

func TestListMayBeLeftAndReadsMayNest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer(true)
		zoo(server)
		f := start(t, server, nil)
		defer f.stop()
		n := 0
		for obj, err := range f.informer.All() {
			if err != nil {
				t.Fatal(err)
			}
			n++
			// Nothing is locked: events are stored, and others read.
			server.Put(obj)
			synctest.Wait()
			if got := f.informer.Len(); got != 12 {
				t.Errorf("Len within the loop is %d", got)
			}
			if n == 3 {
				break
			}
		}
		if before := f.informer.Health().Decoded; before != 3 {
			t.Errorf("%d objects were decoded for a list that was left after 3", before)
		}
	})
}

func TestListedSharesEveryObjectOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := newServer(true), newServer(true)
		zoo(left)
		right.Put(object("r", "1"))
		f := start(t, nil, informer.Join[configMap](left, right))
		defer f.stop()
		seen := map[kube.Key]int{}
		for share := range 5 {
			for c := range f.informer.Listed(share, 5) {
				if o, err := c.New(); c.Type != informer.Listed || err != nil || o.Key != c.Key {
					t.Errorf("%s is %s as %v, %v", c.Key, c.Type, o, err)
				}
				seen[c.Key]++
			}
		}
		for k, n := range seen {
			if n != 1 {
				t.Errorf("%s is in %d shares", k, n)
			}
		}
		if len(seen) != 13 {
			t.Errorf("%d keys in all, want 13", len(seen))
		}
		for range f.informer.Listed(0, 1) {
			break
		}
	})
}

func TestManagedFieldsAndCutsAreNotKept(t *testing.T) {
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	for name, test := range map[string]struct {
		config                       informer.Config[configMap]
		managed, applied, binaryData bool
	}{
		"by default": {informer.Config[configMap]{}, false, true, true},
		"kept":       {informer.Config[configMap]{KeepManagedFields: true}, true, true, true},
		"cut":        {informer.Config[configMap]{Cut: []string{"binaryData", wire.LastApplied}}, false, false, false},
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
				defer f.stop()
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
		defer f.stop()
		empty := f.informer.Health()
		if empty.ResourceVersion != "100" || empty.Objects != 0 || !empty.Synced || empty.Optional || empty.Degraded {
			t.Errorf("health of an empty informer: %+v", empty)
		}
		zoo(server)
		synctest.Wait()
		h := f.informer.Health()
		if h.ResourceVersion != "112" || h.Objects != 12 || h.Bytes <= empty.Bytes || h.Decoded != 0 || h.DecodeTime != 0 {
			t.Errorf("health: %+v", h)
		}
		if h.Received != 0 {
			t.Errorf("%d bytes were received from a Retriever that hands over objects", h.Received)
		}
		names(t, f.informer.All())
		if h := f.informer.Health(); h.Decoded != 12 {
			t.Errorf("%d decoded, want 12", h.Decoded)
		}
		sizes := f.informer.Sizes()
		if sizes.Objects != 12 || sizes.Kept != h.Bytes || !strings.Contains(sizes.String(), "12 objects") {
			t.Errorf("sizes: %s", sizes)
		}
	})
}

// The parts of a joined Retriever are at different resource versions: the informer has seen
// everything up to the lowest.
func TestHealthOfJoinedPartsIsThatOfTheOneBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left, right := newServer(true), newServer(true)
		zoo(left)
		f := start(t, nil, informer.Join[configMap](left, right))
		defer f.stop()
		if h := f.informer.Health(); h.ResourceVersion != "100" || h.Objects != 12 {
			t.Errorf("resource version %q, %d objects; want 100 and 12", h.ResourceVersion, h.Objects)
		}
	})
}

// picky cannot be decoded from everything that metadata can be read from.
type picky struct {
	corev1.ConfigMap
	Number int `json:"number"`
}

func (p *picky) DeepCopyObject() runtime.Object {
	return &picky{ConfigMap: *p.DeepCopy(), Number: p.Number}
}

func TestUndecodableObjectFailsOnlyItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New[*unstructured.Unstructured](func() runtime.Object { return &unstructured.UnstructuredList{} }, true)
		put := func(name string, number any) {
			server.Put(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Picky",
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
				if !strings.Contains(err.Error(), "ns/bad") || !strings.Contains(err.Error(), c.Type.String()) {
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
		if failed != 1 || decoded != 1 {
			t.Errorf("%d changes failed and %d were decoded; want one of each", failed, decoded)
		}
		if obj, found, err := typed.Get(key("good")); err != nil || !found || obj.Number != 1 {
			t.Errorf("good: %v, found %v, %v", obj, found, err)
		}
		if _, found, err := typed.Get(key("bad")); err == nil || found || !strings.Contains(err.Error(), `"picky"`) || !strings.Contains(err.Error(), "ns/bad") {
			t.Errorf("bad: found %v, %v", found, err)
		}
		good, bad := 0, 0
		for obj, err := range typed.All() {
			if err != nil {
				bad++
			} else if obj.Number == 1 {
				good++
			}
		}
		if good != 1 || bad != 1 || typed.Len() != 2 {
			t.Errorf("All has %d good and %d bad objects, Len is %d", good, bad, typed.Len())
		}
		put("bad", int64(1)) // mended; the state before cannot be read all the same
		synctest.Wait()
		if _, found, err := typed.Get(key("bad")); err != nil || !found {
			t.Errorf("mended: found %v, %v", found, err)
		}
	})
}
