package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/wire"
)

// fresh is what an object costs in a store that never had others.
func fresh(t *testing.T, all []*wire.Object) int64 {
	t.Helper()
	s := newStore(Config{}, newHashes(), 1)
	put(t, s, all...)
	return s.Sizes().Bytes / int64(s.Len())
}

func TestDictionariesFollowTheObjects(t *testing.T) {
	t.Parallel()
	const n = 4500
	pods, widgets := newCluster(t, 1, 20).pods(n), newCluster(t, 2, 20).widgets(n)
	s := newStore(Config{}, newHashes(), 1)
	put(t, s, pods...)
	podRef, _ := s.Get(pods[0].Key) // of a dictionary that will be gone
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
			t.Error("a Ref reads something else after its dictionary was replaced")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	checkAll(t, s)
	for _, o := range widgets {
		r, _ := s.Get(o.Key)
		if !r.Same(o) { // another has the same name
			continue
		}
		_ = r.Read(func(got *wire.Object) error {
			if !bytes.Equal(o.Bytes, got.Bytes) {
				t.Errorf("%s reads as something else", o.Key)
			}
			return nil
		})
	}
}

// TestAPutThatMeetsAnotherDictionary was compressed with one that is gone when it gets the lock.
func TestAPutThatMeetsAnotherDictionary(t *testing.T) {
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
	for range 2 { // the one after the next has the same flag
		s.adopt(newDictionary([][]byte{pods[1].Bytes, pods[2].Bytes}, 10_000))
		s.migrate(1000)
	}
	s.enter(o, s.hashes.key(o.Key.Namespace, o.Key.Name), place{changes: s.changes + 1}, &f, p, scratch)
	r, _ := s.Get(o.Key)
	if err := r.Read(func(got *wire.Object) error {
		if !bytes.Equal(got.Bytes, o.Bytes) {
			t.Error("it reads as something else")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestMigrationEnds sees that after enough Puts only the current dictionary is in use.
func TestMigrationEnds(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1, 10)
	s := newStore(Config{}, newHashes(), 1)
	for i := 0; s.training.current == nil; i++ {
		put(t, s, object(t, c.pod()))
	}
	if !s.training.migrating {
		t.Fatal("nothing is encoded again after there is a dictionary")
	}
	n := s.Len()
	put(t, s, c.pods(n/migrateAtPut+n/2)...)
	if s.training.migrating {
		t.Fatal("there is no end to the migration")
	}
	for _, record := range s.records() {
		if record[0]&flagDictionary != s.training.current.flag() {
			t.Errorf("a record of %d B is still old", len(record))
		}
	}
	if s.dictionaries[0] != nil && s.dictionaries[1] != nil {
		t.Error("the dictionary before is kept")
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

// TestObjectsThatNoDictionaryHelps are kept as they are.
func TestObjectsThatNoDictionaryHelps(t *testing.T) {
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
			// Not a real message: nothing but its labels and owners would be read.
			o := &wire.Object{Format: wire.Protobuf, Bytes: content, Key: kube.Key{Name: name}, UID: "u", ResourceVersion: "1"}
			if _, _, err := s.Put(o); err != nil {
				t.Fatal(err)
			}
			r, _ := s.Get(o.Key)
			if err := r.Read(func(got *wire.Object) error {
				if !bytes.Equal(content, got.Bytes) {
					t.Errorf("%d B of %s are read as %d others", size, name, len(got.Bytes))
				}
				return nil
			}); err != nil {
				t.Errorf("%d B of %s: %v", size, name, err)
			}
			if most := len(content) + 100; len(r.record) > most {
				t.Errorf("%d B of %s are kept in %d", size, name, len(r.record))
			}
		}
	}
}

func TestARecordThatIsCorruptIsAnError(t *testing.T) {
	t.Parallel()
	s := newStore(Config{}, newHashes(), 1)
	pods := newCluster(t, 1, 3).pods(500)
	put(t, s, pods...)
	r, _ := s.Get(pods[0].Key)
	r.record = r.record[:len(r.record)-5]
	if err := r.Read(func(*wire.Object) error { return nil }); err == nil || !strings.Contains(err.Error(), pods[0].Key.Name) {
		t.Errorf("Read of a corrupt record: %v", err)
	}
	place, _ := s.index.shard(s.hashes.key(pods[0].Key.Namespace, pods[0].Key.Name)).find(&s.view, s.hashes.key(pods[0].Key.Namespace, pods[0].Key.Name), pods[0].Key)
	slot := s.index.shard(s.hashes.key(pods[0].Key.Namespace, pods[0].Key.Name)).slots[place] - 1
	s.setRecord(slot, r.record)
	errs := 0
	for _, err := range s.List(Query{}) {
		if err != nil {
			errs++
		}
	}
	if errs != 1 {
		t.Errorf("List of a store with a corrupt record has %d errors", errs)
	}
}

// TestFewLargeObjectsAreCompressed: there is more to gain with them than with many small ones.
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

// TestWhatIsSplicedIsNotKept looks at what is left for the compressor.
func TestWhatIsSplicedIsNotKept(t *testing.T) {
	t.Parallel()
	digits := strings.Repeat("0123456789abcdef", 4)
	for before := range 70 {
		o := simple(t, "some-name", "12345678", "")
		o.Bytes = append(o.Bytes, strings.Repeat("-", before)+"containerd://"+digits+"\""...)
		var s scratch
		s.cutOut(o)
		for _, part := range []string{o.Key.Name, string(o.UID), o.ResourceVersion, digits} {
			if bytes.Contains(s.cut, []byte(part)) {
				t.Errorf("with %d bytes before the digits, %q is kept in the payload", before, part)
			}
		}
	}
}

// TestAnyBytesComeBack puts payloads that are made of what is spliced, cut through, of parts
// of other objects and of noise.
func TestAnyBytesComeBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 20)
	pods := c.pods(200)
	s := newStore(Config{}, newHashes(), 5)
	put(t, s, pods...)
	if s.Sizes().Generation == 0 {
		t.Fatal("this was too little for a dictionary")
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
		if i%500 == 0 { // longer than what a dictionary reaches
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
