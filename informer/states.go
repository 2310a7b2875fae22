package informer

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// states holds the states of an object before and after a change. Each informer has one instance, which is reused for
// every change while core.events is held. Its exported methods are for the packages of this module, through cache.Of:
// they are valid during the call that delivers the change, and return zero values for a nil *states.
type states struct {
	kind             schema.GroupVersionKind
	comparer         wire.Comparer
	oldRef, newRef   store.Ref    // decompressed on first use
	old, new         *wire.Object // the decompressed or given states; nil: no such state
	oldRead, newRead bool
	oldKept, newKept wire.Object // reused buffers

	asked, differs kube.ChangedParts // the compared parts, and those of them that differ
	// complete is true if the change arrived by a watch that has missed nothing since the state before.
	complete bool
	ending   cache.Ending
	// fromList is true if the change was found by a list, or because a Retriever was removed.
	fromList bool
}

// arrived sets s to the states of an object that has just arrived. old is its replaced state, if any. current is its
// cached state now.
func (s *states) arrived(old, current store.Ref, obj *wire.Object, from origin) {
	s.oldRef, s.old, s.oldRead = old, nil, !old.Exists()
	s.newRef, s.new, s.newRead = current, obj, true
	s.complete, s.fromList = from == unbroken, from == fromList
}

// kept sets s to the state of an object that is cached and did not change.
func (s *states) kept(ref store.Ref) {
	s.old, s.oldRead = nil, true
	s.newRef, s.new, s.newRead = ref, nil, false
}

// gone sets s to the states of an object that was removed from the cache. complete is true if old was its last state.
func (s *states) gone(old store.Ref, complete bool, from origin, ending cache.Ending) {
	s.oldRef, s.old, s.oldRead = old, nil, false
	s.new, s.newRead = nil, true
	s.complete, s.fromList, s.ending = complete, from == fromList, ending
}

// mergeWithOtherPart changes s, which is a Deleted or an arriving object, to an update from or to the state of another
// part. It returns false if the arriving object is the same as that state. It never returns false for a Deleted: an
// iteration over the objects (see Walk) may have skipped the object in the other part, because it was also in the
// part that has lost it.
func (s *states) mergeWithOtherPart(other store.Ref, t ChangeType) (matters bool) {
	s.complete = false
	if t == Deleted {
		s.newRef, s.new, s.newRead = other, nil, false
		return true
	}
	s.oldRef, s.old, s.oldRead = other, nil, false
	return !other.Same(s.new)
}

// done releases the states of the change.
func (s *states) done() {
	s.oldRef, s.newRef, s.old, s.new = store.Ref{}, store.Ref{}, nil, nil
	s.oldRead, s.newRead = true, true
	s.asked, s.differs = 0, 0
	s.complete, s.fromList, s.ending = false, false, cache.Gone
}

// Complete reports, for a Deleted, whether the state before the change is the last state that the object had, or had in
// the selection. It is false if a list no longer contains the object.
func (s *states) Complete() bool { return s != nil && s.complete }

// Ending returns, for Deleted, whether the object was deleted.
func (s *states) Ending() cache.Ending {
	if s == nil {
		return cache.Gone
	}
	return s.ending
}

// heads are the parts of an object that are stored outside of its encoded bytes.
const heads = kube.ChangedUID | kube.ChangedResourceVersion | kube.ChangedGeneration | kube.ChangedDeletion

// compare returns which of parts differ. It compares each part only once.
func (s *states) compare(parts kube.ChangedParts) kube.ChangedParts {
	if missing := parts &^ s.asked; missing != 0 {
		s.asked, s.differs = s.asked|missing, s.differs|s.compareAnew(missing)
	}
	return s.differs & parts
}

func (s *states) compareAnew(parts kube.ChangedParts) kube.ChangedParts {
	after, err := s.readNew()
	if err != nil || after == nil {
		return 0
	}
	if parts&^heads == 0 && !s.oldRead {
		return s.oldRef.Differs(after) & parts
	}
	before, err := s.readOld()
	if err != nil || before == nil {
		return 0
	}
	return s.comparer.Compare(before, after, parts)
}

