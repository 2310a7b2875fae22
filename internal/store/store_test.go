package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestNewPanicsForInvalidIndexes(t *testing.T) {
	t.Parallel()
	values := func(*wire.Object) ([]string, error) { return nil, nil }
	for name, indexes := range map[string][]Index{
		"no name":     {{Values: values}},
		"no function": {{Name: "a"}},
		"twice":       {{Name: "a", Values: values}, {Name: "a", Values: values}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: New does not panic", name)
				}
			}()
			New(Config{Indexes: indexes})
		}()
	}
}

func TestZeroRef(t *testing.T) {
	t.Parallel()
	var r Ref
	if r.Key() != (kube.Key{}) || r.UID() != "" || r.ResourceVersion() != "" || r.Same(&wire.Object{}) || r.Same(simple(t, "a", "1", "")) {
		t.Error("the zero Ref has a state")
	}
	if err := r.Read(func(*wire.Object) error { t.Error("read"); return nil }); err == nil {
		t.Error("the zero Ref can be read")
	}
}

func TestReadReturnsErrorOfCallback(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	put(t, s, simple(t, "a", "1", ""))
	r, _ := s.Get(simpleKey("a"))
	mine := errors.New("mine")
	if err := r.Read(func(*wire.Object) error { return mine }); err != mine { //nolint:errorlint // must be unchanged
		t.Errorf("Read returned %v", err)
	}
}

func TestLoopsMayStopAndWrite(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for i := range 600 {
		put(t, s, simple(t, fmt.Sprint("pod-", i), "1", "app=web"))
	}
	for i := range fewCandidates + 1 {
		put(t, s, simple(t, fmt.Sprint("many-", i), "1", "app=many"))
	}
	s.BeginList()
	for name, loop := range map[string]func(func(kube.Key) bool){
		"Keys": s.Keys(), "Unmarked": s.Unmarked(),
		"RefsIn": func(yield func(kube.Key) bool) {
			for r := range s.RefsIn(1, 3) {
				if !yield(r.Key()) {
					return
				}
			}
		},
		"List": func(yield func(kube.Key) bool) {
			for o, err := range objectsOf(s, labelled("app=web")) {
				if err != nil || !yield(o.Key) {
					return
				}
			}
		},
		"List of many": func(yield func(kube.Key) bool) {
			for o, err := range objectsOf(s, labelled("app=many")) {
				if err != nil || !yield(o.Key) {
					return
				}
			}
		},
		"List of all": func(yield func(kube.Key) bool) {
			for o, err := range objectsOf(s, Query{}) {
				if err != nil || !yield(o.Key) {
					return
				}
			}
		},
	} {
		n := 0
		loop(func(k kube.Key) bool {
			n++
			put(t, s, simple(t, fmt.Sprint("later-", name, n), "1", "app=web"))
			s.Delete(k)
			put(t, s, simple(t, k.Name, "2", "app=web"))
			return n < 150
		})
		if n != 150 {
			t.Errorf("%s: a loop that is left after 150 rounds has %d", name, n)
		}
	}
}

func TestKeysIgnoreLaterWrites(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for _, name := range []string{"a", "b", "c"} {
		put(t, s, simple(t, name, "1", ""))
	}
	seen := map[kube.Key]int{}
	for k := range s.Keys() {
		seen[k]++
		put(t, s, simple(t, "later", "1", ""), simple(t, k.Name, "2", ""))
		s.Delete(simpleKey("c"))
	}
	want := map[kube.Key]int{simpleKey("a"): 1, simpleKey("b"): 1, simpleKey("c"): 1}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("keys seen (-want +got):\n%s", diff)
	}
}

// TestRefsInVisitsEveryObjectOnce puts and deletes other objects between the parts.
func TestRefsInVisitsEveryObjectOnce(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for i := range 1000 {
		put(t, s, simple(t, fmt.Sprint("stays-", i), "1", ""), simple(t, fmt.Sprint("goes-", i), "1", ""))
	}
	const parts = 7
	seen := map[kube.Key]int{}
	for part := range parts {
		for r := range s.RefsIn(part, parts) {
			seen[r.Key()]++
		}
		for i := part * 100; i < part*100+100; i++ {
			s.Delete(simpleKey(fmt.Sprint("goes-", i)))
			put(t, s, simple(t, fmt.Sprint("comes-", i), "1", ""), simple(t, fmt.Sprint("stays-", i), "2", "app=new"))
		}
	}
	for i := range 1000 {
		if key := simpleKey(fmt.Sprint("stays-", i)); seen[key] != 1 {
			t.Errorf("%s was visited %d times", key, seen[key])
		}
	}
}

