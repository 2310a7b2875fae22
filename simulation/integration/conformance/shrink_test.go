package conformance

import (
	"fmt"
	"slices"
	"testing"
)

// maxTrials limits how often shrink runs a sequence.
const maxTrials = 200

// shrink removes operations from a sequence while there is still a difference. It returns the shorter sequence and its
// difference. Its operations do not count.
func (r *runner) shrink(t *testing.T, ops []operation, difference string) ([]operation, string) {
	t.Helper()
	r = &runner{real: r.real, memory: r.memory, prefix: fmt.Sprintf("%s-%d", r.prefix, r.sequences), coverage: map[count]int{}, forms: map[string]int{}, masked: map[string]int{}}
	trials := 0
	for size := len(ops) / 2; size > 0; size /= 2 {
		for from := 0; from < len(ops) && trials < maxTrials; {
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
