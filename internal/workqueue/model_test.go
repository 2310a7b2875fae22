package workqueue_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

// model is a simple and slow queue: it checks every key at every step, and has lists instead of heaps and rings. The
// test sets its time.
type model struct {
	now     time.Time
	groupOf func(byte) string
	limit   int
	keys    []*modelKey
	// turns are the groups that can provide a key of a band, the lowest band first.
	turns          [3][]string
	takes          int // number of keys that were taken
	overdueTurn    int // the overdue band with the next turn
	filed, entered int // counters
	draining, down bool
}

// modelKey is a key that is planned to run, or taken, or both.
type modelKey struct {
	key   byte
	group string
	next  *modelRun // nil: no run is planned
	taken *modelRun // nil: not taken
	// exempt is true if it is taken and not counted for its group's limit.
	exempt bool
	// released is true if it is taken, and was released after that.
	released bool
}

// modelRun is a run of a key.
type modelRun struct {
	why         string // "delayed", "planned", "backoff", "held"
	due         time.Time
	latest      time.Time // the latest time for Debounce
	endsBackoff bool
	decides     bool // it has superseded an Add
	// endsWithDrain is true if a drain removes it while it is held.
	endsWithDrain bool
	priority      workqueue.Priority
	causes        []cause
	dropped       int

	since      time.Time // when it became ready, without the time for which it was held
	filed      int       // order of setting the due time
	ready      bool
	readySince time.Time
	entered    int // order of entering the band
}

func (m *model) find(key byte) *modelKey {
	for _, k := range m.keys {
		if k.key == key {
			return k
		}
	}
	return nil
}

func (m *model) add(key byte, o options) bool {
	if m.draining || m.down {
		return false
	}
	k := m.find(key)
	if k == nil {
		k = &modelKey{key: key, group: m.groupOf(key)}
		m.keys = append(m.keys, k)
	}
	o.Priority = min(max(o.Priority, -1), 1)
	var before modelRun
	if k.next != nil {
		before = *k.next
	}
	if !m.addTo(k, o) {
		return false
	}
	if k.next.due != before.due || (k.next.why == "backoff") != (before.why == "backoff") || before.filed == 0 {
		m.file(k)
	}
	if before.ready && k.next.priority != before.priority {
		m.enter(k.next)
	}
	m.settle()
	return true
}

// addTo applies an Add to a key's next run.
func (m *model) addTo(k *modelKey, o options) bool {
	fresh := m.runFor(o)
	old := k.next
	if old == nil {
		k.next = fresh
		return true
	}
	failed, plan := o.Backoff && o.After > 0, o.After > 0
	switch {
	case old.ready && plan:
		return false // it runs first, and decides
	case old.ready, old.why == "held" && (!plan || !fresh.due.After(old.due)):
		old.merge(o)
		return true
	case old.why == "held":
		old.keepUrgent(o.Priority)
		return false
	case failed && old.endsBackoff && !old.due.After(fresh.due):
		old.decides = true
		return false // it runs anyway, without a backoff
	case failed && old.why == "planned" && fresh.due.Before(old.due):
		fresh.endsBackoff, fresh.decides = old.endsBackoff, true
		fresh.keepUrgent(old.priority)
		k.next = fresh
		return true
	case failed:
		old.why, old.due, old.endsBackoff = "backoff", fresh.due, false
		old.merge(o)
		return true
	case plan && fresh.due.After(old.due):
		if fresh.due.Before(old.latest) {
			old.latest = fresh.due
		}
		old.keepUrgent(o.Priority)
		old.decides = true
		return false
	case old.why == "planned" && fresh.due.Before(old.due):
		fresh.endsBackoff, fresh.decides = fresh.endsBackoff || old.endsBackoff, true
		fresh.keepUrgent(old.priority)
		k.next = fresh
		return true
	case old.why == "backoff" && !o.EndBackoff:
		old.merge(o)
		return true
	}
	// Events are merged, and the earlier time wins.
	if old.why != "delayed" {
		old.why, old.latest = "delayed", old.due
	}
	switch {
	case !fresh.due.After(old.due):
		old.due = fresh.due
		if fresh.latest.Before(old.latest) {
			old.latest = fresh.latest
		}
	case o.Delay > 0: // does not delay a planned run
	case old.due.After(m.now) && fresh.due.Before(old.latest): // delayed by Debounce
		old.due = fresh.due
	case old.due.After(m.now):
		old.due = old.latest
	}
	old.merge(o)
	return true
}

