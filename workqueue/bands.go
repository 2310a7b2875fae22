package workqueue

import "time"

// bands is how many bands there are: one for each priority, the lowest first.
const bands = int(PriorityHigh-PriorityLow) + 1

// ready holds the keys that are due and wait for a worker, in the order in which workers get
// them: the highest band that has a key to give; in it, the group whose turn it is; of that,
// the key that has been due for longest.
//
// A key is in the band of its priority, and rises a band for each PriorityPatience that it has
// been ready. No timer does that: it is looked after when the next key is taken.
type ready[K comparable] struct {
	limit int // of taken keys per group; 0: none
	rings [bands]ring[K]
	// ages holds the keys by how many bands they have risen, each list in the order in which
	// they became ready.
	ages   [bands]list[K]
	len    int
	groups int // with ready keys
}

// risesPerGet is how many keys of one age rise at once, at most, so that no Get takes long
// after a flood.
const risesPerGet = 16

func newReady[K comparable](limit int) ready[K] {
	r := ready[K]{limit: max(limit, 0)}
	for band := range r.rings {
		r.rings[band].band = band
	}
	return r
}

// push adds a key that is due. It returns whether a worker can take one key more than before.
func (r *ready[K]) push(it *item[K], now time.Duration) bool {
	it.at, it.readySince, it.rises = it.next.since, now, 0
	r.ages[0].push(it, byAge)
	g := it.group
	if g.ready++; g.ready == 1 {
		r.groups++
	}
	r.len++
	r.enter(it)
	return r.limit == 0 || g.taken+g.ready <= r.limit
}

// take removes the key whose turn it is and counts it as taken. It returns nil when there is
// none, or only keys of groups that are at their limit.
func (r *ready[K]) take(now time.Duration) *item[K] {
	r.age(now)
	for band := bands - 1; band >= 0; band-- {
		ring := &r.rings[band]
		g := ring.first
		if g == nil {
			continue
		}
		it := g.bands[band].pop()
		r.ages[it.rises].remove(it, byAge)
		r.len--
		g.taken++
		if g.ready--; g.ready == 0 {
			r.groups--
		}
		switch {
		case g.taken == r.limit: // never when there is none
			for i := range r.rings {
				r.rings[i].leave(g)
			}
		case g.bands[band].empty():
			ring.leave(g)
		default:
			ring.rotate()
		}
		return it
	}
	return nil
}

// release says that one of the group's keys is not taken any more. It returns whether a worker
// can take one key more than before.
func (r *ready[K]) release(g *group[K]) bool {
	g.taken--
	if r.limit == 0 {
		return false
	}
	for band := bands - 1; band >= 0; band-- {
		if !g.bands[band].empty() {
			r.rings[band].join(g)
		}
	}
	return g.taken+g.ready >= r.limit
}

// raise gives a ready key a priority that is no lower than its own.
func (r *ready[K]) raise(it *item[K], priority Priority) {
	r.shift(it, max(priority, it.next.priority), it.rises)
}

// age lets keys rise that have been ready for long enough.
func (r *ready[K]) age(now time.Duration) {
	for age := range bands - 1 {
		for range risesPerGet {
			it := r.ages[age].first
			if it == nil || now-it.readySince < time.Duration(age+1)*PriorityPatience {
				break
			}
			r.ages[age].remove(it, byAge)
			r.shift(it, it.next.priority, it.rises+1)
			r.ages[age+1].push(it, byAge)
		}
	}
}

// oldest returns the key that has been ready for longest, or nil.
func (r *ready[K]) oldest() *item[K] {
	for age := bands - 1; age >= 0; age-- {
		if it := r.ages[age].first; it != nil {
			return it
		}
	}
	return nil
}

// shift gives a ready key another priority and age, and the band that belongs to them.
func (r *ready[K]) shift(it *item[K], priority Priority, rises int8) {
	from := it.band()
	it.next.priority, it.rises = priority, rises
	if it.band() == from {
		return // its group keeps its turn
	}
	g := it.group
	g.bands[from].remove(it)
	if g.bands[from].empty() {
		r.rings[from].leave(g)
	}
	r.enter(it)
}

// enter puts a key into its band.
func (r *ready[K]) enter(it *item[K]) {
	band, g := it.band(), it.group
	g.bands[band].push(it)
	if r.limit == 0 || g.taken < r.limit {
		r.rings[band].join(g)
	}
}

// band returns in which band a ready key is.
func (it *item[K]) band() int {
	return min(int(it.next.priority-PriorityLow)+int(it.rises), bands-1)
}