func TestMarks(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	unmarked := func() []string {
		got := []string{}
		for k := range s.Unmarked() {
			got = append(got, k.Name)
		}
		slices.Sort(got)
		return got
	}
	expect := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(append([]string{}, want...), unmarked()); diff != "" {
			t.Errorf("unmarked (-want +got):\n%s", diff)
		}
	}
	put(t, s, simple(t, "a", "1", ""), simple(t, "b", "1", ""), simple(t, "c", "1", ""))
	expect() // no list
	s.BeginList()
	expect("a", "b", "c")
	if !s.Mark(simpleKey("a")) || s.Mark(simpleKey("missing")) {
		t.Error("Mark returned a wrong result")
	}
	put(t, s, simple(t, "b", "2", ""), simple(t, "new", "1", ""))
	expect("c")
	s.Delete(simpleKey("a"))
	put(t, s, simple(t, "in the slot of a", "1", ""))
	s.Delete(simpleKey("b")) // the next object in its slot must not be marked
	expect("c")
	s.BeginList()
	expect("c", "in the slot of a", "new")
	s.EndList()
	expect()
	put(t, s, simple(t, "d", "1", ""))
	s.BeginList()
	expect("c", "d", "in the slot of a", "new")
}

func TestSnapshotIsImmutable(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3, 5)
	s := New(Config{})
	all := c.pods(2000)
	put(t, s, all[:1000]...)
	selector := labels.SelectorFromSet(labels.Set{"app.kubernetes.io/name": c.workloads[0].name})
	queries := []Query{{}, {Namespace: c.workloads[1].namespace}, {OwnerUID: c.workloads[2].owner}, {Labels: selector}}
	snapshot := s.Snapshot()
	var before [][]string
	for _, q := range queries {
		before = append(before, names(t, snapshot, q)) // with the store's indexes
	}
	// Then all objects are replaced, deleted, moved and re-encoded.
	for i, o := range all[:1000] {
		if i%3 == 0 {
			s.Delete(o.Key)
			continue
		}
		changed := simple(t, o.Key.Name, "9", "app.kubernetes.io/name=other")
		changed.Key = o.Key
		put(t, s, changed)
	}
	put(t, s, all[1000:]...)
	for i, q := range queries {
		if diff := cmp.Diff(before[i], names(t, snapshot, q)); diff != "" {
			t.Errorf("%+v (-before +after):\n%s", q, diff)
		}
	}
	for _, o := range all[:1000] {
		r, found := snapshot.Get(o.Key)
		if !found || !r.Same(o) {
			t.Errorf("%s has changed in the snapshot", o.Key)
		}
	}
	if _, found := snapshot.Get(all[1500].Key); found || snapshot.Len() != 1000 {
		t.Errorf("a later object is in the snapshot: %t, Len %d", found, snapshot.Len())
	}
}