// runFor returns the run for a first Add.
func (m *model) runFor(o options) *modelRun {
	r := &modelRun{why: "delayed", due: m.now, latest: m.now, endsBackoff: o.EndBackoff}
	switch {
	case o.After > 0:
		r.why, r.due, r.latest = "planned", m.now.Add(o.After), m.now.Add(o.After)
		if o.Backoff {
			r.why, r.endsBackoff = "backoff", false
		}
	case o.Delay > 0:
		r.due, r.latest = m.now.Add(o.Delay), m.now.Add(o.Delay)
	case o.Debounce > 0:
		r.due, r.latest = m.now.Add(o.Debounce), m.now.Add(10*o.Debounce)
	}
	r.priority = o.Priority
	r.cause(o.Cause)
	return r
}

func (r *modelRun) merge(o options) {
	r.cause(o.Cause)
	r.priority = max(r.priority, o.Priority)
	r.endsBackoff = r.endsBackoff || o.EndBackoff && (!o.Backoff || o.After <= 0)
}

// keepUrgent gives a run that takes the place of a plan the high priority of the plan.
func (r *modelRun) keepUrgent(p workqueue.Priority) {
	if p == workqueue.PriorityHigh {
		r.priority = p
	}
}

func (r *modelRun) cause(c cause) {
	for i := range r.causes {
		if merge(&r.causes[i], c) {
			return
		}
	}
	if len(r.causes) == workqueue.MaxCauses {
		r.dropped++
		return
	}
	r.causes = append(r.causes, c)
}

// file records that a due time was set, and makes the key ready if it is due.
func (m *model) file(k *modelKey) {
	m.filed++
	k.next.filed = m.filed
	if k.taken == nil && !k.next.due.After(m.now) {
		m.makeReady(k)
	}
}

func (m *model) makeReady(k *modelKey) {
	r := k.next
	if r.why != "held" {
		r.since = r.due
	}
	r.ready, r.readySince = true, m.now
	m.enter(r)
	m.settle()
}

// enter records that a run has entered its band.
func (m *model) enter(r *modelRun) {
	m.entered++
	r.entered = m.entered
}

// wait advances the time, and makes keys ready at their due times.
func (m *model) wait(d time.Duration) {
	end := m.now.Add(d)
	for {
		var first *modelKey
		for _, k := range m.keys {
			if k.taken != nil || k.next.ready || k.next.due.After(end) {
				continue
			}
			if first == nil || cmp.Or(k.next.due.Compare(first.next.due), k.next.filed-first.next.filed) < 0 {
				first = k
			}
		}
		if first == nil {
			break
		}
		m.now = first.next.due
		m.makeReady(first)
	}
	m.now = end
}

func (m *model) takenOf(group string) int {
	n := 0
	for _, k := range m.keys {
		if k.group == group && k.taken != nil && !k.exempt {
			n++
		}
	}
	return n
}

// band is 0 for low, 1 for normal and 2 for high priority.
func (r *modelRun) band() int { return int(r.priority) + 1 }

// readyOf returns the ready keys of a group in a band, in the order of their turn.
func (m *model) readyOf(group string, band int) []*modelKey {
	var ready []*modelKey
	for _, k := range m.keys {
		if k.next != nil && k.next.ready && k.group == group && k.next.band() == band {
			ready = append(ready, k)
		}
	}
	slices.SortFunc(ready, func(a, b *modelKey) int {
		return cmp.Or(a.next.since.Compare(b.next.since), a.next.filed-b.next.filed)
	})
	return ready
}

// settle removes groups that cannot provide a key of a band from its turns, and appends others that can. Higher bands
// are first.
func (m *model) settle() {
	for band := 2; band >= 0; band-- {
		can := func(group string) bool {
			return len(m.readyOf(group, band)) > 0 && (m.limit <= 0 || m.takenOf(group) < m.limit)
		}
		m.turns[band] = slices.DeleteFunc(m.turns[band], func(group string) bool { return !can(group) })
		for _, k := range m.keys {
			if can(k.group) && !slices.Contains(m.turns[band], k.group) {
				m.turns[band] = append(m.turns[band], k.group)
			}
		}
	}
}

// mayTake reports whether a worker can take a key.
func (m *model) mayTake() bool { return !m.down && slices.ContainsFunc(m.turns[:], hasAny) }

func hasAny(groups []string) bool { return len(groups) > 0 }

// take returns the next key.
func (m *model) take() *modelKey {
	band := m.nextBand()
	group := m.turns[band][0]
	k := m.readyOf(group, band)[0]
	k.taken, k.next, k.released = k.next, nil, false
	m.turns[band] = append(m.turns[band][1:], group)
	m.settle()
	return k
}

// nextBand returns the highest band that can provide a key, or every fourth time an overdue one below it. Several
// overdue bands take turns.
func (m *model) nextBand() int {
	highest := 2
	for len(m.turns[highest]) == 0 {
		highest--
	}
	m.takes++
	if m.takes%4 > 0 {
		return highest
	}
	for range 3 {
		band := m.overdueTurn
		m.overdueTurn = (band + 1) % 3
		if band < highest && len(m.turns[band]) > 0 && m.overdue(band) {
			return band
		}
	}
	return highest // the turn does not change
}

