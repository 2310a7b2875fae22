package workqueue_test

import (
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	clientgo "k8s.io/client-go/util/workqueue"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

// queue is implemented by both queues.
type queue interface {
	add(key kube.Key)
	get() (key kube.Key, ok bool)
	done(key kube.Key)
	shutDown()
	len() int
}

// largeCause is as large as a controller's cause.
type largeCause struct {
	kind, source, uid, version, manager, detail string
	object                                      kube.Key
	_                                           [112]byte
}

func mergeLarge(known *largeCause, cause largeCause) bool {
	if known.kind != cause.kind || known.source != cause.source || known.object != cause.object || known.detail != cause.detail {
		return false
	}
	*known = cause
	return true
}

type ours struct {
	*workqueue.Queue[kube.Key, largeCause]
}

// add adds a key with a cause, as a controller does.
func (q ours) add(key kube.Key) {
	q.Add(key, workqueue.Options[largeCause]{Cause: largeCause{
		kind: "updated", source: "self", object: key,
		uid: "29e4e3c4-3a1f-4e43-a4ab-8d4b5b5f1d5a", version: "4711", manager: "kubectl-edit",
	}})
}

func (q ours) get() (kube.Key, bool) {
	item, ok := q.Get()
	return item.Key, ok
}
func (q ours) done(key kube.Key) { q.Done(key) }
func (q ours) shutDown()         { q.ShutDown() }
func (q ours) len() int          { return q.Stats().Ready }

// theirs is client-go's queue for controllers. It has delays and rate limits, which this benchmark does not use.
type theirs struct {
	clientgo.TypedRateLimitingInterface[kube.Key]
}

func (q theirs) add(key kube.Key) { q.Add(key) }

func (q theirs) get() (kube.Key, bool) {
	key, down := q.Get()
	return key, !down
}
func (q theirs) done(key kube.Key) { q.Done(key) }
func (q theirs) shutDown()         { q.ShutDown() }
func (q theirs) len() int          { return q.Len() }

// BenchmarkQueue measures Add, Get and Done: sequentially, and with concurrent producers and workers, with distinct
// keys (each is handed out once) and with a hundred keys that are added repeatedly (most Adds are merged).
//
// The heap has a minimum size, as in a process with a cache of objects: with an empty heap the garbage collector would
// run a hundred times as often.
func BenchmarkQueue(b *testing.B) {
	floor := make([]byte, 64<<20)
	defer runtime.KeepAlive(floor)
	for _, impl := range []struct {
		name string
		make func() queue
	}{
		{"evenkeel", func() queue { return ours{workqueue.New(workqueue.Config[kube.Key, largeCause]{Merge: mergeLarge})} }},
		{"evenkeel-grouped", func() queue {
			return ours{workqueue.New(workqueue.Config[kube.Key, largeCause]{Merge: mergeLarge, Group: func(k kube.Key) string { return k.Namespace }})}
		}},
		{"client-go", func() queue {
			return theirs{clientgo.NewTypedRateLimitingQueue(clientgo.DefaultTypedControllerRateLimiter[kube.Key]())}
		}},
	} {
		b.Run("alternating/"+impl.name, func(b *testing.B) {
			q, keys := impl.make(), newKeys()
			defer q.shutDown()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q.add(keys.at(i))
				key, _ := q.get()
				q.done(key)
			}
		})
		for _, n := range []int{1, 8} {
			b.Run(fmt.Sprintf("distinct-%d/%s", n, impl.name), func(b *testing.B) {
				traffic(b, impl.make(), n, 1<<22)
			})
			b.Run(fmt.Sprintf("hot-%d/%s", n, impl.name), func(b *testing.B) {
				traffic(b, impl.make(), n, 100)
			})
		}
	}
}

// keys creates different keys without allocations.
type keys struct{ namespaces, names []string }

func newKeys() keys {
	const each = 2048
	k := keys{make([]string, each), make([]string, each)}
	for i := range each {
		k.namespaces[i], k.names[i] = "namespace-"+strconv.Itoa(i), "the-name-of-an-object-"+strconv.Itoa(i)
	}
	return k
}

func (k keys) at(i int) kube.Key {
	n := len(k.names)
	return kube.Key{Namespace: k.namespaces[i/n%n], Name: k.names[i%n]}
}

// traffic runs n producers that add b.N keys, with the given number of different ones, and n workers. The scheduler
// determines how many keys are handed out and how many Adds are merged. Both numbers are reported: results are
// comparable if they are similar.
func traffic(b *testing.B, q queue, n, different int) {
	b.Helper()
	b.ReportAllocs()
	// Producers wait if they are far ahead. Otherwise the benchmark would measure the garbage collector.
	const ahead = 4096
	var producers, workers sync.WaitGroup
	var added, handed atomic.Int64
	keys := newKeys()
	b.ResetTimer()
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
				for different > b.N && added.Load()-handed.Load() > ahead {
					runtime.Gosched()
				}
				q.add(keys.at(i % different))
				added.Add(1)
			}
		})
	}
	producers.Wait()
	for q.len() > 0 {
		runtime.Gosched() // until the workers have taken the remaining keys
	}
	q.shutDown()
	workers.Wait()
	b.ReportMetric(float64(handed.Load())/float64(b.N), "handed/op")
}
