package poll_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

// BenchmarkPollUnchanged measures a poll of many unchanged items with one key each, and the memory that is used for an
// item.
func BenchmarkPollUnchanged(b *testing.B) {
	const items = 100_000
	list := func() (all []poll.Item) {
		for i := range items {
			all = append(all, item(fmt.Sprintf("machine-%06d.example.com", i), "1", kube.Key{Namespace: "machines", Name: fmt.Sprintf("m%06d", i)}))
		}
		return all
	}
	heap := func() uint64 {
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return memory.HeapAlloc
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	all, polls := list(), 0
	var before, kept uint64
	s := poll.New(poll.Config{
		Name: "machines", Interval: time.Nanosecond,
		Poller: poll.List(func(context.Context) ([]poll.Item, error) {
			switch polls++; {
			case polls == 1:
				before = heap()
			case polls == 2:
				kept = heap() - before
				b.ResetTimer()
			case polls > b.N+1:
				b.StopTimer()
				cancel()
			}
			return all, nil
		}),
	})
	b.ReportAllocs()
	if err := run(ctx, s, func(kube.Key, controller.Trigger) {}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(kept)/items, "kept-B/item")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/items, "ns/item")
}
