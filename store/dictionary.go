package store

import (
	"bytes"
	"math/rand/v2"

	"github.com/klauspost/compress/s2"
)

const (
	// dictionaryAfter is how many bytes of objects there must be before a dictionary pays.
	dictionaryAfter = 128 << 10
	// minTrialPuts is how many Puts there are at least to a trial, which takes long.
	minTrialPuts = 4096
	// worthwhile is the share of the present size below which a candidate is taken:
	// every record must be encoded again then.
	worthwhile = 0.8
	// judges is the number of objects on which dictionaries are compared; a candidate has
	// not seen them.
	judges = 16
	// migrateAtPut is the number of slots that each Put looks at for old records.
	migrateAtPut = 4

	// maxSamples is the number of objects that a candidate is made from, at most.
	maxSamples = 256
	// maxSample is how much of one object is looked at for that.
	maxSample = s2.MaxDictSize / 8
	// encoderTables is what the S2 encoder builds for a dictionary once, by its source.
	encoderTables = (1 << 14) * 2
)

// dictionary is what S2 knows before it reads an object. It is immutable.
type dictionary struct {
	s2         *s2.Dict
	size       int
	generation int // from 1
}

func (d *dictionary) encode(buffer, b []byte) []byte {
	if need := s2.MaxEncodedLen(len(b)); cap(buffer) < need {
		buffer = make([]byte, need)
	}
	return d.s2.Encode(buffer[:cap(buffer)], b)
}

func (d *dictionary) decode(buffer, b []byte) ([]byte, error) { return d.s2.Decode(buffer, b) }

// flag is how records that were compressed with d are marked. It tells two dictionaries
// in succession apart; there are never records of more than two.
func (d *dictionary) flag() byte {
	if d == nil {
		return 0
	}
	return 1 + byte(d.generation&1)
}

// dictionaries are those that records use: the current one and, while there are records
// of it, the one before, each where its flag says.
type dictionaries [2]*dictionary

func (d *dictionaries) of(flags byte) *dictionary {
	if flags &= flagDictionary; flags != 0 {
		return d[flags-1]
	}
	return nil
}

// training decides when there is to be another dictionary, as the package's documentation
// tells. It is guarded by the store's mu, but random, which belongs to whoever set trying.
type training struct {
	random     *rand.Rand
	current    *dictionary // nil: none yet
	generation int
	puts       int    // since the last trial
	objects    int    // at the last trial
	cursor     uint32 // the slot that is looked at next for an old record
	migrating  bool
	trying     bool // a trial is being made
}

// due says whether it is time for a trial.
func (t *training) due(objects int, raw int64) bool {
	if t.migrating || raw < dictionaryAfter {
		return false
	}
	return objects >= 2*t.objects || t.puts >= max(minTrialPuts, objects)
}

// train is called after each Put, with mu held. It returns a trial that is to be made when
// mu is free again, if one is due.
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

// try makes a trial, during which others go on reading and writing.
func (s *Store) try(v *view, current *dictionary, raw int64) {
	scratch := s.pool.get()
	defer s.pool.put(scratch)
	samples := v.samples(scratch, s.training.random, judges+maxSamples)
	n := min(judges, len(samples)/3) // there may be few objects, but large ones
	var candidate *dictionary
	if n > 0 {
		// Small stores get small dictionaries: they must save more than they cost.
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
	if candidate != nil && float64(with) <= worthwhile*float64(without) {
		s.adopt(candidate)
	}
}

func (s *scratch) packedSize(d *dictionary, b []byte) int {
	if packed := s.compress(d, b); packed != nil {
		return len(packed)
	}
	return len(b)
}

// adopt makes d the current dictionary. All records that do not use it become old.
func (s *Store) adopt(d *dictionary) {
	t := &s.training
	t.generation++
	d.generation = t.generation
	t.current = d
	s.dictionaries[d.flag()-1] = d
	t.migrating, t.cursor = true, 0
}

// migrate looks at some more slots for records to encode again. Everything that is put
// meanwhile is encoded with the current dictionary, so once over all slots is enough.
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
		panic("store: a record cannot be read that was just written: " + err.Error())
	}
	flags := h.flags &^ flagDictionary
	if packed := scratch.compress(s.training.current, cut); packed != nil {
		cut = packed
		flags |= s.training.current.flag()
	}
	buffer := append(scratch.record[:0], record[:len(record)-len(h.payload)]...)
	buffer[0] = flags
	scratch.record = append(buffer, cut...)
	fresh := string(scratch.record)
	s.account(record, -1)
	s.account(fresh, 1)
	s.setRecord(slot, fresh)
}

// samples returns the payloads of up to n different objects that are chosen at random.
func (v *view) samples(scratch *scratch, random *rand.Rand, n int) [][]byte {
	all := make([][]byte, 0, n)
	seen := make(map[uint32]struct{}, n)
	// A store that has lost most of its objects is mostly empty slots, hence the limit.
	for range 64 * n {
		slot := random.Uint32N(v.slots)
		record := v.record(slot)
		if _, again := seen[slot]; again || record == "" {
			continue
		}
		seen[slot] = struct{}{}
		h := parse(record)
		b, err := scratch.decompress(&h, v.dictionaries.of(h.flags))
		if err != nil {
			panic("store: a record cannot be read that was just written: " + err.Error())
		}
		all = append(all, bytes.Clone(b[:min(len(b), maxSample)]))
		if len(all) == n || len(all) == v.live {
			break
		}
	}
	return all
}
