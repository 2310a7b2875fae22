package workqueue_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/evenkeel-go/evenkeel/workqueue"
)

// Adds for now of one key, at the same time, merge: no cause is lost, and the highest
// priority stays.
func TestConcurrentAddsKeepEveryCause(t *testing.T) {
	t.Parallel()
	for range 20000 {
		q := workqueue.New[string]()
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
			t.Fatalf("causes %q, priority %d; want 4 causes and normal priority", item.Causes, item.Priority)
		}
		q.ShutDown()
	}
}
