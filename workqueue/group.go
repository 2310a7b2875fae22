package workqueue

// group is what the queue knows of the keys of one group. It is forgotten with the last of
// them.
type group[K comparable] struct {
	name string
	// items is how many keys of the group are in the queue, wherever; ready and taken are how
	// many of them are that.
	items, ready, taken int
	// bands holds the ready keys, those that have been due for longest first.
	bands [bands]line[K]
	// turns are the group's places in the rings. It is in the ring of a band when it has keys
	// in that band, and fewer taken than the limit.
	turns [bands]turn[K]
}

// noneReady forgets the ready keys, and that the group was in any ring.
func (g *group[K]) noneReady() {
	g.ready, g.bands, g.turns = 0, [bands]line[K]{}, [bands]turn[K]{}
}

// turn is a group's place in a ring. Outside of it both are nil.
type turn[K comparable] struct {
	previous, next *group[K]
}

// ring is the groups that can give a key of one band, in the order of their turns.
type ring[K comparable] struct {
	band  int
	first *group[K]
}

// join puts a group at the end, unless it is in the ring.
func (r *ring[K]) join(g *group[K]) {
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

// leave takes a group out, unless it is not in the ring.
func (r *ring[K]) leave(g *group[K]) {
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
		r.first = nil // it was the only one
	}
	turn.previous, turn.next = nil, nil
}

// rotate ends the turn of the first group: it is the last now.
func (r *ring[K]) rotate() { r.first = r.first.turns[r.band].next }