// hasOtherContent reports whether o differs from a cached state in any part. It returns true if the cached state cannot
// be read.
func (s *states) hasOtherContent(kept store.Ref, o *wire.Object) bool {
	differs := kube.ChangedParts(0)
	err := kept.Read(func(before *wire.Object) error {
		differs = s.comparer.Compare(before, o, kube.ChangedAnything)
		return nil
	})
	return err != nil || differs != 0
}

// maxCompareLater is the size in bytes of the largest object whose states are compared later.
const maxCompareLater = 16 << 10

// Later returns a function that returns which parts of an Updated differ. It may be called at any later time and from
// any goroutine. It keeps both states in memory.
func (s *states) Later() func() kube.ChangedParts {
	if s == nil {
		return nil
	}
	// Large objects are compared now, because their states would use memory: causes are stored for long after their
	// runs.
	if s.KeptSize() == 0 {
		parts := s.compare(kube.ChangedAnything) // already compared, or no states to keep
		return func() kube.ChangedParts { return parts }
	}
	oldKept, newKept, comparer := s.oldRef.Kept, s.newRef.Kept, s.comparer
	return func() (parts kube.ChangedParts) {
		var before, after wire.Object
		oldRef, newRef := oldKept.Ref(), newKept.Ref()
		if _, err := readInto(&before, &oldRef); err != nil {
			return 0
		}
		if _, err := readInto(&after, &newRef); err != nil {
			return 0
		}
		return comparer.Compare(&before, &after, kube.ChangedAnything)
	}
}

// KeptSize returns the size in bytes of the states that the function of Later keeps in memory.
func (s *states) KeptSize() int {
	waits := s != nil && s.asked != kube.ChangedAnything && !s.oldRead && s.newRef.Exists() && s.new != nil &&
		len(s.new.Bytes) <= maxCompareLater
	if !waits {
		return 0
	}
	return s.oldRef.Size() + s.newRef.Size()
}

// Old returns the state before the change, for Updated and Deleted; otherwise nil. It is decompressed on first use. An
// error means that the cached bytes cannot be read.
func (s *states) Old() (*wire.Object, error) {
	if s == nil {
		return nil, nil
	}
	return s.readOld()
}

// New returns the state after the change, for Listed, Added and Updated; otherwise nil. It is decompressed on first
// use. An error means that the cached bytes cannot be read.
func (s *states) New() (*wire.Object, error) {
	if s == nil {
		return nil, nil
	}
	return s.readNew()
}

// Kept returns the states before and after the change as the cache stores them. They are valid after the change too. A
// missing state is zero.
func (s *states) Kept() (old, current store.Kept) {
	if s == nil {
		return old, current
	}
	return s.oldRef.Kept, s.newRef.Kept
}

// OldVersion returns the resource version of the state before the change, without decompressing it. It is empty if
// there is no such state.
func (s *states) OldVersion() string {
	switch {
	case s == nil:
		return ""
	case !s.oldRead:
		return s.oldRef.ResourceVersion()
	case s.old == nil:
		return ""
	default:
		return s.old.ResourceVersion
	}
}

func (s *states) readOld() (obj *wire.Object, err error) {
	if !s.oldRead {
		if s.old, err = readInto(&s.oldKept, &s.oldRef); err != nil {
			return nil, err
		}
		s.oldRead = true
	}
	return s.old, nil
}

func (s *states) readNew() (obj *wire.Object, err error) {
	if !s.newRead {
		if s.new, err = readInto(&s.newKept, &s.newRef); err != nil {
			return nil, err
		}
		s.newRead = true
	}
	return s.new, nil
}

func readInto(into *wire.Object, ref *store.Ref) (*wire.Object, error) {
	err := ref.Read(func(o *wire.Object) error {
		buffer := append(into.Bytes[:0], o.Bytes...)
		*into = *o
		into.Bytes = buffer
		return nil
	})
	if err != nil {
		return nil, err
	}
	return into, nil
}
