package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// fresh returns the size of an object in a new store.
func fresh(t *testing.T, all []*wire.Object) int64 {
	t.Helper()
	s := newStore(Config{}, newHashes(), 1)
	put(t, s, all...)
	return s.Sizes().Bytes / int64(s.Len())
}

func TestDictionariesAdaptToObjects(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	const n = 4500
	pods, widgets := newCluster(t, 1, 20).pods(n), newCluster(t, 2, 20).widgets(n)
	s := newStore(Config{}, newHashes(), 1)
	put(t, s, pods...)
	podRef, _ := s.Get(pods[0].Key) // its dictionary will be replaced
	first := s.Sizes()
	if first.Generation == 0 || first.Dictionary == 0 {
		t.Fatalf("no dictionary: %+v", first)
	}
	for i := range n {
		s.Delete(pods[i].Key)
		put(t, s, widgets[i])
	}
	for range 2 { // updates
		put(t, s, widgets...)
	}
	got, want := s.Sizes().Bytes/int64(s.Len()), fresh(t, widgets)
	t.Logf("drifted to %d B per object, %d B in a fresh store; %+v", got, want, s.Sizes())
	if got > want*5/4 {
		t.Errorf("an object costs %d B after the drift, %d B in a fresh store", got, want)
	}
	if s.Sizes().Generation <= first.Generation {
		t.Error("the dictionary was never replaced")
	}
	if err := podRef.Read(func(o *wire.Object) error {
		if !bytes.Equal(o.Bytes, pods[0].Bytes) {
			t.Error("a Ref returns other bytes after its dictionary was replaced")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	checkAll(t, s)
	for _, o := range widgets {
		r, _ := s.Get(o.Key)
		if !r.Same(o) { // another object with the same name
			continue
		}
		_ = r.Read(func(got *wire.Object) error {
			if !bytes.Equal(o.Bytes, got.Bytes) {
				t.Errorf("the bytes of %s have changed", o.Key)
			}
			return nil
		})
	}
}

// The dictionary is replaced while Put waits for the lock.
func TestPutAfterDictionaryChange(t *testing.T) {
	t.Parallel()
	s := newStore(Config{}, newHashes(), 1)
	pods := newCluster(t, 1, 3).pods(500)
	put(t, s, pods...)
	o, scratch := pods[7], &scratch{}
	f, err := s.facts(o)
	if err != nil {
		t.Fatal(err)
	}
	p := scratch.pack(o, s.training.current)
	for range 2 { // the next but one has the same flag
		s.adopt(newDictionary([][]byte{pods[1].Bytes, pods[2].Bytes}, 10_000))
		s.migrate(1000)
	}
	s.enter(o, s.hashes.key(o.Key.Namespace, o.Key.Name), &place{changes: s.changes + 1}, &f, p, scratch)
	r, _ := s.Get(o.Key)
	if err := r.Read(func(got *wire.Object) error {
		if !bytes.Equal(got.Bytes, o.Bytes) {
			t.Error("the bytes have changed")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// After enough Puts only the current dictionary is in use.
func TestMigrationEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 10)
	s := newStore(Config{}, newHashes(), 1)
	for i := 0; s.training.current == nil; i++ {
		put(t, s, object(t, c.pod()))
	}
	if !s.training.migrating {
		t.Fatal("no record was re-encoded after the first dictionary")
	}
	n := s.Len()
	put(t, s, c.pods(n/migrateAtPut+n/2)...)
	if s.training.migrating {
		t.Fatal("the migration does not end")
	}
	for _, record := range s.records() {
		if record[0]&flagDictionary != s.training.current.flag() {
			t.Errorf("a record of %d B is still old", len(record))
		}
	}
	if s.dictionaries[0] != nil && s.dictionaries[1] != nil {
		t.Error("the previous dictionary is kept")
	}
}

func TestSmallStoresHaveNoDictionary(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	put(t, s, newCluster(t, 1, 3).pods(40)...)
	if sizes := s.Sizes(); sizes.Generation != 0 || sizes.Dictionary != 0 || sizes.Bytes > sizes.Raw+20<<10 {
		t.Errorf("a store of 40 objects has %+v", sizes)
	}
}

// Objects that do not get shorter are stored uncompressed.
func TestIncompressibleObjects(t *testing.T) {
	t.Parallel()
	s := newStore(Config{}, newHashes(), 1)
	put(t, s, newCluster(t, 1, 3).pods(500)...)
	random := rand.NewChaCha8([32]byte{1})
	for _, size := range []int{0, 1, 20, 1000, 70_000, 1 << 20} {
		noise := make([]byte, size)
		_, _ = random.Read(noise)
		for name, content := range map[string][]byte{
			"noise":  noise,
			"text":   []byte(strings.Repeat("much the same. ", size/15)),
			"digits": []byte("://" + strings.Repeat("0123456789abcdef", size/16)),
		} {
			// Not a valid message: only labels and owners would be read.
			o := &wire.Object{Format: wire.Protobuf, Bytes: content, Key: kube.Key{Name: name}, UID: "u", ResourceVersion: "1"}
			if _, _, err := s.Put(o); err != nil {
				t.Fatal(err)
			}
			r, _ := s.Get(o.Key)
			if err := r.Read(func(got *wire.Object) error {
				if !bytes.Equal(content, got.Bytes) {
					t.Errorf("%d B of %s are read as %d different ones", size, name, len(got.Bytes))
				}
				return nil
			}); err != nil {
				t.Errorf("%d B of %s: %v", size, name, err)
			}
			if most := len(content) + 100; len(r.record) > most {
				t.Errorf("%d B of %s are stored in %d", size, name, len(r.record))
			}
		}
	}
}

func TestCorruptRecord(t *testing.T) {
	t.Parallel()
	s := newStore(Config{}, newHashes(), 1)
	pods := newCluster(t, 1, 3).pods(500)
	put(t, s, pods...)
	r, _ := s.Get(pods[0].Key)
	r = s.open(r.record[:len(r.record)-5], s.pool)
	if err := r.Read(func(*wire.Object) error { return nil }); err == nil || !strings.Contains(err.Error(), pods[0].Key.Name) {
		t.Errorf("Read of a corrupt record: %v", err)
	}
	_, slot, _ := s.find(s.hashes.key(pods[0].Key.Namespace, pods[0].Key.Name), pods[0].Key)
	s.setRecord(slot, r.record)
	errs := 0
	for _, err := range objectsOf(s, Query{}) {
		if err != nil {
			errs++
		}
	}
	if errs != 1 {
		t.Errorf("List of a store with a corrupt record has %d errors", errs)
	}
}

// Compression saves more for large objects than for many small ones.
func TestFewLargeObjectsAreCompressed(t *testing.T) {
	t.Parallel()
	s := newStore(Config{}, newHashes(), 1)
	for i := range 9 {
		o := simple(t, fmt.Sprint("large-", i), "1", "")
		o.Bytes = append(o.Bytes, 2<<3|2, 0x80, 0x80, 0x10) // a field of 256 KB
		for len(o.Bytes) < 256<<10 {
			o.Bytes = fmt.Appendf(o.Bytes, "setting-%d: value-%d\n", len(o.Bytes), i)
		}
		put(t, s, o, o)
	}
	if sizes := s.Sizes(); sizes.Bytes > sizes.Raw/2 {
		t.Errorf("%+v", sizes)
	}
}

func BenchmarkTrial(b *testing.B) {
	s := newStore(Config{}, newHashes(), 1)
	put(b, s, newCluster(b, 1, 40).pods(5000)...)
	for b.Loop() {
		s.training.puts, s.training.migrating = benched, false
		s.train()()
	}
}

// Spliced parts must not remain in the payload.
func TestSplicedPartsAreRemoved(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0123456789abcdef", 4)
	for before := range 70 {
		o := simple(t, "some-name", "12345678", "")
		o.Bytes = append(o.Bytes, strings.Repeat("-", before)+"containerd://"+digits+"\""...)
		var s scratch
		s.cutOut(o)
		for _, part := range []string{o.Key.Name, string(o.UID), o.ResourceVersion, digits} {
			if bytes.Contains(s.cut, []byte(part)) {
				t.Errorf("with %d bytes before the digits, %q remains in the payload", before, part)
			}
		}
	}
}

// TestAnyBytesAreRestored puts random payloads of complete and truncated spliced parts, parts of other objects and
// noise.
func TestAnyBytesAreRestored(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	c := newCluster(t, 3, 20)
	pods := c.pods(200)
	s := newStore(Config{}, newHashes(), 5)
	put(t, s, pods...)
	if s.Sizes().Generation == 0 {
		t.Fatal("too few objects for a dictionary")
	}
	for i := range 2000 {
		o := &wire.Object{
			Format: wire.JSON, Key: kube.Key{Namespace: "x", Name: "name-" + c.hex(1+c.random.IntN(6))}, UID: c.uid(), ResourceVersion: c.nextVersion(),
		}
		parts := []string{
			o.Key.Name, o.Key.Name[:4], string(o.UID), o.ResourceVersion, beforeDigits, beforeDigits + beforeDigits,
			beforeDigits + c.hex(33), "containerd" + beforeDigits + c.hex(64), c.hex(c.random.IntN(300)), c.hex(5) + beforeDigits, "\u00e9\x00",
		}
		for range c.random.IntN(30) {
			if c.random.IntN(3) > 0 {
				o.Bytes = append(o.Bytes, c.pick(parts...)...)
				continue
			}
			pod := pods[c.random.IntN(len(pods))].Bytes
			from := c.random.IntN(len(pod))
			o.Bytes = append(o.Bytes, pod[from:from+c.random.IntN(len(pod)-from)]...)
			o.Bytes = append(o.Bytes, byte(c.random.IntN(256)))
		}
		if i%500 == 0 { // longer than a dictionary
			o.Bytes = bytes.Repeat(append(o.Bytes, 'x'), 200)
		}
		put(t, s, o)
		r, _ := s.Get(o.Key)
		if err := r.Read(func(got *wire.Object) error {
			if describe(got) != describe(o) {
				return fmt.Errorf("want %s", describe(o))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Flags distinguish the records of two dictionaries, but not of three. A further dictionary must wait until all records
// of the previous one have been re-encoded.
func TestNoTrialDuringMigration(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	s := newStore(Config{}, newHashes(), 1)
	pods := newCluster(t, 1, 20).pods(3000)
	put(t, s, pods...)
	for s.training.migrating {
		put(t, s, pods[0])
	}
	// A poor dictionary, so that a trial would find a better one, and an overdue trial.
	s.mu.Lock()
	s.adopt(newDictionary([][]byte{pods[1].Bytes}, 500))
	generation := s.training.generation
	s.training.puts, s.training.objects = 1<<20, 0
	s.mu.Unlock()
	put(t, s, pods[:20]...)
	if !s.training.migrating || s.training.generation != generation {
		t.Errorf("generation %d, want %d; migrating %t, want true", s.training.generation, generation, s.training.migrating)
	}
	for _, o := range pods {
		r, found := s.Get(o.Key)
		if !found {
			t.Fatalf("%s is missing", o.Key)
		}
		if !r.Same(o) { // another object with the same name
			continue
		}
		if err := r.Read(func(got *wire.Object) error {
			if !bytes.Equal(got.Bytes, o.Bytes) {
				t.Errorf("the bytes of %s have changed", o.Key)
			}
			return nil
		}); err != nil {
			t.Fatalf("%s cannot be read: %v", o.Key, err)
		}
	}
	for range 2 { // the migration ends, and the overdue trial is made
		put(t, s, pods...)
	}
	if s.training.generation == generation {
		t.Error("no better dictionary was found after the migration")
	}
	checkAll(t, s)
}
