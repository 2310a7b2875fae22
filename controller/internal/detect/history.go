package detect

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

const (
	// undoneLimit is how many times the same value of a field must have been written again after another client
	// changed it: five times the same write.
	undoneLimit = 4
	// returnLimit is how many times the same must have been written in one series of echoes.
	returnLimit = 5
	// endlessLimit is the number of writes in a series of echoes that makes it a hot loop.
	endlessLimit = 300
	// flipLimit is the number of runs that must have left the object as an earlier run did.
	flipLimit = 30
	// dullLimit is the number of writes in a row without any sign of a loop after which an object is ignored for a
	// window.
	dullLimit = 64
	// maxStates is the number of different written states that are kept: longer cycles are not detected.
	maxStates = 16
	// maxManagers is the maximum number of field managers that are kept: of the key's own, and of the others.
	maxManagers = 4
)

// history is the history of a suspect's writes of one object.
//
// The detectors do not compare whole states of the object. Other clients also write to it (after each conflict over a
// spec, the status changes, with counters in it), so whole states hardly ever return. The detectors compare what the
// key has written: the last value of each field. All times count as one value.
type history struct {
	last    *wire.Object // the state after the last write; nil: not kept
	version string       // of the last recorded write

	fields map[string]*field // fields that the key has changed, by path
	// state is a hash of the values in fields. states are the hashes after the last writes.
	state  uint64
	states []returning

	// For PatternFlipping: runs are compared by the state that they leave, so that a change that a run reverts itself
	// does not count.
	run    uint64
	about  bool     // a change of the object by another client caused the run
	left   uint64   // the state that the previous run left
	before []uint64 // the states that earlier runs left
	flips  tally

	dull     int      // writes in a row without a sign
	own      []string // the key's field managers
	opposing []string // other managers that have undone the key's writes
}

type returning struct {
	state  uint64
	echoes tally // in the current series
}

// field is a field that the key has changed.
type field struct {
	to uint64 // hash of the value that the key wrote last
	// mixed: the value may be another client's, or the key itself has changed a parent or a child of the field. A
	// different value in the field then proves nothing.
	mixed       bool
	time        bool        // all its values were times
	changes     int         // by the key
	undone      tally       // how often the key has restored the value
	otherWrites int         // how often, since undone.since, another client's change was found
	last        FieldChange // shortened
}

// fought reports whether the key restores values that other clients change. A key that mostly keeps their values does
// not: a value that looks restored is then one that they wrote during the key's write.
func (f *field) fought() bool {
	return f.undone.count >= undoneLimit && f.otherWrites <= 2*f.undone.count
}

// signs are the signs of a loop in one write.
type signs struct {
	undone  *field // another client changed the field since the key wrote the same value
	returns int    // how many times the same was written in a series of echoes
	flip    bool   // the previous run left the state that an earlier run left
}

func newHistory() *history { return &history{fields: make(map[string]*field)} }

// forget clears the history after a write that cannot be compared: the key's last values are then unknown.
func (k *history) forget() {
	clear(k.fields)
	k.state, k.left, k.states, k.before = 0, 0, nil, nil
}

// note adds a write's changes, and returns their signs.
func (k *history) note(
	seed maphash.Seed, d comparison, l *look, run uint64, now time.Time, window time.Duration,
) (s signs) {
	if run != k.run {
		s.flip = k.settle(now, window)
		k.run, k.about = run, l.about
	}
	if len(k.fields)+len(d.own) > 2*maxFields {
		k.forget()
	}
	for _, c := range d.otherChanges {
		if f := k.fields[c.Path]; f != nil && hashValue(seed, c.To) != f.to {
			f.otherWrites++
		}
	}
	for _, c := range d.own {
		f, undone := k.write(seed, c, d.isCertain)
		if !undone {
			continue
		}
		if f.undone.add(now, window) == 1 {
			f.otherWrites = 0
		}
		if s.undone == nil || f.undone.count > s.undone.undone.count {
			s.undone = f
		}
	}
	if present := k.present(); l.echo {
		s.returns = present.echoes.add(now, window)
	}
	return s
}

// write records that the key changed a field. undone is true if the key only restored its own last value.
func (k *history) write(seed maphash.Seed, c FieldChange, isCertain bool) (f *field, undone bool) {
	to := hashValue(seed, c.To)
	f, known := k.fields[c.Path]
	if known {
		undone = isCertain && f.to == to && !f.mixed && !c.isTime()
		k.state ^= hashField(seed, c.Path, f.to)
		if !undone {
			f.undone = tally{}
		}
	} else {
		f = &field{time: true}
		k.fields[c.Path] = f
	}
	for path, other := range k.fields {
		if within(path, c.Path) || within(c.Path, path) {
			other.mixed = true
		}
	}
	f.to, f.mixed, f.time = to, !isCertain, f.time && c.isTime()
	f.changes++
	f.last = shorten(c)
	k.state ^= hashField(seed, c.Path, to)
	return f, undone
}

// present returns the entry of the current state.
func (k *history) present() *returning {
	i := slices.IndexFunc(k.states, func(r returning) bool { return r.state == k.state })
	if i < 0 {
		if len(k.states) == maxStates {
			k.states = slices.Delete(k.states, 0, 1)
		}
		k.states = append(k.states, returning{state: k.state})
		i = len(k.states) - 1
	}
	return &k.states[i]
}

// settle records the state that the last run left, and reports whether the run was a flip: its state differs from
// that of the run before, but equals that of an earlier run, and a change by another client caused the run.
func (k *history) settle(now time.Time, window time.Duration) (flip bool) {
	if k.state == k.left {
		return false
	}
	k.left = k.state
	if slices.Contains(k.before, k.state) {
		if k.about {
			k.flips.add(now, window)
		}
		return k.about
	}
	if len(k.before) == maxStates {
		k.before = slices.Delete(k.before, 0, 1)
	}
	k.before = append(k.before, k.state)
	return false
}

// endRow ends the series of echoes: something else than the key's own writes caused the run of a write.
func (k *history) endRow() {
	for i := range k.states {
		k.states[i].echoes = tally{}
	}
}

// oppose records manager as opposing if a change by another client undoes what the key wrote.
func (k *history) oppose(seed maphash.Seed, changes []FieldChange, manager string) {
	for _, c := range changes {
		f := k.fields[c.Path]
		if f != nil && !f.mixed && !c.isTime() && hashValue(seed, c.From) == f.to {
			k.opposing = addManager(k.opposing, manager)
			return
		}
	}
}

func addManager(managers []string, manager string) []string {
	if manager == "" || len(managers) == maxManagers || slices.Contains(managers, manager) {
		return managers
	}
	return append(managers, manager)
}

// within reports whether path is a part of outer.
func within(path, outer string) bool {
	return len(path) > len(outer) && strings.HasPrefix(path, outer) &&
		(path[len(outer)] == '.' || path[len(outer)] == '[')
}

// hashValue returns the hash of a field's value. All times have the same hash.
func hashValue(seed maphash.Seed, encoded string) uint64 {
	if looksLikeTime(encoded) {
		encoded = "time"
	}
	return maphash.String(seed, encoded)
}

func hashField(seed maphash.Seed, path string, value uint64) uint64 {
	return maphash.Comparable(seed, struct {
		path  string
		value uint64
	}{path, value})
}
