package controller_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// BenchmarkEvent measures the path of one event, from the watch's channel to the end of the handler, without the cost
// of decoding.
func BenchmarkEvent(b *testing.B) {
	for name, keys := range map[string]int{"distinct": 10000, "hot": 10} {
		b.Run(name, func(b *testing.B) { benchmarkEvent(b, keys, "") })
		b.Run(name+", StateDir", func(b *testing.B) { benchmarkEvent(b, keys, b.TempDir()) })
	}
}

func benchmarkEvent(b *testing.B, keys int, stateDir string) {
	b.Helper()
	events := make(chan watch.Event)
	stream := watch.NewProxyWatcher(events)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			if opts.SendInitialEvents != nil {
				return nil, fmt.Errorf("no streamed lists")
			}
			return stream, nil
		},
	}
	var handled atomic.Int64
	ctrl, err := controller.New(controller.Config[configMap]{
		Name: "bench", Retriever: informer.FromListerWatcher[configMap](lw), ResyncInterval: -1, Runs: controller.RunsConfig{StateDir: stateDir},
		Logger: slog.New(slog.DiscardHandler),
		Handler: handlerFunc(func(context.Context, configMap) error {
			handled.Add(1)
			return nil
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	testrun.Start(b, ctrl.Run)
	names := make([]string, keys)
	for i := range names {
		names[i] = fmt.Sprintf("object-%d", i)
	}
	b.ReportAllocs()
	version := 1
	for b.Loop() {
		version++
		events <- watch.Event{Type: watch.Modified, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: names[version%keys], UID: types.UID(names[version%keys]), ResourceVersion: strconv.Itoa(version),
		}}}
	}
	b.ReportMetric(float64(handled.Load())/float64(b.N), "handled/op")
	close(events)
}
