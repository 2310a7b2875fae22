package workqueue

import "time"

// bands is how many bands there are: one for each priority, the lowest first.
const bands = int(PriorityHigh-PriorityLow) + 1

// overdueShare is of how many takes one goes to what is overdue. Four leaves three quarters of
// them to what is urgent, and what is overdue still goes at a third of that pace.
const overdueShare = 4

// ready holds the keys that are due and wait for a worker, in the order in which workers get
// them: the highest band that has a key to give; in it, the group whose turn it is; of that,
// the key that has been due for longest.
//
// A key stays in the band of its priority, however old it becomes: if it rose, a group with a
// backlog would pass all others. Instead, one take in overdueShare goes to a lower band that is
// overdue, and there to the key that is next in any case.
type ready[K comparable] struct {
	limit int // of taken keys per group; 0: none
	rings [bands]ring[K]
	// all holds the keys in the order in which they became ready, and inBand those of each band
	// in the order in which they came there: a key whose priority was raised keeps its age, but is
	// the last in its new band.
	all    list[K]
	inBand [bands]list[K]
	len    int
	groups int // with ready keys
	// takes counts the keys taken, and overdueTurn is the band whose turn it is at the next take
	// that goes to an overdue one.
	takes       uint
	overdueTurn int
}

func newReady[K comparable](limit int) ready[K] {
	r := ready[K]{limit: max(limit, 0)}
	for band := range r.rings {
		r.rings[band].band = band
	}
	return r
}

// push adds a key that is due. It returns whether a worker can take one key more than before.
func (r *ready[K]) push(it *item[K], now time.Duration) bool {
	it.at, it.readySince = it.next.since, now
	r.all.push(it, byAge)
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
	band := r.highest()
	if band < 0 {
		return nil
	}
	if r.takes++; r.takes%overdueShare == 0 {
		band = r.overdueBelow(band, now)
	}
	ring := &r.rings[band]
	g := ring.first
	it := g.bands[band].pop()
	r.inBand[band].remove(it, byEntry)
	r.all.remove(it, byAge)
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

// highest returns the highest band that has a key to give, or -1.
func (r *ready[K]) highest() int {
	band := bands - 1
	for band >= 0 && r.rings[band].first == nil {
		band--
	}
	return band
}

// overdueBelow returns a band below top that is overdue and has a key to give, or top when there
// is none. Where there are several they take turns: always the lowest, or the oldest, would let
// another starve while keys keep coming to that.
func (r *ready[K]) overdueBelow(top int, now time.Duration) int {
	for i := range bands {
		band := (r.overdueTurn + i) % bands
		if band < top && r.rings[band].first != nil && r.overdue(band, now) {
			r.overdueTurn = (band + 1) % bands
			return band
		}
	}
	return top
}

// overdue reports whether the key that has been in a band for longest has been ready for too
// long.
func (r *ready[K]) overdue(band int, now time.Duration) bool {
	it := r.inBand[band].first
	return it != nil && now-it.readySince >= PriorityPatience
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

// raise gives a ready key a priority, unless its own is as high. Its group keeps its turn in the
// band where the key was, if it has others there.
func (r *ready[K]) raise(it *item[K], priority Priority) {
	if priority <= it.next.priority {
		return
	}
	band, g := it.band(), it.group
	r.inBand[band].remove(it, byEntry)
	g.bands[band].remove(it)
	if g.bands[band].empty() {
		r.rings[band].leave(g)
	}
	it.next.priority = priority
	r.enter(it)
}

// enter puts a key into its band.
func (r *ready[K]) enter(it *item[K]) {
	band, g := it.band(), it.group
	r.inBand[band].push(it, byEntry)
	g.bands[band].push(it)
	if r.limit == 0 || g.taken < r.limit {
		r.rings[band].join(g)
	}
}

// oldest returns the key that has been ready for longest, or nil.
func (r *ready[K]) oldest() *item[K] { return r.all.first }

// band returns in which band a ready key is.
func (it *item[K]) band() int { return int(it.next.priority - PriorityLow) }
