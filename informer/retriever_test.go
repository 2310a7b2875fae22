package informer_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// returnsNothing is a Retriever that returns nil without an error, as some test doubles do.
type returnsNothing struct {
	*kindserver.Server[configMap]
	list    runtime.Object
	noLists bool
}

func (r returnsNothing) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if r.noLists {
		return r.list, nil
	}
	return r.Server.List(ctx, opts)
}

func (r returnsNothing) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, nil //nolint:nilnil // that is what is tested
}

// client-go's fake clients accept the request for a streamed list, and never send it.
func TestPlainListWatchIsNotStreamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		maps := fake.NewClientset(object("a", "1")).CoreV1().ConfigMaps("ns")
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return maps.List(ctx, opts)
			},
			WatchFuncWithContext: maps.Watch,
		}
		began := time.Now()
		f := start(t, nil, informer.FromListerWatcher[configMap](lw))
		if err := f.informer.WaitSynced(t.Context()); err != nil || time.Since(began) > 0 {
			t.Errorf("synced after %s, error %v", time.Since(began), err)
		}
		streams := informer.FromListerWatcher[configMap](cache.ToListWatcherWithWatchListSemantics(lw, nil))
		if !streams.Describe().WatchList {
			t.Error("a ListerWatcher that states the semantics of its client is not streamed")
		}
	})
}

func TestRetrieverThatReturnsNilIsReported(t *testing.T) {
	for name, r := range map[string]informer.Retriever[configMap]{
		"no watch":          returnsNothing{Server: newServer(false)},
		"no streamed list":  returnsNothing{Server: newServer(true)},
		"no list":           returnsNothing{Server: newServer(false), noLists: true},
		"a nil typed list":  returnsNothing{Server: newServer(false), noLists: true, list: (*corev1.ConfigMapList)(nil)},
		"a list of pointer": returnsNothing{Server: newServer(false), noLists: true, list: (*metav1.Status)(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, nil, r)
				time.Sleep(time.Minute)
				if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "the retriever returned") {
					t.Errorf("Ready: %v", err)
				}
			})
		})
	}
}

// panicRecorder is a Recorder that panics, or returns a nil stop.
type panicRecorder struct{ begin, end, none bool }

func (p panicRecorder) ObserveInformer(string, func() informer.Health) (stop func()) {
	if p.begin {
		panic("begin")
	}
	if p.none {
		return nil
	}
	return func() {
		if p.end {
			panic("end")
		}
	}
}

func TestRecorderThatPanicsDoesNotEndTheInformer(t *testing.T) {
	for name, recorder := range map[string]panicRecorder{
		"at the begin": {begin: true}, "at the end": {end: true}, "without a stop": {none: true}, "not at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startWith(t, newServer(true), informer.Config[configMap]{Metrics: recorder})
				f.server.Put(object("a", "1"))
				f.expect("added a")
				f.stop()
				if logged := strings.Contains(f.logs.String(), "panicked"); logged != (recorder.begin || recorder.end) {
					t.Errorf("the panic was logged: %t\n%s", logged, f.logs)
				}
			})
		})
	}
}

// odd is a Retriever whose List or Watch is a function.
type odd struct {
	*kindserver.Server[configMap]
	list  func() runtime.Object
	watch func() watch.Interface
}

func (r odd) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if r.list != nil {
		return r.list(), nil
	}
	return r.Server.List(ctx, opts)
}

func (r odd) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	if r.watch != nil {
		return r.watch(), nil
	}
	return r.Server.Watch(ctx, opts)
}

func TestRetrieverThatPanicsIsReported(t *testing.T) {
	for name, r := range map[string]informer.Retriever[configMap]{
		"List":                  odd{Server: newServer(false), list: func() runtime.Object { panic("no list") }},
		"Watch":                 odd{Server: newServer(false), watch: func() watch.Interface { panic("no watch") }},
		"Watch for a streaming": odd{Server: newServer(true), list: func() runtime.Object { panic("no list") }, watch: func() watch.Interface { panic("no watch") }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, nil, r)
				time.Sleep(time.Minute)
				if err := f.informer.Ready(); err == nil || !strings.Contains(err.Error(), "of the Retriever panicked: no") {
					t.Errorf("Ready: %v", err)
				}
				if n := strings.Count(f.logs.String(), "stack="); n == 0 || n > 2 {
					t.Errorf("%d stacks were logged, want one for each method", n)
				}
			})
		})
	}
}

// An object without a name cannot be found again, and may be damaged.
func TestObjectWithoutNameIsReported(t *testing.T) {
	nameless := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1005"}, Items: []corev1.ConfigMap{{}, {}}}
	brings := func(kind watch.EventType) func() watch.Interface {
		return func() watch.Interface {
			w := watch.NewFakeWithChanSize(1, false)
			w.Action(kind, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1005"}})
			return w
		}
	}
	for name, r := range map[string]odd{
		"a list":          {list: func() runtime.Object { return nameless }},
		"a created one":   {watch: brings(watch.Added)},
		"a changed one":   {watch: brings(watch.Modified)},
		"a deleted one":   {watch: brings(watch.Deleted)},
		"a bookmark only": {watch: brings(watch.Bookmark)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r.Server = newServer(false)
				f := start(t, nil, r)
				time.Sleep(time.Minute)
				err := f.informer.Ready()
				if reported := err != nil && strings.Contains(err.Error(), "without a name"); reported == (name == "a bookmark only") {
					t.Errorf("Ready: %v", err)
				}
				if n := f.informer.Len(); n != 0 {
					t.Errorf("%d objects are kept", n)
				}
			})
		})
	}
}

// A namespace that cannot be an element of a path is an error before any request.
func TestRetrieverOfInvalidNamespaceMakesNoRequest(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for want, namespaces := range map[string][]string{`"" is among`: {""}, `"*" is among`: {"ns", kube.AllNamespaces}} {
		_, err := informer.New(informer.Config[*corev1.Pod]{
			Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{Namespaces: namespaces}),
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", namespaces, err)
		}
	}
	for _, namespace := range []string{"..", "a/b", "a\nb"} {
		retriever := informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{Namespaces: []string{namespace}})
		if _, err := retriever.List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "invalid namespace") {
			t.Errorf("%q: %v", namespace, err)
		}
	}
}
