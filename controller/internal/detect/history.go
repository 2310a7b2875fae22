package detect

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

const (
	// undoneLimit is how many times the same value of a field must have been written again
	// after somebody else had changed it: five times the same write.
	undoneLimit = 4
	// returnLimit is how many times in a row of echoes the same must have been written.
	returnLimit = 5
	// endlessLimit is how long a row of echoes may be.
	endlessLimit = 300
	// flipLimit is how many runs must have left the object as an earlier one had.
	flipLimit = 30
	// dullLimit is how many writes in a row without any sign of a loop are enough.
	dullLimit = 64
	// maxStates is how many different states of what was written are remembered: cycles of more
	// are not seen.
	maxStates = 16
	// maxManagers is how many field managers are remembered, of each side.
	maxManagers = 4
)

// history is what is known of the writes of one object by a suspect.
//
// The detectors do not look at whole states of the object: others write to it as well (a status
// follows each fight over a spec, with counters in it), so that whole states hardly ever return.
// They look at what the key has written: for each field the last value. Times count as one
// value.
type history struct {
	last    *wire.Object // the state after the last write; nil: not kept
	version string       // of the last write that was noted

	fields map[string]*field // what the key has changed, by path
	// state is a hash of the values in fields, and states are those of the last writes.
	state  uint64
	states []returning

	// For PatternFlipping: runs are compared by what they leave, so that what a run sets and
	// takes back does not count.
	run    uint64
	about  bool     // a change of the object by others had caused the run
	left   uint64   // the state that the run before left
	before []uint64 // the states that earlier runs left
	flips  tally

	dull     int      // writes in a row without a sign
	own      []string // the key's field managers
	opposing []string // the others that have undone what the key wrote
}

type returning struct {
	state  uint64
	echoes tally // in the present row
}

// field is one that the key has changed.
type field struct {
	to uint64 // hash of the value that the key has written last
	// mixed: the value may not be the key's, or the key itself has changed what contains the field
	// or what the field contains. Nothing follows from finding another value in it.
	mixed   bool
	time    bool        // it has only ever been a time
	changes int         // by the key
	undone  tally       // how often the key has restored the value
	others  int         // how often meanwhile it has found that others had changed it
	last    FieldChange // shortened
}

// fought tells that the key restores what others change. Who mostly leaves their values alone
// does not: then a value that looks restored is one that they wrote during the key's write.
func (f *field) fought() bool { return f.undone.count >= undoneLimit && f.others <= 2*f.undone.count }

// signs is what one write has shown.
type signs struct {
	undone  *field // somebody else has changed the field since the key wrote the same
	returns int    // how many times the same was written in a row of echoes
	flip    bool   // the run before has left what an earlier one had
}

func newHistory() *history { return &history{fields: make(map[string]*field)} }

// forget is for a write that cannot be compared: what the key has written is not known any more.
func (k *history) forget() {
	clear(k.fields)
	k.state, k.left, k.states, k.before = 0, 0, nil, nil
}

// note adds a write's changes, and says what they show.
func (k *history) note(seed maphash.Seed, d difference, l *look, run uint64, now time.Time, window time.Duration) (s signs) {
	if run != k.run {
		s.flip = k.settle(now, window)
		k.run, k.about = run, l.about
	}
	if len(k.fields)+len(d.own) > 2*maxFields {
		k.forget()
	}
	for _, c := range d.others {
		if f := k.fields[c.Path]; f != nil && hashValue(seed, c.To) != f.to {
			f.others++
		}
	}
	for _, c := range d.own {
		f, undone := k.write(seed, c, d.sure)
		if !undone {
			continue
		}
		if f.undone.add(now, window) == 1 {
			f.others = 0
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

// write notes that the key has changed a field. undone is true when that only restored what it
// had written before.
func (k *history) write(seed maphash.Seed, c FieldChange, sure bool) (f *field, undone bool) {
	to := hashValue(seed, c.To)
	f, known := k.fields[c.Path]
	if known {
		undone = sure && f.to == to && !f.mixed && !c.isTime()
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
	f.to, f.mixed, f.time = to, !sure, f.time && c.isTime()
	f.changes++
	f.last = shorten(c)
	k.state ^= hashField(seed, c.Path, to)
	return f, undone
}

// present returns the entry of the present state.
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

// settle notes what the last run has left, and tells whether that was a flip: another state than
// the run before had left, but one that there has been.
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

// endRow is for a write of a run that something else than the key's own writes has caused.
func (k *history) endRow() {
	for i := range k.states {
		k.states[i].echoes = tally{}
	}
}

// oppose notes a change by somebody else: whether it undoes what the key has written.
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

// within tells whether path is a part of what outer names.
func within(path, outer string) bool {
	return len(path) > len(outer) && strings.HasPrefix(path, outer) && (path[len(outer)] == '.' || path[len(outer)] == '[')
}

// hashValue hashes a field's value. All times are one.
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
