package informer_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// library is an API server with ConfigMaps, and an informer of them.
type library struct {
	*testing.T
	server   *apitest.Server
	cluster  *kube.Cluster
	informer *informer.Informer[configMap]
}

func withLibrary(t *testing.T, config informer.Config[configMap], test func(l *library)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &library{T: t, server: apitest.New(apiserver.ConfigMaps())}
		for _, name := range []string{"a", "b", "c"} {
			l.put(name, "1")
		}
		l.cluster, l.informer = l.connect(config)
		test(l)
	})
}

// connect returns another connection with a running informer.
func (l *library) connect(config informer.Config[configMap]) (*kube.Cluster, *informer.Informer[configMap]) {
	l.Helper()
	cluster, err := kube.Connect(l.server.Config("test"))
	if err != nil {
		l.Fatal(err)
	}
	config.Retriever = informer.Retrieve[configMap](cluster)
	i, err := informer.New(config)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(joinSynced(l.T, i))
	return cluster, i
}

func (l *library) put(name, value string) {
	owner := ""
	if value < "5" {
		owner = `,"ownerReferences":[{"apiVersion":"v1","kind":"X","name":"owner","uid":"owner"}]`
	}
	l.server.Apply("configmaps", key(name), "test", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"ns",
		"name":"`+name+`","labels":{"value":"`+value+`"}`+owner+`},"data":{"value":"`+value+`"},"binaryData":{"k":"dg=="}}`)
	synctest.Wait()
}

// get reads an object, and changes the copy.
func (l *library) get(name string) (value string) {
	l.Helper()
	obj, found, err := l.informer.Get(key(name))
	if err != nil || !found {
		l.Fatalf("Get %s: %t, %v", name, found, err)
	}
	value = obj.Data["value"]
	obj.Data["value"], obj.Labels["value"] = "changed", "changed"
	return value
}

// decoded returns how many objects were decoded since the last call of it.
func (l *library) decoded(before *int64) int64 {
	now := l.informer.Health().Decoded
	defer func() { *before = now }()
	return now - *before
}

func TestObjectsThatAreReadAgainAreKeptDecoded(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		var before int64
		for n, want := range []int64{1, 1, 1, 0, 0} {
			if got := l.get("a"); got != "1" {
				l.Errorf("read %d: %q", n+1, got)
			}
			if got := l.decoded(&before); got != want {
				l.Errorf("read %d: %d objects decoded, want %d", n+1, got, want)
			}
		}
		for n, want := range []int64{2, 2, 2, 0} { // a is kept already
			for obj, err := range l.informer.List(informer.Query{Namespace: "ns"}) {
				if err != nil || obj.Data["value"] != "1" {
					l.Fatal(obj, err)
				}
				obj.Data["value"] = "changed"
			}
			if got := l.decoded(&before); got != want {
				l.Errorf("list %d: %d objects decoded, want %d", n+1, got, want)
			}
		}
		snapshot := l.informer.Snapshot()
		for n := 2; n < 4; n++ {
			l.put("a", fmt.Sprint(n))
			for range 5 {
				if got := l.get("a"); got != fmt.Sprint(n) {
					l.Errorf("after change %d: %q", n, got)
				}
			}
			if got := l.decoded(&before); got != 4 { // the former state was read lately
				l.Errorf("after change %d: %d objects decoded, want 4", n, got)
			}
		}
		if old, _, err := snapshot.Get(key("a")); err != nil || old.Data["value"] != "1" {
			l.Errorf("the snapshot has %v, %v", old, err)
		}
		if got := l.get("a"); got != "3" {
			l.Errorf("after a read of the snapshot: %q", got)
		}
	})
}

// A stopped informer uses nothing of the budget.
func TestDecodedObjectsAreEvictedWhenInformerStops(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		i, err := informer.New(informer.Config[configMap]{Retriever: informer.Retrieve[configMap](l.cluster)})
		if err != nil {
			l.Fatal(err)
		}
		stop := joinSynced(l.T, i)
		for range 3 {
			l.get("a")
			if _, _, err := i.Get(key("a")); err != nil {
				l.Fatal(err)
			}
		}
		if i.Health().DecodedBytes == 0 {
			l.Error("nothing is kept")
		}
		snapshot := i.Snapshot()
		stop()
		for range 3 {
			if _, _, err := snapshot.Get(key("a")); err != nil {
				l.Fatal(err)
			}
		}
		if h := i.Health(); h.DecodedBytes != 0 || l.informer.Health().DecodedBytes == 0 {
			l.Errorf("after its end %d bytes, the other informer %d", h.DecodedBytes, l.informer.Health().DecodedBytes)
		}
	})
}

// Combined Retrievers that overlap have different states of an object, which do not evict each other.
func TestStatesOfOverlappingRetrieversAreKeptDecoded(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		i, err := informer.New(informer.Config[configMap]{Retriever: informer.Combine(
			informer.Retrieve[configMap](l.cluster),
			informer.RetrieveSelected[configMap](l.cluster, kube.Selection{Namespaces: []string{"ns"}}),
		)})
		if err != nil {
			l.Fatal(err)
		}
		defer joinSynced(l.T, i)()
		for range 5 {
			names(l.T, i.List(informer.Query{}))
		}
		if n := i.Health().Decoded; n != 18 {
			l.Errorf("%d objects decoded, want each of six states three times", n)
		}
	})
}

// Resyncs, and handlers that run once for each change, read each state once in a while: keeping it would not pay.
func TestObjectsThatAreReadSeldomAreNotKept(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		for n := range 10 {
			l.get("a")
			time.Sleep(61 * time.Second)
			l.put("b", fmt.Sprint(n))
			for range 2 { // in a handler, for example
				l.get("b")
			}
		}
		if h := l.informer.Health(); h.Decoded != 30 || h.DecodedBytes != 0 {
			l.Errorf("%d objects decoded, %d bytes kept", h.Decoded, h.DecodedBytes)
		}
	})
}

func TestSetDecodedBudget(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		set := func(bytes int64) {
			l.Helper()
			if err := informer.SetDecodedBudget(l.cluster, bytes); err != nil {
				l.Fatal(err)
			}
		}
		read := func() int64 {
			for range 40 {
				for _, name := range []string{"a", "b", "c"} {
					l.get(name)
				}
			}
			return l.informer.Health().DecodedBytes
		}
		all := read()
		if all < 3*400 {
			l.Errorf("three objects use %d bytes", all)
		}
		// An object needs less than a sixteenth of the budget: the rest is for the other informers.
		if set(16 * all); l.informer.Health().DecodedBytes != 0 {
			l.Error("another budget did not evict all")
		}
		if got := read(); got != all {
			l.Errorf("with a sufficient budget %d bytes, want %d", got, all)
		}
		if set(all); read() != 0 {
			l.Error("objects above a sixteenth of the budget were kept")
		}
		if set(0); read() != 0 {
			l.Error("objects were kept with a budget of 0")
		}
		set(1 << 20)
		if got := read(); got != all {
			l.Errorf("with the budget again: %d bytes, want %d", got, all)
		}
		for cluster, text := range map[*kube.Cluster]string{l.cluster: "negative", nil: "kube.Connect"} {
			budget := int64(-1)
			if cluster == nil {
				budget = 1
			}
			if err := informer.SetDecodedBudget(cluster, budget); err == nil || !strings.Contains(err.Error(), text) {
				l.Errorf("error %v, want %q in it", err, text)
			}
		}
	})
}

// An informer that keeps decoded objects returns what one that does not keep them returns, with any read, also with a
// budget for a part of the objects.
func TestReadsDoNotDependOnDecodedBudget(t *testing.T) {
	t.Parallel()
	index := []informer.Index[configMap]{{Name: "value", Values: func(m configMap) []string { return []string{m.Data["value"]} }}}
	for name, config := range map[string]informer.Config[configMap]{
		"default":        {},
		"managed fields": {KeepManagedFields: true},
		"applied fields": {KeepAppliedBy: "test"},
		"cut":            {Cut: []string{"metadata.labels"}},
		"transform":      {Transform: hide},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config.Indexes = index
			withLibrary(t, config, func(l *library) {
				random := rand.New(rand.NewPCG(1, uint64(len(name))))
				with := []*informer.Informer[configMap]{l.informer}
				without, reference := l.connect(config)
				small, some := l.connect(config)
				for cluster, budget := range map[*kube.Cluster]int64{without: 0, small: 32 << 10} {
					if err := informer.SetDecodedBudget(cluster, budget); err != nil {
						l.Fatal(err)
					}
				}
				with = append(with, some)
				exists := map[string]bool{}
				for range 25 {
					name := fmt.Sprint("m", random.IntN(12))
					if random.IntN(4) == 0 && exists[name] {
						exists[name] = false
						l.server.Edit("configmaps", key(name), "test", func(map[string]any) bool { return false })
						synctest.Wait()
					} else {
						exists[name] = true
						l.put(name, fmt.Sprint(random.IntN(9)))
					}
					for range 1 + random.IntN(3) {
						want := allReads(l.T, reference)
						for _, i := range with {
							if diff := cmp.Diff(want, allReads(l.T, i)); diff != "" {
								l.Fatalf("with a budget (+), without (-):\n%s", diff)
							}
						}
					}
				}
				if h := reference.Health(); h.DecodedBytes != 0 {
					l.Errorf("%d bytes with a budget of 0", h.DecodedBytes)
				}
				for n, i := range with {
					if h := i.Health(); h.DecodedBytes == 0 || n == 1 && h.DecodedBytes > 32<<10 ||
						h.Decoded > reference.Health().Decoded*9/10 {
						l.Errorf("informer %d: %d bytes, %d objects decoded of %d", n, h.DecodedBytes, h.Decoded, reference.Health().Decoded)
					}
				}
			})
		})
	}
}

// allReads reads everything in several ways, changes what it has read, and returns it as texts.
func allReads(t *testing.T, i *informer.Informer[configMap]) (all []string) {
	t.Helper()
	untyped, err := informer.As[*unstructured.Unstructured](i)
	if err != nil {
		t.Fatal(err)
	}
	metadata, err := informer.As[*metav1.PartialObjectMetadata](i)
	if err != nil {
		t.Fatal(err)
	}
	selector, err := labels.Parse("value in (1,2,3)")
	if err != nil {
		t.Fatal(err)
	}
	snapshot := i.Snapshot()
	for _, query := range []informer.Query{
		{},
		{Labels: selector},
		{OwnerUID: "owner"},
		{Index: "value", Value: "3"},
		{Namespace: "elsewhere"},
		{Labels: selector, OwnerUID: "owner", Namespace: "ns"},
	} {
		var found []string
		add := func(obj kube.Object, err error) {
			if err != nil {
				t.Fatal(err)
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, fmt.Sprintf("%v %T %v", query, obj, content))
			obj.SetLabels(map[string]string{"changed": "true"})
			obj.SetOwnerReferences(nil)
			obj.SetName("changed")
		}
		for obj, err := range i.List(query) {
			add(obj, err)
		}
		for obj, err := range snapshot.List(query) {
			add(obj, err)
		}
		for obj, err := range i.WithoutCopies().List(query) {
			if err == nil {
				obj = obj.DeepCopy()
			}
			add(obj, err)
		}
		for obj, err := range untyped.List(query) {
			add(obj, err)
		}
		for obj, err := range metadata.List(query) {
			add(obj, err)
		}
		slices.Sort(found) // lists have no order
		all = append(all, found...)
	}
	for n := range 12 {
		obj, found, err := i.Get(key(fmt.Sprint("m", n)))
		if err != nil {
			t.Fatal(err)
		}
		if found {
			all = append(all, fmt.Sprint(n, obj.Data, obj.Labels, obj.ManagedFields))
			obj.Data = map[string]string{}
		}
	}
	return all
}

// A client reads objects with the fields that its field manager has applied, also those that are kept decoded.
func TestAppliedFieldsOfDecodedObjects(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{KeepAppliedBy: "test"}, func(l *library) {
		reader := cache.Of(l.informer)
		for n := range 5 {
			obj, applied, found, err := reader.Object(key("a"))
			if err != nil || !found || obj.(configMap).Data["value"] != "1" || len(obj.GetManagedFields()) > 0 {
				l.Fatal(n, obj, found, err)
			}
			if applied == nil || applied.Manager != "test" || !strings.Contains(applied.FieldsV1.String(), "f:value") {
				l.Errorf("read %d: applied %v", n, applied)
			}
			obj.(configMap).Data["value"] = "changed"
		}
		if h := l.informer.Health(); h.Decoded != 3 {
			l.Errorf("%d objects decoded, want 3", h.Decoded)
		}
	})
}

// The types of these tests differ in the methods that their authors have written.
type (
	shallow    struct{ corev1.ConfigMap }
	stubborn   struct{ corev1.ConfigMap }
	relabelled struct{ corev1.ConfigMap }
	lossy      struct {
		corev1.ConfigMap
		Binary map[string][]byte `json:"binaryData"`
	}
	fickle struct {
		corev1.ConfigMap
		copies *int
	}
	cyclic struct {
		corev1.ConfigMap
		self *cyclic
	}
	content  struct{ corev1.ConfigMap }
	promoted struct{ content }
)

// The fields of content are decoded, although its name is not exported.
func (e *promoted) DeepCopyObject() runtime.Object { copied := *e; return &copied }

func (s *shallow) DeepCopyObject() runtime.Object { copied := *s; return &copied }

// A field was added, and the method was not generated again.
func (s *lossy) DeepCopyObject() runtime.Object { return &lossy{ConfigMap: *s.ConfigMap.DeepCopy()} }

func (s *stubborn) DeepCopyObject() runtime.Object {
	switch s.Data["value"] {
	case "1":
		return s
	case "2":
		return nil
	case "3":
		return &corev1.Secret{}
	}
	panic("no copies")
}

func (f *fickle) DeepCopyObject() runtime.Object {
	if f.copies != nil {
		if *f.copies++; *f.copies > 1 {
			panic("no more copies")
		}
	}
	return &fickle{*f.ConfigMap.DeepCopy(), new(int)}
}

func (c *cyclic) DeepCopyObject() runtime.Object {
	copied := &cyclic{ConfigMap: *c.ConfigMap.DeepCopy()}
	copied.self = copied
	return copied
}

func (r *relabelled) DeepCopyObject() runtime.Object { return &relabelled{*r.ConfigMap.DeepCopy()} }

func (r *relabelled) GetLabels() map[string]string { return nil }

// oddType reads objects as T again and again.
func oddType[T kube.Object](t *testing.T, keeps bool, object T, data func(T) *corev1.ConfigMap) {
	t.Helper()
	t.Run(fmt.Sprintf("%T", object), func(t *testing.T) {
		t.Parallel()
		withLibrary(t, informer.Config[configMap]{}, func(l *library) {
			l.put("b", "2")
			l.put("c", "3")
			l.put("d", "4")
			cluster, err := kube.Connect(l.server.Config("test"), func(s *runtime.Scheme) error {
				s.AddKnownTypeWithName(corev1.SchemeGroupVersion.WithKind("ConfigMap"), object)
				return nil
			})
			if err != nil {
				l.Fatal(err)
			}
			var logs testlog.Buffer
			cluster.SetLogger(logs.Logger(nil))
			i, err := informer.New(informer.Config[T]{Retriever: informer.Retrieve[T](cluster)})
			if err != nil {
				l.Fatal(err)
			}
			defer joinSynced(l.T, i)()
			selector := labels.SelectorFromSet(labels.Set{"value": "1"})
			for range 6 {
				found := 0
				for obj, err := range i.List(informer.Query{Labels: selector}) {
					if found++; err != nil || data(obj).Data["value"] != "1" {
						l.Fatal(obj, err)
					}
				}
				if found != 1 {
					l.Errorf("%d objects with a label", found)
				}
				for n, name := range []string{"a", "b", "c", "d"} {
					obj, found, err := i.Get(key(name))
					if err != nil || !found || data(obj).Data["value"] != fmt.Sprint(n+1) {
						l.Fatal(name, obj, found, err)
					}
					if odd, ok := any(obj).(*lossy); ok && string(odd.Binary["k"]) != "v" {
						l.Fatal("a field is missing")
					}
					data(obj).Data["value"] = "changed"
				}
			}
			kept := i.Health().DecodedBytes > 0
			if warned := strings.Count(logs.String(), "DeepCopyObject returns no complete copy"); kept != keeps || warned > 0 == keeps || warned > 1 {
				l.Errorf("kept: %t, warnings: %d", kept, warned)
			}
		})
	})
}

// Objects whose copies are not complete are decoded for each reader, of which the log has one line.
func TestOddTypesAreReadCorrectly(t *testing.T) {
	t.Parallel()
	oddType(t, false, &shallow{}, func(o *shallow) *corev1.ConfigMap { return &o.ConfigMap })
	oddType(t, false, &stubborn{}, func(o *stubborn) *corev1.ConfigMap { return &o.ConfigMap })
	oddType(t, false, &lossy{}, func(o *lossy) *corev1.ConfigMap { return &o.ConfigMap })
	oddType(t, false, &promoted{}, func(o *promoted) *corev1.ConfigMap { return &o.ConfigMap })
	oddType(t, true, &fickle{}, func(o *fickle) *corev1.ConfigMap { return &o.ConfigMap })
	oddType(t, true, &cyclic{}, func(o *cyclic) *corev1.ConfigMap { return &o.ConfigMap })
	oddType(t, true, &relabelled{}, func(o *relabelled) *corev1.ConfigMap { return &o.ConfigMap })
}

// A view with another decoder has objects of its own.
func TestViewsWithDecodersAreKeptApart(t *testing.T) {
	t.Parallel()
	withLibrary(t, informer.Config[configMap]{}, func(l *library) {
		config := l.server.Config("test")
		config.ContentType = runtime.ContentTypeJSON
		cluster, err := kube.Connect(config)
		if err != nil {
			l.Fatal(err)
		}
		i, err := informer.New(informer.Config[*unstructured.Unstructured]{
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: corev1.SchemeGroupVersion.WithKind("ConfigMap")}),
		})
		if err != nil {
			l.Fatal(err)
		}
		defer joinSynced(l.T, i)()
		for _, model := range []kube.Object{&corev1.ConfigMap{}, &unstructured.Unstructured{}, &corev1.ConfigMap{}} {
			view := cache.Of(i).As(wire.NewDecoderInto(i.Kind(), model)).(*informer.Informer[kube.Object])
			for range 3 {
				if obj, _, err := view.Get(key("a")); err != nil || reflect.TypeOf(obj) != reflect.TypeOf(model) {
					l.Errorf("a view of %T returned %T, %v", model, obj, err)
				}
			}
		}
	})
}
