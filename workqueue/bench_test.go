package workqueue_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/evenkeel-go/evenkeel/workqueue"
)

// queue is what both queues can do.
type queue interface {
	add(key int)
	get() (key int, ok bool)
	done(key int)
	shutDown()
	len() int
}

type ours struct{ *workqueue.Queue[int] }

func (q ours) add(key int) {
	q.Add(key, workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated}})
}

func (q ours) get() (int, bool) {
	item, ok := q.Get()
	return item.Key, ok
}
func (q ours) done(key int) { q.Done(key) }
func (q ours) shutDown()    { q.ShutDown() }
func (q ours) len() int     { return q.Stats().Ready }

// theirs is the queue that controllers on client-go use: with delays and rate limits, of
// which this benchmark uses neither.
type theirs struct {
	clientgo.TypedRateLimitingInterface[int]
}

func (q theirs) add(key int) { q.Add(key) }

func (q theirs) get() (int, bool) {
	key, down := q.Get()
	return key, !down
}
func (q theirs) done(key int) { q.Done(key) }
func (q theirs) shutDown()    { q.ShutDown() }
func (q theirs) len() int     { return q.Len() }

// BenchmarkQueue measures one key's way through the queue: Add, Get and Done, among a
// thousand different keys; and then Add alone, with workers beside the producers.
func BenchmarkQueue(b *testing.B) {
	for _, of := range []struct {
		name string
		make func() queue
	}{
		{"evenkeel", func() queue { return ours{workqueue.New[int]()} }},
		{"client-go", func() queue {
			return theirs{clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[int]())}
		}},
	} {
		b.Run(of.name+"/alternating", func(b *testing.B) {
			q := of.make()
			defer q.shutDown()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.add(i % 1000)
				key, _ := q.get()
				q.done(key)
			}
		})
		for _, n := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/producers-and-workers=%d", of.name, n), func(b *testing.B) {
				b.ReportAllocs()
				traffic(b, of.make(), n)
			})
		}
	}
}

// traffic lets n producers add b.N keys and n workers take them. How many of the keys are
// handed out, and how many merge with one that waits, is for the scheduler to say, and is
// told beside the time: figures are comparable where it is alike.
func traffic(b *testing.B, q queue, n int) {
	b.Helper()
	var producers, workers sync.WaitGroup
	var handed atomic.Int64
	for range n {
		workers.Go(func() { // waited for below
			for {
				key, ok := q.get()
				if !ok {
					return
				}
				handed.Add(1)
				q.done(key)
			}
		})
	}
	for p := range n {
		producers.Go(func() { // waited for below
			for i := p; i < b.N; i += n {
				q.add(i % 1000)
			}
		})
	}
	producers.Wait()
	for q.len() > 0 {
		runtime.Gosched() // until the workers have taken what is left
	}
	q.shutDown()
	workers.Wait()
	b.ReportMetric(float64(handed.Load())/float64(b.N), "handed/op")
}
