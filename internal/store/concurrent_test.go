package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// TestWritesDuringChanges writes objects that change their shape, so that dictionaries are replaced, while label
// indexes are built. Every replaced state must stay readable, and the indexes must match the objects at the end.
func TestWritesDuringChanges(t *testing.T) {
	t.Parallel()
	s := newStore(Config{}, newHashes(), 1)
	shapes := [][]*wire.Object{newCluster(t, 5, 5).pods(300), newCluster(t, 6, 5).widgets(300), newCluster(t, 7, 5).pods(300)}
	label := func(i int) string {
		return [...]string{"tier", "app.kubernetes.io/name", "pod-template-hash", "app.kubernetes.io/part-of"}[i]
	}
	whole := func(o *wire.Object) error {
		read, err := wire.Read(o.Format, o.Bytes)
		if err != nil || read.Key != o.Key || read.UID != o.UID || read.ResourceVersion != o.ResourceVersion {
			return fmt.Errorf("%s %s: the bytes are those of %s %s, %w", o.Key, o.ResourceVersion, read.Key, read.ResourceVersion, err)
		}
		return nil
	}
	var all sync.WaitGroup
	for w := range 2 {
		all.Go(func() { // waited for below
			var olds []Ref
			for i := range 6000 {
				o := shapes[i/2000][(i*7+w*50)%300]
				old, replaced, err := s.Put(o)
				if err != nil {
					t.Error(err)
				}
				if i%5 == 0 {
					old, replaced = s.Delete(shapes[i/2000][(i*3+w)%300].Key)
				}
				if replaced && i%10 == 0 {
					olds = append(olds, old)
				}
			}
			for _, old := range olds {
				if err := old.Read(whole); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	readers.Go(func() { // waited for below
		for i := 0; !closed(done); i++ {
			s.mu.Lock()
			delete(s.terms.labels, label(i%4))
			s.mu.Unlock()
			if _, err := s.Count(labelled(label(i%4) + "=x")); err != nil {
				t.Error(err)
			}
		}
	})
	readers.Go(func() { // waited for below
		for !closed(done) {
			snapshot := s.Snapshot()
			n := 0
			for o, err := range objectsOf(snapshot, Query{}) {
				if err != nil || whole(o) != nil {
					t.Errorf("%v, %v", err, whole(o))
					return
				}
				n++
			}
			if n != snapshot.Len() {
				t.Errorf("a snapshot of %d objects lists %d", snapshot.Len(), n)
			}
		}
	})
	all.Wait()
	close(done)
	readers.Wait()
	for i := range 4 {
		expectNames(t, s, labelled(label(i)+"=x"))
	}
	checkAll(t, s)
	if g := s.Sizes().Generation; g < 2 {
		t.Errorf("the store had %d dictionaries, want several", g)
	}
	for i := range 4 {
		want := newInverted()
		for slot := range s.records() {
			r, _ := s.ref(slot, s.pool)
			if value, found := s.mustFacts(r).labels[label(i)]; found {
				want.add(s.hashes.term(value), slot)
			}
		}
		if diff := cmp.Diff(want.flat(), s.terms.labels[label(i)].flat()); diff != "" {
			t.Errorf("index of %s (-want +got):\n%s", label(i), diff)
		}
	}
}

func closed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
