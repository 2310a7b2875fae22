package store

import (
	"bytes"
	"math/rand/v2"

	"github.com/klauspost/compress/s2"
)

const (
	// dictionaryAfter is the total size of objects from which on a dictionary saves memory.
	dictionaryAfter = 128 << 10
	// minTrialPuts is the minimum number of Puts between trials, because a trial is slow.
	minTrialPuts = 4096
	// maxRelativeSize is the maximum size of a candidate's result relative to the current one. A higher size is not
	// worth re-encoding every record.
	maxRelativeSize = 0.8
	// testSamples is the number of objects on which dictionaries are compared. They are not part of the candidate.
	testSamples = 16
	// migrateAtPut is the number of slots that each Put checks for old records.
	migrateAtPut = 4

	// maxSamples is the maximum number of objects in a candidate.
	maxSamples = 256
	// maxSample is the maximum number of bytes that are used of one object.
	maxSample = s2.MaxDictSize / 8
	// encoderTables is the memory that the S2 encoder allocates per dictionary, according to its source.
	encoderTables = (1 << 14) * 2
)

// dictionary is an S2 dictionary. It is immutable.
type dictionary struct {
	s2         *s2.Dict
	size       int
	generation int // starts at 1
}

func (d *dictionary) encode(buffer, b []byte) []byte {
	if need := s2.MaxEncodedLen(len(b)); cap(buffer) < need {
		buffer = make([]byte, need)
	}
	return d.s2.Encode(buffer[:cap(buffer)], b)
}

func (d *dictionary) decode(buffer, b []byte) ([]byte, error) { return d.s2.Decode(buffer, b) }

// flag returns the mark of records that were compressed with d. It distinguishes two successive dictionaries. There are
// never records of more than two.
func (d *dictionary) flag() byte {
	if d == nil {
		return 0
	}
	return 1 + byte(d.generation&1)
}

// dictionaries are the ones in use: the current one and, while it has records, the previous one, each at the index of
// its flag.
type dictionaries [2]*dictionary

func (d *dictionaries) of(flags byte) *dictionary {
	if flags &= flagDictionary; flags != 0 {
		return d[flags-1]
	}
	return nil
}

// training decides when to try another dictionary, see the package documentation. It is guarded by the store's mu,
// except random, which belongs to the goroutine that has set trying.
type training struct {
	random     *rand.Rand
	current    *dictionary // nil before the first
	generation int
	puts       int    // since the last trial
	objects    int    // at the last trial
	cursor     uint32 // the next slot to check for an old record
	migrating  bool
	trying     bool // a trial is running
}

// due reports whether a trial is due.
func (t *training) due(objects int, raw int64) bool {
	if t.migrating || raw < dictionaryAfter {
		return false
	}
	return objects >= 2*t.objects || t.puts >= max(minTrialPuts, objects)
}

// train is called after each Put, with mu held. If a trial is due, it returns a function that must be called without
// mu.
func (s *Store) train() (trial func()) {
	t := &s.training
	t.puts++
	if t.migrating {
		s.migrate(migrateAtPut)
	}
	if t.trying || !t.due(s.live, s.raw) {
		return nil
	}
	t.puts, t.objects, t.trying = 0, s.live, true
	v, current, raw := s.share(), t.current, s.raw
	return func() { s.try(&v, current, raw) }
}

// try makes a trial. Other goroutines may read and write concurrently.
func (s *Store) try(v *view, current *dictionary, raw int64) {
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	samples := v.samples(scratch, s.training.random, testSamples+maxSamples)
	n := min(testSamples, len(samples)/3) // there may be few but large objects
	var candidate *dictionary
	if n > 0 {
		// Small stores get small dictionaries, which must save more than they need.
		candidate = newDictionary(samples[n:], int(min(s2.MaxDictSize, raw/4)))
	}
	var with, without int
	for _, b := range samples[:n] {
		without += scratch.packedSize(current, b)
		with += scratch.packedSize(candidate, b)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training.trying = false
	if candidate != nil && float64(with) <= maxRelativeSize*float64(without) {
		s.adopt(candidate)
	}
}

func (s *scratch) packedSize(d *dictionary, b []byte) int {
	if packed := s.compress(d, b); packed != nil {
		return len(packed)
	}
	return len(b)
}

// adopt makes d the current dictionary. All existing records become old.
func (s *Store) adopt(d *dictionary) {
	t := &s.training
	t.generation++
	d.generation = t.generation
	t.current = d
	s.dictionaries[d.flag()-1] = d
	t.migrating, t.cursor = true, 0
}

// migrate checks some more slots for records to re-encode. New records use the current dictionary, so one pass over all
// slots is sufficient.
func (s *Store) migrate(slots int) {
	t := &s.training
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	for range slots {
		if t.cursor >= s.slots {
			t.migrating = false
			s.dictionaries = dictionaries{}
			s.dictionaries[t.current.flag()-1] = t.current
			return
		}
		if record := s.record(t.cursor); record != "" && record[0]&flagDictionary != t.current.flag() {
			s.reencode(scratch, t.cursor, record)
		}
		t.cursor++
	}
}

// reencode encodes the record with the current dictionary.
func (s *Store) reencode(scratch *scratch, slot uint32, record string) {
	h := parse(record)
	cut, err := scratch.decompress(&h, s.dictionaries.of(h.flags))
	if err != nil {
		panic("store: a record of this store cannot be read: " + err.Error())
	}
	flags := h.flags &^ flagDictionary
	if packed := scratch.compress(s.training.current, cut); packed != nil {
		cut = packed
		flags |= s.training.current.flag()
	}
	buffer := append(scratch.record[:0], record[:len(record)-len(h.payload)]...)
	buffer[0] = flags
	scratch.record = append(buffer, cut...)
	s.rewrite(slot, record, string(scratch.record))
}

// rewrite replaces a record by another encoding of the same state.
func (s *Store) rewrite(slot uint32, record, fresh string) {
	s.kept += int64(allocated(len(fresh)) - allocated(len(record)))
	s.setRecord(slot, fresh)
}

// samples returns the payloads of up to n different random objects.
func (v *view) samples(scratch *scratch, random *rand.Rand, n int) [][]byte {
	all := make([][]byte, 0, n)
	seen := make(map[uint32]struct{}, n)
	// A store that has lost most of its objects has mostly empty slots, hence the limit.
	for range 64 * n {
		slot := random.Uint32N(v.slots)
		record := v.record(slot)
		if _, isDuplicate := seen[slot]; isDuplicate || record == "" {
			continue
		}
		seen[slot] = struct{}{}
		h := parse(record)
		b, err := scratch.decompress(&h, v.dictionaries.of(h.flags))
		if err != nil {
			panic("store: a record of this store cannot be read: " + err.Error())
		}
		all = append(all, bytes.Clone(b[:min(len(b), maxSample)]))
		if len(all) == n || len(all) == v.live {
			break
		}
	}
	return all
}
