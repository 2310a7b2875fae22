package main

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// BenchmarkQueue measures controller-runtime's priority queue as the benchmark of the same name
// in the library's workqueue package measures the library's: names and loads are the same. It is
// here because this module has the versions that controller-runtime was released with.
//
// The heap has a floor, as in a process with a cache of objects: in an empty one the garbage
// collector would run a hundred times as often as it does there.
func BenchmarkQueue(b *testing.B) {
	floor := make([]byte, 64<<20)
	defer runtime.KeepAlive(floor)
	newQueue := func() priorityqueue.PriorityQueue[reconcile.Request] {
		return priorityqueue.New[reconcile.Request]("benchmark")
	}
	b.Run("alternating/controller-runtime", func(b *testing.B) {
		q, keys := newQueue(), newKeys()
		defer q.ShutDown()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			q.AddWithOpts(priorityqueue.AddOpts{}, keys.at(i))
			key, _, _ := q.GetWithPriority()
			q.Done(key)
		}
	})
	for _, n := range []int{1, 8} {
		b.Run(fmt.Sprintf("distinct-%d/controller-runtime", n), func(b *testing.B) {
			traffic(b, newQueue(), n, 1<<22)
		})
		b.Run(fmt.Sprintf("hot-%d/controller-runtime", n), func(b *testing.B) {
			traffic(b, newQueue(), n, 100)
		})
	}
}

// keys makes different keys without allocating.
type keys struct{ namespaces, names []string }

func newKeys() keys {
	const each = 2048
	k := keys{make([]string, each), make([]string, each)}
	for i := range each {
		k.namespaces[i], k.names[i] = "namespace-"+strconv.Itoa(i), "the-name-of-an-object-"+strconv.Itoa(i)
	}
	return k
}

func (k keys) at(i int) reconcile.Request {
	n := len(k.names)
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: k.namespaces[i/n%n], Name: k.names[i%n]}}
}

// traffic lets n producers add b.N keys, this many of them different, and n workers take them.
func traffic(b *testing.B, q priorityqueue.PriorityQueue[reconcile.Request], n, different int) {
	b.Helper()
	b.ReportAllocs()
	// A producer that is far ahead waits: otherwise the garbage collector would be measured.
	const ahead = 4096
	var producers, workers sync.WaitGroup
	var added, handed atomic.Int64
	keys := newKeys()
	b.ResetTimer()
	for range n {
		workers.Go(func() { // waited for below
			for {
				key, _, down := q.GetWithPriority()
				if down {
					return
				}
				handed.Add(1)
				q.Done(key)
			}
		})
	}
	for p := range n {
		producers.Go(func() { // waited for below
			for i := p; i < b.N; i += n {
				for different > b.N && added.Load()-handed.Load() > ahead {
					runtime.Gosched()
				}
				q.AddWithOpts(priorityqueue.AddOpts{}, keys.at(i%different))
				added.Add(1)
			}
		})
	}
	producers.Wait()
	for q.Len() > 0 {
		runtime.Gosched() // until the workers have taken what is left
	}
	q.ShutDown()
	workers.Wait()
	b.ReportMetric(float64(handed.Load())/float64(b.N), "handed/op")
}
