package workqueue

import (
	"slices"
	"strings"
)

// CauseType says what kind of thing put a key into the queue. The set is small and
// fixed, so that it can be a metric's label.
type CauseType string

// The types of causes.
const (
	// CauseListed: the object was in the first list after the start.
	CauseListed CauseType = "listed"
	// CauseAdded: the object was created.
	CauseAdded CauseType = "added"
	// CauseUpdated: the object changed.
	CauseUpdated CauseType = "updated"
	// CauseDeleted: the object is gone.
	CauseDeleted CauseType = "deleted"
	// CauseResync: the resync interval since the last success has passed.
	CauseResync CauseType = "resync"
	// CauseRetry: the last run failed.
	CauseRetry CauseType = "retry"
	// CauseRequeue: the last run asked to be run again after a while.
	CauseRequeue CauseType = "requeue"
	// CauseTriggered: a source enqueued the key.
	CauseTriggered CauseType = "triggered"
)

// CauseTypes lists every CauseType, for whoever wants to show zeros.
func CauseTypes() []CauseType {
	return []CauseType{
		CauseListed, CauseAdded, CauseUpdated, CauseDeleted,
		CauseResync, CauseRetry, CauseRequeue, CauseTriggered,
	}
}

// Cause is why a key is in the queue.
type Cause struct {
	Type CauseType
	// Detail says more, for people: the source's name, the reason of a requeue. May be
	// empty. Causes of equal Type and Detail are one.
	Detail string
}

// String returns "type" or "type (detail)".
func (c Cause) String() string {
	if c.Detail == "" {
		return string(c.Type)
	}
	return string(c.Type) + " (" + c.Detail + ")"
}

// MaxCauses is how many different causes an item keeps; the others are counted.
const MaxCauses = 8

// Causes is a bounded set of causes in the order of their arrival.
type Causes struct {
	list    []Cause
	dropped int
}

// List returns the causes, oldest first. Do not change the slice.
func (c Causes) List() []Cause { return c.list }

// Dropped is how many causes found no place in the set. One that comes again counts again.
func (c Causes) Dropped() int { return c.dropped }

// Has reports whether a cause of type t is in the set.
func (c Causes) Has(t CauseType) bool {
	for _, cause := range c.list {
		if cause.Type == t {
			return true
		}
	}
	return false
}

// String joins the causes with commas.
func (c Causes) String() string {
	words := make([]string, len(c.list))
	for i, cause := range c.list {
		words[i] = cause.String()
	}
	return strings.Join(words, ", ")
}

func (c *Causes) add(cause Cause) {
	if slices.Contains(c.list, cause) {
		return
	}
	if len(c.list) == MaxCauses {
		c.dropped++
		return
	}
	c.list = append(c.list, cause)
}
