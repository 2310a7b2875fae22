package workqueue_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

// Concurrent Adds of one key are merged: no cause is lost, and the highest priority is kept.
func TestConcurrentAddsKeepEveryCause(t *testing.T) {
	t.Parallel()
	for range 20000 {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() { // waited for below
				<-start
				o := because(fmt.Sprint(i))
				if i > 0 {
					o.Priority = workqueue.PriorityLow
				}
				q.Add("a", o)
			})
		}
		close(start)
		all.Wait()
		item := take(t, q)
		if len(item.Causes.List()) != 4 || item.Priority != workqueue.PriorityNormal {
			t.Fatalf("causes %q, priority %d; want 4 causes and normal priority", text(item.Causes), item.Priority)
		}
		q.ShutDown()
	}
}

// With concurrent producers and workers and all operations, every key is handed out after its last Add, and never to
// two workers at the same time.
func TestEveryKeyIsTakenAfterItsLastAdd(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]workqueue.Config[int, cause]{
		"one group": {},
		"groups":    {Group: func(key int) string { return fmt.Sprint(key % 7) }},
		"limited":   {Group: func(key int) string { return fmt.Sprint(key % 7) }, GroupLimit: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys, producers, workers, adds = 50, 8, 8, 3000
			q := workqueue.New(config)
			var wanted, seen, holders [keys]atomic.Int64 // versions of keys, and the number of their workers
			var working, producing sync.WaitGroup
			for worker := range workers {
				working.Go(func() { // waited for below
					for n := worker; ; n++ {
						item, ok := q.Get()
						if !ok {
							return
						}
						if holders[item.Key].Add(1) != 1 {
							t.Errorf("key %d was taken twice at once", item.Key)
						}
						version := wanted[item.Key].Load()
						runtime.Gosched()
						holders[item.Key].Add(-1)
						if n%5 == 0 {
							q.Hold(item.Key, workqueue.Hold{AtMost: time.Millisecond})
							continue
						}
						seen[item.Key].Store(version)
						if n%7 == 0 {
							q.Add(item.Key, options{Cause: because("retry").Cause, Backoff: true, After: time.Millisecond})
						}
						q.Done(item.Key)
					}
				})
			}
			for p := range producers {
				producing.Go(func() { // waited for below
					for i := range adds {
						key := (i*producers + p) * 31 % keys
						wanted[key].Add(1)
						o := because("event")
						o.Priority = workqueue.Priority(i%3 - 1)
						o.EndBackoff = i%2 == 0
						o.Debounce = time.Duration(i%4) * 100 * time.Microsecond
						q.Add(key, o)
						q.Release((key + 1) % keys)
					}
				})
			}
			producing.Wait()
			// Without a limit: if the queue does not run empty, the test ends with the time of go test.
			for s := q.Stats(); s.Ready+s.Delayed+s.Backoff+s.Held+s.Processing > 0; s = q.Stats() {
				runtime.Gosched()
			}
			q.ShutDown()
			working.Wait()
			for key := range keys {
				if got, want := seen[key].Load(), wanted[key].Load(); got != want {
					t.Errorf("key %d was handled at version %d, want %d", key, got, want)
				}
			}
		})
	}
}
