package conformance

import (
	"fmt"
	"slices"
	"testing"
)

// maxTrials limits how often shrink runs a sequence, and maxSlowTrials those that wait for the controllers of the real server.
const maxTrials, maxSlowTrials = 200, 25

// shrink removes operations from a sequence while there is still a difference. It returns the shorter sequence and its
// difference. Its operations do not count.
func (r *runner) shrink(t *testing.T, ops []operation, difference string) ([]operation, string) {
	t.Helper()
	r = &runner{real: r.real, memory: r.memory, prefix: fmt.Sprintf("%s-%d", r.prefix, r.sequences), coverage: map[count]int{}, forms: map[string]int{}, masked: map[string]int{}}
	trials, limit := 0, maxTrials
	if ops[0].kind.alone != nil {
		limit = maxSlowTrials
	}
	for size := len(ops) / 2; size > 0; size /= 2 {
		for from := 0; from < len(ops) && trials < limit; {
			shorter := slices.Concat(ops[:from], ops[min(len(ops), from+size):])
			trials++
			if d := r.run(t, shorter); d != "" {
				ops, difference = shorter, d
			} else {
				from += size
			}
		}
	}
	return ops, difference
}