// TestConcurrentUse is for the race detector. Every object that is read must be complete.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	s := newStore(Config{Indexes: []Index{{Name: "version", Values: func(o *wire.Object) ([]string, error) {
		return []string{o.ResourceVersion}, nil
	}}}}, newHashes(), 1)
	pods := newCluster(t, 5, 10).pods(400)
	whole := func(o *wire.Object) error {
		read, err := wire.Read(o.Format, o.Bytes)
		if err != nil || read.Key != o.Key || read.UID != o.UID || read.ResourceVersion != o.ResourceVersion {
			t.Errorf("%s %s: the bytes are those of %s %s, %v", o.Key, o.ResourceVersion, read.Key, read.ResourceVersion, err)
		}
		return err
	}
	var all sync.WaitGroup
	for w := range 3 {
		all.Go(func() { // waited for below
			for i := range 600 {
				o := pods[(i*7+w*50)%len(pods)]
				if i%5 == 0 {
					s.Delete(o.Key)
				} else if _, _, err := s.Put(o); err != nil {
					t.Error(err)
				}
				if i%100 == 0 {
					s.BeginList()
				}
			}
		})
		all.Go(func() { // waited for below
			for i := range 60 {
				o := pods[(i*11+w)%len(pods)]
				if r, found := s.Get(o.Key); found {
					_ = r.Read(whole)
				}
				q := [...]Query{{}, {Namespace: o.Key.Namespace}, labelled(fmt.Sprint("tier=a,k", i%20, "!=x")), labelled(fmt.Sprint("k", i%20, "=x")), {Index: "version", Value: o.ResourceVersion}}[i%5]
				var from asker = s
				if i%2 == 0 {
					from = s.Snapshot()
				}
				for o, err := range objectsOf(from, q) {
					if err != nil || whole(o) != nil {
						return
					}
				}
				if _, err := from.Count(q); err != nil {
					t.Error(err)
				}
				for range s.Unmarked() {
					s.Mark(o.Key)
				}
				_ = s.Sizes()
			}
		})
	}
	all.Wait()
	checkAll(t, s)
}

func TestEmptyNamespacesAreFreed(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	var snapshots []*Snapshot
	for i := range 100 {
		o := simple(t, "a", "1", "")
		o.Key.Namespace = fmt.Sprint("ephemeral-", i)
		put(t, s, o)
		snapshots = append(snapshots, s.Snapshot())
		expectNames(t, s, Query{Namespace: o.Key.Namespace}, "a")
		s.Delete(o.Key)
		expectNames(t, s, Query{Namespace: o.Key.Namespace})
	}
	for i, snapshot := range snapshots {
		key := kube.Key{Namespace: fmt.Sprint("ephemeral-", i), Name: "a"}
		if r, found := snapshot.Get(key); !found || r.Key() != key {
			t.Errorf("%s is missing in the snapshot", key)
		}
		expectNames(t, snapshot, Query{Namespace: key.Namespace}, "a")
	}
	if n := len(s.namespaces); n > 1 {
		t.Errorf("the store has %d namespaces", n)
	}
}

func TestSlotsAreReused(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for i := range 5000 {
		put(t, s, simple(t, fmt.Sprint("a-", i), "1", "", types.UID(fmt.Sprint("o-", i))))
		if i >= 10 {
			s.Delete(simpleKey(fmt.Sprint("a-", i-10)))
		}
	}
	if s.Len() != 10 || s.slots > 11 || len(s.terms.owners.singles) != 10 {
		t.Errorf("%d objects have %d slots and %d owners", s.Len(), s.slots, len(s.terms.owners.singles))
	}
	if sizes := s.Sizes(); sizes.Bytes > 16<<10 {
		t.Errorf("10 objects cost %+v", sizes)
	}
}

// A rejected state must not change the store.
func TestPutIf(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	o := &wire.Object{Format: wire.JSON, Bytes: []byte(`{"metadata":{"name":"a"}}`), Key: kube.Key{Name: "a"}, UID: "u", ResourceVersion: "1"}
	put := func(want bool) (asked string, replaced bool) {
		old, current, err := s.PutIf(o, func(kept Ref) bool {
			asked = fmt.Sprintf("%s %t", kept.ResourceVersion(), kept.Exists())
			return want
		})
		if err != nil || current.Exists() != want || want && !current.Same(o) {
			t.Errorf("put is %t, want %t, of version %q, %v", current.Exists(), want, current.ResourceVersion(), err)
		}
		return asked, old.Exists()
	}
	if asked, _ := put(false); asked != " false" || s.Len() != 0 {
		t.Errorf("rejected: accept was called with %q, %d objects", asked, s.Len())
	}
	if asked, replaced := put(true); asked != " false" || replaced || s.Len() != 1 {
		t.Errorf("accepted: accept was called with %q, replaced %t, %d objects", asked, replaced, s.Len())
	}
	o.ResourceVersion = "2"
	if asked, _ := put(false); asked != "1 true" {
		t.Errorf("rejected: accept was called with %q", asked)
	}
	if r, _ := s.Get(o.Key); r.ResourceVersion() != "1" {
		t.Errorf("a rejected state was stored: %q", r.ResourceVersion())
	}
	if _, replaced := put(true); !replaced {
		t.Error("nothing was replaced")
	}
	if r, _ := s.Get(o.Key); r.ResourceVersion() != "2" || s.Len() != 1 {
		t.Errorf("%d objects, %q is kept", s.Len(), r.ResourceVersion())
	}
}

