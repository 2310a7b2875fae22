package controller

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/evenkeel-go/evenkeel/kube"
)

// fill fills a history until it cannot grow: every key in it has the maximum number of runs.
func fill(h *history, writes int) {
	for i := range 2 * recentKeys {
		for round := range keyRuns {
			key := kube.Key{Namespace: "default", Name: fmt.Sprintf("an-object-with-a-usual-name-%d", i)}
			r := &record{run: RunRecord{
				Controller: "widgets", Key: key, Outcome: OutcomeSuccess, Started: time.Now(),
				Causes: NewCauses(Cause{Type: CauseUpdated, Source: SourceSelf, Object: key}),
			}}
			for w := range writes {
				r.run.writes = append(r.run.writes, write{Verb: "patch", Kind: "Widget", Key: key, ResourceVersion: fmt.Sprint(round, w)})
			}
			h.add(r)
			h.skipped(key, SkipPredicate, &Cause{Object: key})
		}
	}
}

// TestContract12_RecordsTakeLittleMemory measures a full history. A program with a hundred controllers has a hundred of
// them.
func TestContract12_RecordsTakeLittleMemory(t *testing.T) {
	for _, writes := range []int{0, 2} {
		before := heap()
		h := newHistory()
		fill(h, writes)
		size := heap() - before
		t.Logf("%d writes a run: %d kB", writes, size/1000)
		if limit := int64(1<<20 + writes*(1<<19)); size > limit {
			t.Errorf("with %d writes a run, a full history takes %d bytes, want at most %d", writes, size, limit)
		}
		runtime.KeepAlive(h)
	}
}

func TestHistoryKeepsKeysThatRanLast(t *testing.T) {
	h := newHistory()
	runOf := func(i int) kube.Key {
		key := kube.Key{Name: fmt.Sprint(i)}
		h.add(&record{run: RunRecord{Key: key}})
		return key
	}
	for i := range recentKeys {
		runOf(i)
	}
	second := runOf(0)
	for i := range 3 { // they evict 1, 2 and 3
		runOf(recentKeys + i)
	}
	for i := range recentKeys + 3 {
		want := 1
		switch key := (kube.Key{Name: fmt.Sprint(i)}); {
		case key == second:
			want = 2
		case i <= 3:
			want = 0
		}
		if runs, _ := h.of(kube.Key{Name: fmt.Sprint(i)}); len(runs) != want {
			t.Errorf("%d runs of key %d are kept, want %d", len(runs), i, want)
		}
	}
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func BenchmarkHistory(b *testing.B) {
	h := newHistory()
	fill(h, 0)
	keys := make([]kube.Key, 2*recentKeys)
	for i := range keys {
		keys[i].Name = fmt.Sprint(i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		h.add(&record{run: RunRecord{Key: keys[i%len(keys)]}})
	}
}
