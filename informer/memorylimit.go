package informer

import (
	"math"
	"runtime/metrics"
)

// isNearMemoryLimit reports whether the process needs more than nine tenths of its memory limit: what was live at the
// last garbage collection, and what is not heap.
func isNearMemoryLimit() bool {
	names := []string{
		"/gc/gomemlimit:bytes", "/gc/heap/live:bytes", "/memory/classes/total:bytes",
		"/memory/classes/heap/released:bytes", "/memory/classes/heap/free:bytes", "/memory/classes/heap/objects:bytes",
		"/memory/classes/heap/unused:bytes",
	}
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	limit, needed := samples[0].Value.Uint64(), samples[1].Value.Uint64()+samples[2].Value.Uint64()
	for _, heap := range samples[3:] {
		needed -= heap.Value.Uint64()
	}
	return limit < math.MaxInt64 && needed > limit/10*9
}
