package workqueue_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// A queue must release the memory of a flood of keys.
//
//nolint:paralleltest // it measures the heap
func TestContract30_QueueReleasesMemory(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	q := workqueue.New(workqueue.Config[int, cause]{Merge: merge, Group: func(key int) string { return fmt.Sprint(key) }})
	before := heap()
	const flood = 100_000
	for key := range flood {
		q.Add(key, now())
		q.Add(-1-key, later(time.Duration(key), "later")) // and in the heap of waiting keys
	}
	during := heap()
	for range 2 * flood {
		item, _ := q.Get()
		q.Done(item.Key)
	}
	if after := heap(); after-before > (during-before)/100 {
		t.Errorf("%[2]d of %[1]d kB remain", (during-before)/1024, (after-before)/1024)
	}
	runtime.KeepAlive(q)
}

// A remaining key must not keep the memory of a flood of keys.
//
//nolint:paralleltest // it measures the heap
func TestContract30_QueueReleasesMemoryWithRemainingKey(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	for name, group := range map[string]func(int) string{
		"one group": nil, "groups": func(key int) string { return fmt.Sprint(key % 30_000) },
	} {
		t.Run(name, func(t *testing.T) {
			q := workqueue.New(workqueue.Config[int, cause]{Merge: merge, Group: group})
			q.Add(-1, later(1000*time.Hour, "stays"))
			before := heap()
			const flood = 100_000
			for key := range flood {
				q.Add(key, options{Priority: workqueue.PriorityLow})
				q.Add(-2-key, later(time.Duration(key), "later"))
			}
			for key := range flood {
				q.Add(key, options{Priority: workqueue.PriorityHigh}) // and in the heaps of raised keys
			}
			during := heap()
			for range 2 * flood {
				item, _ := q.Get()
				q.Done(item.Key)
			}
			// The queue may keep some hundred unused items, and maps of that size.
			if after := heap(); after-before > (during-before)/100 {
				t.Errorf("%d of %d kB remain", (after-before)/1024, (during-before)/1024)
			}
			if s := q.Stats(); s.Delayed != 1 {
				t.Errorf("stats %+v", s)
			}
			q.ShutDown()
		})
	}
}

// A group is removed with its last key, also while other groups remain.
//
//nolint:paralleltest // it measures the heap
func TestEmptyGroupsAreRemoved(t *testing.T) {
	q := workqueue.New(workqueue.Config[int, cause]{Merge: merge, Group: func(key int) string { return fmt.Sprint(key) }})
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
