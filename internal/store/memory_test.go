package store

import (
	"runtime"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// TestMemory is not parallel: it measures the heap of the process.
func TestMemory(t *testing.T) { //nolint:paralleltest // other tests would be measured too
	testlength.OnlyWithoutRaceDetector(t)
	const n = 20_000
	all := newCluster(t, 1, 40).pods(n)
	raw := 0
	for _, o := range all {
		raw += len(o.Bytes)
	}
	before := heap()
	s := newStore(Config{}, newHashes(), 1)
	put(t, s, all...)
	grown := heap() - before
	sizes := s.Sizes()
	t.Logf("%d bytes raw, %d B kept, %d B by Sizes, %d B per record; %+v", raw/n, grown/n, sizes.Bytes/n, s.kept/n, sizes)
	if grown/n > 640 {
		t.Errorf("an object costs %d B, want at most 640", grown/n)
	}
	if off := float64(sizes.Bytes) / float64(grown); off < 0.9 || off > 1.1 {
		t.Errorf("Sizes says %d B, and the heap grew by %d", sizes.Bytes, grown)
	}
	runtime.KeepAlive(s)
	runtime.KeepAlive(all)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // a second one, because the first only releases the pools' buffers
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