//nolint:paralleltest // allocations of other tests would be counted
func TestDiffers(t *testing.T) {
	base := wire.Object{
		Format: wire.JSON, Bytes: []byte(`{}`), Key: kube.Key{Name: "a"},
		UID: "0b7f3c1e-5a64-4c0e-9b57-2f6f6f9f1c11", ResourceVersion: "7", Generation: 2,
	}
	for want, change := range map[kube.ChangedParts]func(*wire.Object){
		0:                           func(*wire.Object) {},
		kube.ChangedUID:             func(o *wire.Object) { o.UID = "u" },
		kube.ChangedResourceVersion: func(o *wire.Object) { o.ResourceVersion = "07" },
		kube.ChangedGeneration:      func(o *wire.Object) { o.Generation = 3 },
		kube.ChangedDeletion:        func(o *wire.Object) { o.Deleting = true },
		kube.ChangedUID | kube.ChangedResourceVersion: func(o *wire.Object) { o.UID, o.ResourceVersion = "", "" },
	} {
		s := New(Config{})
		if _, _, err := s.Put(&base); err != nil {
			t.Fatal(err)
		}
		kept, _ := s.Get(base.Key)
		other := base
		change(&other)
		if got := kept.Differs(&other); got != want {
			t.Errorf("Differs is %s, want %s", got, want)
		}
		if n := testing.AllocsPerRun(10, func() { kept.Differs(&other) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
	}
	if got := (&Ref{}).Differs(&base); !got.Has(kube.ChangedUID) {
		t.Errorf("the zero Ref differs in %s", got)
	}
}

// The position that Put finds before it has the lock is stale if the key or the slot was written in between.
func TestPutWithConcurrentWrite(t *testing.T) {
	t.Parallel()
	pods := newCluster(t, 1, 3).pods(10)
	for name, test := range map[string]struct {
		before, meanwhile func(s *Store)
		replaced          bool
		kept              int
	}{
		"create with the same key": {
			before:    func(*Store) {},
			meanwhile: func(s *Store) { put(t, s, pods[0]) }, replaced: true, kept: 1,
		},
		"a deletion": {
			before:    func(s *Store) { put(t, s, pods[0], pods[1]) },
			meanwhile: func(s *Store) { s.Delete(pods[0].Key) }, kept: 2,
		},
		"delete, and another object in the slot": {
			before:    func(s *Store) { put(t, s, pods[0]) },
			meanwhile: func(s *Store) { s.Delete(pods[0].Key); put(t, s, pods[1]) }, kept: 2,
		},
		"create with another key": {
			before:    func(*Store) {},
			meanwhile: func(s *Store) { put(t, s, pods[1:]...) }, kept: 10,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(Config{}, newHashes(), 1)
			test.before(s)
			o, scratch := pods[0], &scratch{}
			f, err := s.facts(o)
			if err != nil {
				t.Fatal(err)
			}
			hash := s.hashes.key(o.Key.Namespace, o.Key.Name)
			at := s.placeOf(hash, o.Key)
			p := scratch.pack(o, s.training.current)
			test.meanwhile(s)
			s.enter(o, hash, &at, &f, p, scratch)
			if at.kept.Exists() != test.replaced {
				t.Errorf("it replaces an object: %t, want %t", at.kept.Exists(), test.replaced)
			}
			if s.Len() != test.kept {
				t.Errorf("the store has %d objects, want %d", s.Len(), test.kept)
			}
			if r, found := s.Get(o.Key); !found || !r.Same(o) {
				t.Error("the object is missing")
			}
			checkAll(t, s)
		})
	}
}
