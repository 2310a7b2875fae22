package cache

import (
	"context"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
	"github.com/evenkeel-go/evenkeel/dev/bench/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/database"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

const objects = 20_000

// kind is a kind of objects that the API server of the benchmarks serves.
type kind struct {
	name, format string
	list         func() client.ObjectList
	one          func() client.Object
}

func kinds() []kind {
	return []kind{
		{
			probe.Pods, "protobuf",
			func() client.ObjectList { return &corev1.PodList{} }, func() client.Object { return &corev1.Pod{} },
		},
		{
			probe.Databases, "json",
			func() client.ObjectList { return &database.DatabaseList{} }, func() client.Object { return &database.Database{} },
		},
	}
}

func BenchmarkCache(b *testing.B) {
	ctrl.SetLogger(logr.Discard())
	for _, kind := range kinds() {
		api, err := apiserver.New(kind.name, objects, 1, apiserver.Format(kind.format))
		if err != nil {
			b.Fatal(err)
		}
		server := httptest.NewServer(api)
		for name, newCache := range map[string]cache.NewCacheFunc{"theirs": cache.New, "ours": controllerruntime.NewCache} {
			b.Run(kind.name+"/"+name, func(b *testing.B) { measure(b, kind, server.URL, newCache) })
		}
		server.CloseClientConnections()
		server.Close()
	}
}

// heap returns the bytes in use.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// firstOf returns the first key of the objects in a cache, and its labels.
func firstOf(b *testing.B, c cache.Cache, kind kind) (client.ObjectKey, map[string]string) {
	b.Helper()
	list := kind.list()
	if err := c.List(b.Context(), list); err != nil {
		b.Fatal(err)
	}
	items, err := meta.ExtractList(list)
	if err != nil || len(items) != objects {
		b.Fatalf("%d objects, error %v", len(items), err)
	}
	keyOf := func(obj apiruntime.Object) string {
		return client.ObjectKeyFromObject(obj.(client.Object)).String()
	}
	first := slices.MinFunc(items, func(a, b apiruntime.Object) int {
		return strings.Compare(keyOf(a), keyOf(b))
	}).(client.Object)
	return client.ObjectKeyFromObject(first), first.GetLabels()
}

// measure starts a cache and measures its heap and its reads.
func measure(b *testing.B, kind kind, url string, newCache cache.NewCacheFunc) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	scheme := apiruntime.NewScheme()
	for _, add := range []func(*apiruntime.Scheme) error{corev1.AddToScheme, database.AddToScheme} {
		if err := add(scheme); err != nil {
			b.Fatal(err)
		}
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	mapper.Add(database.GroupVersion().WithKind("Database"), meta.RESTScopeNamespace)
	before := heap()
	c, err := newCache(&rest.Config{Host: url}, cache.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }() // waited for below
	if _, err := c.GetInformer(ctx, kind.one()); err != nil {
		b.Fatal(err)
	}
	if !c.WaitForCacheSync(ctx) {
		b.Fatal("the cache did not sync")
	}
	key, labels := firstOf(b, c, kind)
	kept := (heap() - before) / objects

	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Get(ctx, key, kind.one()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(kept, "heap-B/object")
	})
	lists := map[string][]client.ListOption{
		"List": nil, "ListInNamespace": {client.InNamespace(key.Namespace)}, "ListUnsafe": {client.UnsafeDisableDeepCopy},
		"ListByLabels": {client.MatchingLabels(labels)}, "ListOne": {client.Limit(1)},
	}
	for name, opts := range lists {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				list := kind.list()
				if err := c.List(ctx, list, opts...); err != nil {
					b.Fatal(err)
				}
				n = meta.LenList(list)
			}
			b.ReportMetric(float64(n), "objects")
		})
	}
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
}
