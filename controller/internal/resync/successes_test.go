package resync

import (
	"runtime"
	"testing"
	"time"
)

// TestScheduledRunsAreNotRecorded checks that the success of a resync is recorded only for a key that has run for
// another reason.
func TestScheduledRunsAreNotRecorded(t *testing.T) {
	t.Parallel()
	s, now := NewSuccesses(), time.Now()
	if s.Record(keyOf(1), now, true) || s.Len() != 0 {
		t.Error("a run for a resync is recorded")
	}
	if !s.Record(keyOf(1), now, false) || !s.Record(keyOf(1), now.Add(time.Minute), true) {
		t.Error("a success is not recorded")
	}
	if at, found := s.last(keyOf(1)); !found || at.Sub(now).Round(time.Second) != time.Minute {
		t.Errorf("the last success is at %s, want %s", at, now.Add(time.Minute))
	}
}

// TestSuccessesReleaseMemory checks that the memory of deleted objects is freed. It is not parallel, because it
// measures the heap.
func TestSuccessesReleaseMemory(t *testing.T) {
	const storm = 100_000
	s := NewSuccesses()
	before := heap()
	for n := range storm {
		s.Record(keyOf(n), time.Now(), false)
	}
	during := heap()
	for n := range storm - 1 {
		s.Forget(keyOf(n))
	}
	after := heap()
	t.Logf("%d of %d kB stay", (after-before)>>10, (during-before)>>10)
	if after-before > 200<<10 {
		t.Errorf("%d of %d kB stay", (after-before)>>10, (during-before)>>10)
	}
	runtime.KeepAlive(s)
}

// heap returns the size of the live heap in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
