package workqueue_test

import (
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/workqueue"
)

// model is a queue that is slow and easy to believe: it looks at every key at every step.
// Time is what its user says it is.
type model struct {
	now  time.Time
	keys map[byte]*modelKey
	down bool
}

// modelKey is what is known of a key. One that is neither to be run nor taken is not kept.
type modelKey struct {
	toRun    bool
	due      time.Time
	priority workqueue.Priority
	causes   []workqueue.Cause
	dropped  int
	taken    bool
}

func (m *model) add(key byte, o workqueue.Options) {
	if m.down {
		return
	}
	k := m.keys[key]
	if k == nil {
		k = &modelKey{}
		m.keys[key] = k
	}
	due := m.now.Add(max(o.After, 0))
	switch isNow := !due.After(m.now); {
	case !k.toRun, k.due.After(m.now) && due.Before(k.due):
		// It was not to be run, or only later than now asked for.
		k.toRun, k.due, k.priority, k.causes, k.dropped = true, due, o.Priority, nil, 0
		k.cause(o.Cause)
	case isNow, due.Equal(k.due):
		// It is due already, or will be at the same time: merge.
		k.priority = max(k.priority, o.Priority)
		k.cause(o.Cause)
	}
	// Otherwise what was there comes first, and decides anew.
}

func (k *modelKey) cause(c workqueue.Cause) {
	switch {
	case slices.Contains(k.causes, c):
	case len(k.causes) < workqueue.MaxCauses:
		k.causes = append(k.causes, c)
	default:
		k.dropped++
	}
}

// next returns the keys of which any may be handed out next: those that are due, that no
// worker has, and that no other such key comes before.
func (m *model) next() []byte {
	var first []byte
	for key, k := range m.keys {
		if !m.ready(k) || m.passed(k) {
			continue
		}
		first = append(first, key)
	}
	return first
}

func (m *model) ready(k *modelKey) bool { return k.toRun && !k.taken && !k.due.After(m.now) }

// passed reports whether another key must be handed out before k.
func (m *model) passed(k *modelKey) bool {
	for _, other := range m.keys {
		if !m.ready(other) {
			continue
		}
		before := other.due.Before(k.due)
		switch {
		case other.priority > k.priority:
			before = other.due.Before(k.due.Add(workqueue.LowPriorityPatience))
		case other.priority < k.priority:
			before = other.due.Add(workqueue.LowPriorityPatience).Before(k.due)
		}
		if before {
			return true
		}
	}
	return false
}

// take marks key as taken, and returns what its worker is to be told.
func (m *model) take(key byte) modelKey {
	k := m.keys[key]
	told := *k
	*k = modelKey{taken: true}
	return told
}

func (m *model) done(key byte) {
	k := m.keys[key]
	if k == nil || !k.taken {
		return
	}
	k.taken = false
	if !k.toRun || m.down {
		delete(m.keys, key)
	}
}

func (m *model) stats() workqueue.Stats {
	s := workqueue.Stats{Down: m.down}
	for _, k := range m.keys {
		switch {
		case k.taken:
			s.Taken++
		case m.ready(k):
			s.Ready++
		default:
			s.Waiting++
		}
	}
	return s
}

func (m *model) shutDown() {
	m.down = true
	for key, k := range m.keys {
		if !k.taken {
			delete(m.keys, key)
		}
	}
}
