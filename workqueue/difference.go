package workqueue

import (
	"sync"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Difference is what changed of an object, for whoever asks: comparing two states costs more than
// everything else about a cause, and most causes are never looked at.
//
// Until it has been asked it keeps alive what it compares. It is safe for concurrent use.
type Difference struct {
	mu      sync.Mutex
	compare func() kube.Change // guarded by mu; nil when it has been called
	earlier *Difference        // guarded by mu; of causes that this one's has merged with
	depth   int                // guarded by mu; how many of those there are
	parts   kube.Change        // guarded by mu
}

// maxDepth is how many merged differences wait to be compared. One more, and the earlier ones are
// compared at once, so that what they keep alive goes.
const maxDepth = 8

// NewDifference returns a Difference that calls compare once, when it is asked: at any time, from
// any goroutine. Nil: there is nothing to compare.
func NewDifference(compare func() kube.Change) *Difference {
	if compare == nil {
		return nil
	}
	return &Difference{compare: compare}
}

// Parts returns what changed. A nil Difference knows of nothing.
func (d *Difference) Parts() kube.Change {
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

// merged returns a Difference that tells of d and of what was before it. It is d, unless there is
// only one of them.
func (d *Difference) merged(earlier *Difference) *Difference {
	if d == nil || earlier == nil || d == earlier {
		if d == nil {
			return earlier
		}
		return d
	}
	depth := earlier.pending() + 1
	d.mu.Lock()
	defer d.mu.Unlock()
	if depth > maxDepth || d.earlier != nil {
		d.parts |= earlier.Parts()
		return d
	}
	d.earlier, d.depth = earlier, depth
	return d
}

func (d *Difference) pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.depth
}
