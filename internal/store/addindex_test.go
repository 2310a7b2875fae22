package store

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/wire"
)

func byVersion(name string) Index {
	return Index{Name: name, Values: func(o *wire.Object) ([]string, error) { return []string{o.ResourceVersion}, nil }}
}

// TestWritesWhileAnIndexIsAdded puts and deletes objects before, while and after their slots are indexed.
func TestWritesWhileAnIndexIsAdded(t *testing.T) {
	t.Parallel()
	s := New(Config{Indexes: []Index{byVersion("old")}})
	for _, name := range []string{"same", "changed", "gone", "again"} {
		put(t, s, simple(t, name, "1", ""))
	}
	before := s.Snapshot()
	query := Query{Index: "added", Value: "1"}
	asked := 0
	added := byVersion("added")
	failed, first, err := s.AddIndex(Index{Name: "added", Values: func(o *wire.Object) ([]string, error) {
		if asked++; asked == 1 {
			put(t, s, simple(t, "changed", "2", ""), simple(t, "new", "1", ""))
			s.Delete(simpleKey("gone"))
			s.Delete(simpleKey("again"))
			put(t, s, simple(t, "in the slot of again", "1", ""), simple(t, "again", "2", ""))
			if _, err := s.Count(query); err == nil || !strings.Contains(err.Error(), "not complete") {
				t.Errorf("a query before the index is complete: %v", err)
			}
			during := s.Snapshot()
			defer func() {
				if _, err := during.Count(query); err == nil {
					t.Error("a query in a snapshot from before the index was complete returns no error")
				}
			}()
		}
		return added.Values(o)
	}})
	if failed != 0 || first != nil || err != nil {
		t.Errorf("AddIndex: %d failed, %v, %v", failed, first, err)
	}
	for range 2 {
		expectNames(t, s, query, "in the slot of again", "new", "same")
		expectNames(t, s, Query{Index: "added", Value: "2"}, "again", "changed")
		expectNames(t, s, Query{Index: "old", Value: "1"}, "in the slot of again", "new", "same")
		expectNames(t, s.Snapshot(), query, "in the slot of again", "new", "same")
		checkAll(t, s)
		put(t, s, simple(t, "other", "3", "")) // snapshots do not use the indexes anymore
	}
	if _, err := before.Count(query); err == nil {
		t.Error("a query in an older snapshot returns no error")
	}
	put(t, s, simple(t, "same", "2", ""))
	expectNames(t, s, query, "in the slot of again", "new")
	if _, _, err := s.AddIndex(byVersion("old")); err == nil {
		t.Error("two indexes have the same name")
	}
	checkAll(t, s)
}

// TestPutThatStartedBeforeTheIndexWasAdded adds an index between the call of a function and the write.
func TestPutThatStartedBeforeTheIndexWasAdded(t *testing.T) {
	t.Parallel()
	var s *Store
	once := true
	s = New(Config{Indexes: []Index{{Name: "old", Values: func(o *wire.Object) ([]string, error) {
		if o.ResourceVersion == "2" && once {
			once = false
			if _, _, err := s.AddIndex(byVersion("added")); err != nil {
				t.Error(err)
			}
		}
		return []string{o.ResourceVersion}, nil
	}}}})
	put(t, s, simple(t, "a", "1", ""), simple(t, "b", "1", ""))
	put(t, s, simple(t, "a", "2", ""), simple(t, "new", "2", ""))
	for _, index := range []string{"old", "added"} {
		expectNames(t, s, Query{Index: index, Value: "2"}, "a", "new")
		expectNames(t, s, Query{Index: index, Value: "1"}, "b")
	}
	checkAll(t, s)
}

// TestConcurrentWritesWhileIndexesAreAdded also changes the shape of the objects, so that records are re-encoded.
func TestConcurrentWritesWhileIndexesAreAdded(t *testing.T) {
	t.Parallel()
	s := newStore(Config{Indexes: []Index{byVersion("0")}}, newHashes(), 1)
	shapes := [][]*wire.Object{newCluster(t, 5, 5).pods(300), newCluster(t, 6, 5).widgets(300)}
	var writers sync.WaitGroup
	n := testlength.Count(4000, 20000)
	for w := range 2 {
		writers.Go(func() { // waited for below
			for i := range n {
				o := *shapes[i*2/n][(i*7+w*50)%300]
				o.ResourceVersion = fmt.Sprint(i % 5)
				if i%5 == 0 {
					s.Delete(o.Key)
				} else if _, _, err := s.Put(&o); err != nil {
					t.Error(err)
				}
			}
		})
	}
	const last = 6
	for i := range last {
		if _, _, err := s.AddIndex(byVersion(fmt.Sprint(i + 1))); err != nil {
			t.Error(err)
		}
	}
	writers.Wait()
	for version := range 5 {
		want := names(t, s, Query{Index: "0", Value: fmt.Sprint(version)})
		for i := range last {
			expectNames(t, s, Query{Index: fmt.Sprint(i + 1), Value: fmt.Sprint(version)}, want...)
		}
	}
	checkAll(t, s)
}
