package controller

import (
	"sync"

	"github.com/evenkeel-go/evenkeel/kube"
)

// causeDifference computes which parts of an object changed, on demand: comparing two states is more expensive than
// everything else about a cause, and most causes are never displayed.
//
// It keeps the two states in memory until it has compared them. It is safe for concurrent use.
type causeDifference struct {
	mu      sync.Mutex
	compare func() kube.ChangedParts // guarded by mu; nil after the call
	earlier *causeDifference         // guarded by mu; difference of causes that were merged into this one's
	depth   int                      // guarded by mu; number of earlier ones
	parts   kube.ChangedParts        // guarded by mu
	kept    int                      // immutable; size in bytes of the states that compare keeps
}

// maxDifferences is the maximum number of merged differences. When it is exceeded, the earlier ones are computed at
// once, so that their states can be freed.
const maxDifferences = 8

// newDifference returns a difference that calls compare at most once, at any time, in any goroutine. kept is the size
// in bytes of the states that compare keeps. compare may be nil.
func newDifference(compare func() kube.ChangedParts, kept int) *causeDifference {
	if compare == nil {
		return nil
	}
	return &causeDifference{compare: compare, kept: kept}
}

// size returns the size in bytes of the states that are kept. A nil difference keeps none.
func (d *causeDifference) size() int {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.compare == nil {
		return d.earlier.size()
	}
	return d.kept + d.earlier.size()
}

// drop frees the states. What was not compared yet is not known anymore.
func (d *causeDifference) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.compare, d.earlier = nil, nil
}

// Parts returns the changed parts. A nil difference has none.
func (d *causeDifference) Parts() kube.ChangedParts {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.compare != nil {
		d.parts |= d.compare()
		d.compare = nil
	}
	d.parts |= d.earlier.Parts()
	d.earlier, d.depth = nil, 0
	return d.parts
}

// merged returns the difference that combines d and an earlier one. Either may be nil.
func (d *causeDifference) merged(earlier *causeDifference) *causeDifference {
	if d == nil || earlier == nil || d == earlier {
		if d == nil {
			return earlier
		}
		return d
	}
	depth := earlier.pending() + 1
	d.mu.Lock()
	defer d.mu.Unlock()
	if depth > maxDifferences || d.earlier != nil {
		d.parts |= earlier.Parts()
		return d
	}
	d.earlier, d.depth = earlier, depth
	return d
}

func (d *causeDifference) pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.depth
}
