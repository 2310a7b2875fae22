package workqueue

import "slices"

// group is the state of the keys of one group. It is removed with the last of them.
type group[K comparable, C any] struct {
	name string
	// items is the number of keys of the group in the queue, in any state. ready and processing are the numbers of keys
	// in these states.
	items, ready, processing int
	// bands contains the ready keys; those that have been ready for longest are first.
	bands [bands]line[K, C]
	// turns are the group's positions in the rings. It is in the ring of a band if it has keys in that band, and fewer
	// processing keys than the limit.
	turns [bands]turn[K, C]
}

// clearReady removes the ready keys, and resets the positions in the rings.
func (g *group[K, C]) clearReady() {
	g.ready, g.bands, g.turns = 0, [bands]line[K, C]{}, [bands]turn[K, C]{}
}

// shrink frees the memory of removed keys.
func (g *group[K, C]) shrink() {
	for band := range g.bands {
		g.bands[band].outOfOrder = slices.Clone(g.bands[band].outOfOrder)
	}
}

// turn is a group's position in a ring. Both fields are nil outside of the ring.
type turn[K comparable, C any] struct {
	previous, next *group[K, C]
}

// ring contains the groups that can provide a key of one band, in the order of their turns.
type ring[K comparable, C any] struct {
	band  int
	first *group[K, C]
}

// join appends a group, unless it is in the ring.
func (r *ring[K, C]) join(g *group[K, C]) {
	turn := &g.turns[r.band]
	switch {
	case turn.next != nil:
		return
	case r.first == nil:
		turn.previous, turn.next = g, g
		r.first = g
	default:
		last := r.first.turns[r.band].previous
		turn.previous, turn.next = last, r.first
		last.turns[r.band].next, r.first.turns[r.band].previous = g, g
	}
}

// leave removes a group, if it is in the ring.
func (r *ring[K, C]) leave(g *group[K, C]) {
	turn := &g.turns[r.band]
	if turn.next == nil {
		return
	}
	turn.previous.turns[r.band].next = turn.next
	turn.next.turns[r.band].previous = turn.previous
	if r.first == g {
		r.first = turn.next
	}
	if r.first == g {
		r.first = nil // the only group
	}
	turn.previous, turn.next = nil, nil
}

// rotate ends the turn of the first group, which becomes the last.
func (r *ring[K, C]) rotate() { r.first = r.first.turns[r.band].next }
