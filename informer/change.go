package informer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/store"
	"github.com/evenkeel-go/evenkeel/wire"
)

// ChangeType says what happened to an object.
type ChangeType int

// The types of changes.
const (
	// Listed: the object was there when the informer, or the subscription, began.
	Listed ChangeType = iota
	// Added: the object was created, or came into the selection.
	Added
	// Updated: the object changed, or was deleted and created again in between.
	Updated
	// Deleted: the object is gone, or left the selection.
	Deleted
)

// String returns the type in a word.
func (t ChangeType) String() string {
	switch t {
	case Listed:
		return "listed"
	case Added:
		return "added"
	case Updated:
		return "updated"
	case Deleted:
		return "deleted"
	}
	return fmt.Sprintf("change %d", int(t))
}

// Change is one step of one object. It is valid during the call that hands it over.
type Change struct {
	Type   ChangeType
	Key    kube.Key
	states *states
}

// Predicate says whether a change matters. It is called while the informer announces the
// change, so it must be quick; package predicate has the usual ones. A controller also asks it
// about the objects that it walks over, at the same time: it must be safe for concurrent use.
// A panic in it ends the process; unlike a handler's, it belongs to no key.
type Predicate func(Change) bool

// NewChange returns a change of an object of kind, for tests of what receives changes:
// before is nil for Listed and Added, after is nil for Deleted.
func NewChange(t ChangeType, kind schema.GroupVersionKind, before, after *wire.Object) Change {
	c := Change{Type: t, states: &states{kind: kind, old: before, new: after, oldRead: true, newRead: true}}
	if after != nil {
		c.Key = after.Key
	} else if before != nil {
		c.Key = before.Key
	}
	return c
}

// Old returns the state before the change, for Updated and Deleted; otherwise nil. It is
// read when it is first asked for. The error says that the kept bytes cannot be read.
func (c Change) Old() (*wire.Object, error) {
	if c.states == nil {
		return nil, nil
	}
	return c.states.readOld()
}

// New returns the state after the change, for Listed, Added and Updated; otherwise nil. It
// is read when it is first asked for. The error says that the kept bytes cannot be read.
func (c Change) New() (*wire.Object, error) {
	if c.states == nil {
		return nil, nil
	}
	return c.states.readNew()
}

// Kind returns the kind of the object. It is empty when the Retriever does not tell it.
func (c Change) Kind() schema.GroupVersionKind {
	if c.states == nil {
		return schema.GroupVersionKind{}
	}
	return c.states.kind
}

// Decode returns the states before and after a change as objects of type T, which belong
// to the caller. One that does not exist is nil.
func Decode[T kube.Object](c Change) (before, after T, err error) {
	decoder, err := wire.NewDecoder[T](c.Kind())
	if err != nil {
		return before, after, err
	}
	if before, err = decodeState(decoder, c.Old); err != nil {
		return before, after, fmt.Errorf("decode the state of %s before it was %s: %w", c.Key, c.Type, err)
	}
	if after, err = decodeState(decoder, c.New); err != nil {
		return before, after, fmt.Errorf("decode the state of %s after it was %s: %w", c.Key, c.Type, err)
	}
	return before, after, nil
}

func decodeState[T kube.Object](decoder wire.Decoder[T], state func() (*wire.Object, error)) (obj T, err error) {
	bytes, err := state()
	if err != nil || bytes == nil {
		return obj, err
	}
	return decoder.Decode(bytes)
}

// states are what a Change reads its objects from. Each informer has one, which is used
// again for every change, while events is held.
type states struct {
	kind             schema.GroupVersionKind
	oldRef, newRef   store.Ref    // read when somebody asks
	old, new         *wire.Object // what was read, or given; nil: there is none
	oldRead, newRead bool
	oldKept, newKept wire.Object // with buffers that are used again
}

// arrived makes s the states of a change to an object that has just come; old is its kept
// state, if there was one.
func (s *states) arrived(old store.Ref, replaced bool, obj *wire.Object) {
	s.oldRef, s.old, s.oldRead = old, nil, !replaced
	s.new, s.newRead = obj, true
}

// kept makes s the states of an object that is kept and did not change.
func (s *states) kept(ref store.Ref) {
	s.old, s.oldRead = nil, true
	s.newRef, s.new, s.newRead = ref, nil, false
}

// gone makes s the states of an object that is kept no more.
func (s *states) gone(old store.Ref) {
	s.oldRef, s.old, s.oldRead = old, nil, false
	s.new, s.newRead = nil, true
}

// besides makes s, which is a Deleted or the coming of an object, the states of an update
// from or to the state that another part keeps. It returns false for the coming of what is
// there already. (Of a Deleted it never does: who walks the objects may have left this one to
// the part that has lost it, see Listed.)
func (s *states) besides(other store.Ref, t ChangeType) (matters bool) {
	if t == Deleted {
		s.newRef, s.new, s.newRead = other, nil, false
		return true
	}
	s.oldRef, s.old, s.oldRead = other, nil, false
	return !other.Same(s.new)
}

// done lets go of what the change referred to.
func (s *states) done() {
	s.oldRef, s.newRef, s.old, s.new = store.Ref{}, store.Ref{}, nil, nil
	s.oldRead, s.newRead = true, true
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
