package detect

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// A run that writes an object scores points, by the evidence that it brings nothing new. A total of loopPoints within
// the window is a hot loop. News ends the row: something that the key and the other writers of the object have not
// written before, or an external event. Echo means that only the key's own writes caused the run.
const (
	loopPoints = 3000
	// An echo that leaves the object as the run before did, perhaps with another time in it: the fifth equal write is a
	// loop. An echo that leaves it as an earlier run did: the 8th.
	pointsEqualEcho     = 750
	pointsReturningEcho = 375
	// A run that leaves the object as an earlier run did, but not the one before, caused by another client's change of
	// the object: the 30th. A deletion and creation of the object by the key: the 30th.
	pointsFlip      = 100
	pointsRecreated = 100
	// An echo that leaves the object in a new state: the 300th.
	pointsEcho = 10
	// Any other run that leaves the object as an earlier run did, for example with another time in it, and any other
	// creation of the same object: the 600th, two a second. What flaps outside of the cluster is usually slower.
	pointsIdle = 5
)

const (
	// undoneLimit is how many times the same value of a field must have been written again after another client
	// changed it: five times the same write.
	undoneLimit = 4
	// endlessRuns is the number of runs within the window that wrote the object, whatever they wrote and whatever
	// clients changed in between, unless another object has changed: ten a second.
	endlessRuns = 3000
	// dullLimit is the number of writes in a row without any sign of a loop after which an object is ignored for a
	// window.
	dullLimit = 64
	// maxStates is the number of different written states that are kept: longer cycles are not detected.
	maxStates = 16
	// maxSeen is the number of values of other clients that are kept.
	maxSeen = 256
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
	state  uint64            // a hash of the values in fields

	// Runs are compared by the state that they leave, so that a change that a run reverts itself does not count.
	run    uint64
	origin origin
	news   uint64              // the suspect's news when the last run wrote
	isNews bool                // something new happened before that run
	left   uint64              // the state that the run before left
	before []uint64            // the states that earlier runs left
	seen   map[uint64]struct{} // hashes of values that other clients wrote
	score  tally

	dull     int      // writes in a row without a sign
	own      []string // the key's field managers
	opposing []string // other managers that have undone the key's writes
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
	undone  *field  // another client changed the field since the key wrote the same value
	pattern Pattern // of the run before, if it scored
	points  int
}

func newHistory(news uint64) *history {
	return &history{fields: make(map[string]*field), seen: make(map[uint64]struct{}), news: news}
}

// forget clears the history after a write that cannot be compared: the key's last values are then unknown.
func (k *history) forget() {
	clear(k.fields)
	k.state, k.left, k.before = 0, 0, nil
}

// note adds a write's changes, and returns their signs.
func (h *HotLoops) note(k *history, d comparison, l *look, run uint64, now time.Time) (s signs) {
	if run != k.run {
		if k.run != 0 {
			s.pattern, s.points = k.settle()
		}
		if s.points > 0 {
			k.score.add(s.points, now)
		} else {
			k.score = tally{}
		}
		news := h.suspects[l.track.key].news
		k.run, k.origin, k.isNews, k.news = run, l.origin, l.external || news != k.news, news
	}
	if !d.known {
		k.forget()
		return s
	}
	if len(k.fields)+len(d.own) > 2*maxFields {
		k.forget()
	}
	for _, c := range d.otherChanges {
		if f := k.fields[c.Path]; f != nil && hashValue(h.seed, c.To) != f.to {
			f.otherWrites++
		}
	}
	for _, c := range d.own {
		f, undone := k.write(h.seed, c, d.isCertain)
		if !undone {
			continue
		}
		if f.undone.add(0, now); f.undone.count == 1 {
			f.otherWrites = 0
		}
		if s.undone == nil || f.undone.count > s.undone.undone.count {
			s.undone = f
		}
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

// settle compares the state that the last run left with those of the runs before. It returns the points that the run
// scores; none: it has brought something new, or something new has caused it.
func (k *history) settle() (Pattern, int) {
	moved, known := k.state != k.left, slices.Contains(k.before, k.state)
	k.left = k.state
	if !known {
		if len(k.before) == maxStates {
			k.before = slices.Delete(k.before, 0, 1)
		}
		k.before = append(k.before, k.state)
	}
	switch {
	case known && k.origin.echo && !moved:
		return PatternReturning, pointsEqualEcho
	case known && k.origin.echo:
		return PatternReturning, pointsReturningEcho
	case k.origin.echo:
		return PatternEndless, pointsEcho
	case k.isNews || !known:
		return "", 0
	case moved && k.origin.about:
		return PatternFlipping, pointsFlip
	}
	return PatternIdle, pointsIdle
}

// oppose records a change by another client. It returns whether the change brings something new, and records manager
// as opposing if the change undoes what the key wrote.
func (k *history) oppose(seed maphash.Seed, changes []FieldChange, manager string) (isNews bool) {
	opposes := false
	for _, c := range changes {
		f := k.fields[c.Path]
		opposes = opposes || f != nil && !f.mixed && !c.isTime() && hashValue(seed, c.From) == f.to
		value := hashField(seed, c.Path, hashValue(seed, c.To))
		if _, known := k.seen[value]; known || c.isReaction() {
			continue
		}
		if isNews = true; len(k.seen) == maxSeen {
			clear(k.seen)
		}
		k.seen[value] = struct{}{}
	}
	if opposes {
		k.opposing = addManager(k.opposing, manager)
	}
	return isNews
}

// isReaction reports whether the change may be a mere consequence of any write: a time, or the generation of it.
func (c FieldChange) isReaction() bool {
	return c.isTime() || c.Path == "observedGeneration" || strings.HasSuffix(c.Path, ".observedGeneration")
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
