package workqueue

import "slices"

// MaxCauses is the maximum number of different causes of a key; further ones are only counted.
const MaxCauses = 8

// Merge merges cause into known if they are equal, and returns whether they are. It must be fast, and not call the
// queue.
type Merge[C any] func(known *C, cause C) bool

// Causes is a bounded list of different causes in the order of their arrival. The zero value is empty.
type Causes[C any] struct {
	list    []C
	dropped int
}

// List returns the causes, oldest first. The caller must not change the slice.
func (c Causes[C]) List() []C { return c.list }

// Dropped returns the number of causes that were dropped because the list was full. A repeated cause counts each time.
func (c Causes[C]) Dropped() int { return c.dropped }

// Add merges a cause with an equal one, or appends it.
func (c *Causes[C]) Add(cause C, merge Merge[C]) {
	if merge != nil {
		for i := range c.list {
			if merge(&c.list[i], cause) {
				return
			}
		}
	}
	if len(c.list) == MaxCauses {
		c.dropped++
		return
	}
	c.list = append(c.list, cause)
}

// AddAll adds the causes of another list.
func (c *Causes[C]) AddAll(other Causes[C], merge Merge[C]) {
	for i := range other.list {
		c.Add(other.list[i], merge)
	}
	c.dropped += other.dropped
}

// Clone returns a copy.
func (c Causes[C]) Clone() Causes[C] { return Causes[C]{slices.Clone(c.list), c.dropped} }

// First returns the first cause and the others. There must be one.
func (c Causes[C]) First() (first C, rest Causes[C]) {
	return c.list[0], Causes[C]{c.list[1:], c.dropped}
}

// Without returns a copy without the causes for which match returns true.
func (c Causes[C]) Without(match func(C) bool) Causes[C] {
	c = c.Clone()
	c.list = slices.DeleteFunc(c.list, match)
	return c
}

// accepted reports whether accept returns true for one of the causes, or some were dropped.
func (c *Causes[C]) accepted(accept func(C) bool) bool {
	return accept != nil && (c.dropped > 0 || slices.ContainsFunc(c.list, accept))
}
