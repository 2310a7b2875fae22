package workqueue

import "time"

// bands is the number of bands: one for each priority, the lowest first.
const bands = int(PriorityHigh-PriorityLow) + 1

// overdueShare is the interval of takes from an overdue band. Four leaves three quarters of the takes to the highest
// priority, and the overdue one still proceeds at a third of its pace.
const overdueShare = 4

// ready contains the ready keys, in the order in which workers get them: the highest band that can provide a key; in
// it, the group with the current turn; of that group, the key that has been ready for longest.
//
// A key stays in the band of its priority, regardless of its age. If it moved up, a group with a backlog would overtake
// all others. Instead, one take in overdueShare goes to a lower band that is overdue, and there to the key that is next
// in any case.
type ready[K comparable, C any] struct {
	limit int // of processing keys per group; 0: no limit
	rings [bands]ring[K, C]
	// all contains the keys in the order in which they became ready. inBand contains the keys of each band in the order
	// in which they entered it: a key with a raised priority keeps its age, but is the last in its new band.
	all    list[K, C]
	inBand [bands]list[K, C]
	// counts is the number of keys in each band.
	counts [bands]int
	// takes is the number of takes. overdueTurn is the band with the next turn among overdue bands.
	takes       uint
	overdueTurn int
}

func newReady[K comparable, C any](limit int) ready[K, C] {
	r := ready[K, C]{limit: max(limit, 0)}
	for band := range r.rings {
		r.rings[band].band = band
	}
	return r
}

// push adds a ready key. It returns whether workers can take one key more than before.
func (r *ready[K, C]) push(entry *item[K, C], now time.Duration) bool {
	entry.at, entry.readySince = entry.next.since, now
	r.all.push(entry, byAge)
	g := entry.group
	g.ready++
	r.enter(entry)
	return r.limit == 0 || g.processing+g.ready <= r.limit
}

// take removes the next key and counts it as taken. It returns nil if there are no keys, or only keys of groups that
// are at their limit.
func (r *ready[K, C]) take(now time.Duration) *item[K, C] {
	band := r.highest()
	if band < 0 {
		return nil
	}
	if r.takes++; r.takes%overdueShare == 0 {
		band = r.overdueBelow(band, now)
	}
	ring := &r.rings[band]
	g := ring.first
	entry := g.bands[band].pop()
	r.leave(band, entry)
	r.all.remove(entry, byAge)
	g.processing++
	g.ready--
	switch {
	case g.processing == r.limit: // never without a limit
		for i := range r.rings {
			r.rings[i].leave(g)
		}
	case g.bands[band].empty():
		ring.leave(g)
	default:
		ring.rotate()
	}
	return entry
}

// highest returns the highest band that can provide a key, or -1.
func (r *ready[K, C]) highest() int {
	band := bands - 1
	for band >= 0 && r.rings[band].first == nil {
		band--
	}
	return band
}

// overdueBelow returns an overdue band below top that can provide a key, or top. Several such bands take turns: if the
// lowest or the oldest always went first, another one could starve.
func (r *ready[K, C]) overdueBelow(top int, now time.Duration) int {
	for i := range bands {
		band := (r.overdueTurn + i) % bands
		if band < top && r.rings[band].first != nil && r.overdue(band, now) {
			r.overdueTurn = (band + 1) % bands
			return band
		}
	}
	return top
}

// overdue reports whether the oldest key in a band has been ready for too long.
func (r *ready[K, C]) overdue(band int, now time.Duration) bool {
	entry := r.inBand[band].first
	return entry != nil && now-entry.readySince >= StarvationTimeout
}

// release decreases the number of the group's processing keys. It returns whether workers can take one key more than
// before.
func (r *ready[K, C]) release(g *group[K, C]) bool {
	g.processing--
	if r.limit == 0 {
		return false
	}
	for band := bands - 1; band >= 0; band-- {
		if !g.bands[band].empty() {
			r.rings[band].join(g)
		}
	}
	return g.processing+g.ready >= r.limit
}

// raise increases a ready key's priority. Its group keeps its turn in the old band, if it has other keys there.
func (r *ready[K, C]) raise(entry *item[K, C], priority Priority) {
	if priority <= entry.next.priority {
		return
	}
	band, g := entry.band(), entry.group
	r.leave(band, entry)
	g.bands[band].remove(entry)
	if g.bands[band].empty() {
		r.rings[band].leave(g)
	}
	entry.next.priority = priority
	r.enter(entry)
}

// enter puts a key into its band.
func (r *ready[K, C]) enter(entry *item[K, C]) {
	band, g := entry.band(), entry.group
	r.inBand[band].push(entry, byBand)
	r.counts[band]++
	g.bands[band].push(entry)
	if r.limit == 0 || g.processing < r.limit {
		r.rings[band].join(g)
	}
}

// leave removes a key from its band.
func (r *ready[K, C]) leave(band int, entry *item[K, C]) {
	r.inBand[band].remove(entry, byBand)
	r.counts[band]--
}

// oldest returns the key that has been ready for longest, or nil.
func (r *ready[K, C]) oldest() *item[K, C] { return r.all.first }

// band returns the band of a ready key.
func (entry *item[K, C]) band() int { return int(entry.next.priority - PriorityLow) }
