package informer

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// states are what a Change reads its objects from. Each informer has one, which is used
// again for every change, while events is held.
type states struct {
	kind             schema.GroupVersionKind
	comparer         wire.Comparer
	oldRef, newRef   store.Ref    // read when somebody asks
	old, new         *wire.Object // what was read, or given; nil: there is none
	oldRead, newRead bool
	oldKept, newKept wire.Object // with buffers that are used again

	asked, differs kube.ChangedParts // what was compared, and what of it differs
	// complete is true when the change came by a watch that has missed nothing since the
	// state before.
	complete bool
	// fromList is true when a list, or the end of what is retrieved, has brought the change.
	fromList bool
	// part is where the change came; nil: it does not matter. Others may have the object, too.
	part *part
}

// arrived makes s the states of a change to an object that has just come to p; old is its
// kept state, if there was one.
func (s *states) arrived(p *part, old store.Ref, replaced bool, obj *wire.Object, from origin) {
	s.oldRef, s.old, s.oldRead = old, nil, !replaced
	s.new, s.newRead = obj, true
	s.part, s.complete, s.fromList = p, from == unbroken, from == fromList
}

// kept sets s to an object that is cached and did not change.
func (s *states) kept(ref store.Ref) {
	s.old, s.oldRead = nil, true
	s.newRef, s.new, s.newRead = ref, nil, false
}

// gone makes s the states of an object that is kept no more; complete says that old was its
// last state.
func (s *states) gone(old store.Ref, complete bool, from origin) {
	s.oldRef, s.old, s.oldRead = old, nil, false
	s.new, s.newRead = nil, true
	s.complete, s.fromList = complete, from == fromList
}

// mergeWithOtherPart turns s, which is a Deleted or an arriving object, into an update from or to the state of another
// part. It returns false if the arriving object is the same as that state. It never returns false for a Deleted: an
// iteration over the objects (see Listed) may have left this one to the part that has lost it.
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
	s.complete, s.fromList, s.part = false, false, nil
}

// heads are the parts of an object that are kept beside its bytes.
const heads = kube.ChangedUID | kube.ChangedResourceVersion | kube.ChangedGeneration | kube.ChangedDeletion

// compare returns which of parts differ. What was compared is not compared again.
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

// hasOtherContent reports whether o differs from a kept state otherwise than in what is kept beside
// the bytes. One that cannot be read differs.
func (s *states) hasOtherContent(kept store.Ref, o *wire.Object) bool {
	differs := kube.ChangedParts(0)
	err := kept.Read(func(before *wire.Object) error {
		differs = s.comparer.Compare(before, o, kube.ChangedAnything)
		return nil
	})
	return err != nil || differs != 0
}

// maxCompareLater is the largest object whose states are compared later, in bytes.
const maxCompareLater = 16 << 10

// later returns a function that compares everything when it is called.
func (s *states) later(key kube.Key) func() kube.ChangedParts {
	var newRef store.Ref
	// Of large objects nothing is kept: causes are remembered for long after their runs.
	waits := s.asked != kube.ChangedAnything && !s.oldRead && s.part != nil && s.new != nil && len(s.new.Bytes) <= maxCompareLater
	if waits {
		newRef, waits = s.part.objects().Get(key)
	}
	if !waits || !newRef.Same(s.new) {
		parts := s.compare(kube.ChangedAnything) // nothing is saved by waiting, or nothing is kept to compare
		return func() kube.ChangedParts { return parts }
	}
	oldRef, comparer := s.oldRef, s.comparer
	return func() (parts kube.ChangedParts) {
		var before, after wire.Object
		if _, err := readInto(&before, oldRef); err != nil {
			return 0
		}
		if _, err := readInto(&after, newRef); err != nil {
			return 0
		}
		return comparer.Compare(&before, &after, kube.ChangedAnything)
	}
}

// Old implements cache.States.
func (s *states) Old() (*wire.Object, error) {
	if s == nil {
		return nil, nil
	}
	return s.readOld()
}

// New implements cache.States.
func (s *states) New() (*wire.Object, error) {
	if s == nil {
		return nil, nil
	}
	return s.readNew()
}

// OldVersion implements cache.States.
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
		if s.old, err = readInto(&s.oldKept, s.oldRef); err != nil {
			return nil, err
		}
		s.oldRead = true
	}
	return s.old, nil
}

func (s *states) readNew() (obj *wire.Object, err error) {
	if !s.newRead {
		if s.new, err = readInto(&s.newKept, s.newRef); err != nil {
			return nil, err
		}
		s.newRead = true
	}
	return s.new, nil
}

func readInto(into *wire.Object, ref store.Ref) (*wire.Object, error) {
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