// overdue reports whether the first key in a band has been ready for too long.
func (m *model) overdue(band int) bool {
	var first *modelRun
	for _, k := range m.keys {
		if r := k.next; r != nil && r.ready && r.band() == band && (first == nil || r.entered < first.entered) {
			first = r
		}
	}
	return first != nil && m.now.Sub(first.readySince) >= workqueue.StarvationTimeout
}

func (m *model) done(key byte) {
	k := m.find(key)
	if k == nil || k.taken == nil {
		return
	}
	k.taken, k.exempt = nil, false
	m.settle()
	if k.next == nil || m.down || m.draining && k.next.due.After(m.now) && k.next.why != "held" {
		m.forget(k)
		return
	}
	m.file(k)
}

func (m *model) forget(k *modelKey) {
	m.keys = slices.DeleteFunc(m.keys, func(other *modelKey) bool { return other == k })
}

func (m *model) hold(key byte, h workqueue.Hold) {
	k := m.find(key)
	if k == nil || k.taken == nil || m.down || m.draining && h.EndsWithDrain {
		m.done(key)
		return
	}
	if k.released {
		h.AtMost = 0
	}
	r, meanwhile := k.taken, k.next
	r.endsWithDrain = h.EndsWithDrain
	r.why, r.due, r.ready, r.endsBackoff = "held", m.now.Add(h.AtMost), false, false
	if meanwhile != nil && (meanwhile.why != "planned" || !meanwhile.due.After(r.due)) {
		for _, c := range meanwhile.causes {
			r.cause(c)
		}
		r.dropped += meanwhile.dropped
		r.priority = max(r.priority, meanwhile.priority)
	}
	k.next = r
	m.done(key)
}

func (m *model) exempt(key byte) {
	if k := m.find(key); k != nil && k.taken != nil {
		k.exempt = true
		m.settle()
	}
}

func (m *model) release(key byte) {
	k := m.find(key)
	if k != nil && k.taken != nil {
		k.released = true
	}
	if k != nil && k.taken == nil && k.next.why == "held" && !k.next.ready {
		k.next.due = m.now
		m.file(k)
	}
}

func (m *model) removeCauses(key byte, match func(cause) bool) int {
	k := m.find(key)
	if k == nil || k.taken == nil || k.next == nil || k.next.dropped > 0 || k.next.decides {
		return 0
	}
	var left []cause
	for _, c := range k.next.causes {
		if !match(c) {
			left = append(left, c)
		}
	}
	n := len(k.next.causes) - len(left)
	if k.next.causes = left; len(left) == 0 {
		k.next = nil
	}
	return n
}

// end implements Drain, which keeps ready, held and taken keys, and ShutDown, which keeps taken keys.
func (m *model) end(down bool) {
	if m.draining && !down {
		return
	}
	m.draining, m.down = true, m.down || down
	m.keys = slices.DeleteFunc(m.keys, func(k *modelKey) bool {
		return k.taken == nil && (m.down || !k.next.ready && (k.next.why != "held" || k.next.endsWithDrain))
	})
	m.settle()
}

func (k *modelKey) keyState() workqueue.KeyState {
	switch {
	case k.taken != nil && k.next != nil:
		return workqueue.ProcessingAgain
	case k.taken != nil:
		return workqueue.Processing
	case k.next.ready:
		return workqueue.Ready
	case k.next.why == "backoff":
		return workqueue.Backoff
	case k.next.why == "held":
		return workqueue.Held
	}
	return workqueue.Delayed
}

func (m *model) stats() workqueue.Stats {
	s := workqueue.Stats{Down: m.draining || m.down}
	for _, k := range m.keys {
		switch k.keyState() {
		case workqueue.Processing, workqueue.ProcessingAgain:
			s.Processing++
		case workqueue.Backoff:
			s.Backoff++
		case workqueue.Held:
			s.Held++
		case workqueue.Delayed:
			s.Delayed++
		case workqueue.Ready:
			s.Ready++
			switch k.next.priority {
			case workqueue.PriorityLow:
				s.ReadyLow++
			case workqueue.PriorityNormal:
				s.ReadyNormal++
			case workqueue.PriorityHigh:
				s.ReadyHigh++
			}
			if s.OldestReady.IsZero() || k.next.readySince.Before(s.OldestReady) {
				s.OldestReady = k.next.readySince
			}
		}
	}
	return s
}

// state returns the expected result of Lookup, without the causes.
func (k *modelKey) state() (workqueue.Entry[byte, cause], *modelRun) {
	s, r := workqueue.Entry[byte, cause]{Key: k.key, State: k.keyState()}, k.next
	if r == nil {
		r = k.taken
	}
	s.Due, s.Priority = r.due, r.priority
	if s.State == workqueue.Ready || s.State == workqueue.Processing {
		s.Due = r.since
	}
	return s, r
}
