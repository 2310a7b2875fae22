package workqueue_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/workqueue"
)

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A flood leaves nothing behind.
//
//nolint:paralleltest // it measures the heap
func TestContract30_MemoryOfTheQueueGoesBack(t *testing.T) {
	q := workqueue.New(workqueue.Config[int]{Group: func(key int) string { return fmt.Sprint(key) }})
	before := heap()
	const flood = 100_000
	for key := range flood {
		q.Add(key, now())
		q.Add(-1-key, later(time.Duration(key), "later")) // and the heap of those that wait
	}
	during := heap()
	for range 2 * flood {
		item, _ := q.Get()
		q.Done(item.Key)
	}
	if after := heap(); after-before > (during-before)/100 {
		t.Errorf("of %d kB, %d stay", (during-before)/1024, (after-before)/1024)
	}
	runtime.KeepAlive(q)
}

// A group is forgotten with its last key, also while others stay.
//
//nolint:paralleltest // it measures the heap
func TestGroupsAreForgotten(t *testing.T) {
	q := workqueue.New(workqueue.Config[int]{Group: func(key int) string { return fmt.Sprint(key) }})
	q.Add(-1, later(time.Hour, "stays"))
	before := heap()
	for key := range 100_000 {
		q.Add(key, now())
		item, _ := q.Get()
		q.Done(item.Key)
	}
	if after := heap(); after-before > 1<<20 {
		t.Errorf("%d kB more than before", (after-before)/1024)
	}
	q.ShutDown()
}
