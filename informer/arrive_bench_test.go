package informer

import (
	"log/slog"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	modulecache "github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// BenchmarkArrived measures an update from its arrival to the end of its announcement, with a subscriber that does
// nothing.
func BenchmarkArrived(b *testing.B) {
	inf, err := New(Config[*corev1.Pod]{Retriever: FromListerWatcher[*corev1.Pod](&cache.ListWatch{}), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer modulecache.Of(inf).Subscribe(func(Change) {})()
	p := inf.core.parts[0]
	var pods []*wire.Object
	for i := range 2000 {
		o, err := wire.FromObject(benchPod(i), nil)
		if err != nil {
			b.Fatal(err)
		}
		p.contents.arrived(o, Added, fromWatch)
		pods = append(pods, o)
	}
	version := 10_000
	b.ReportAllocs()
	for b.Loop() {
		version++
		o := pods[version%len(pods)]
		o.ResourceVersion = strconv.Itoa(version)
		p.contents.arrived(o, Added, fromWatch)
	}
}
