package informer

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
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
// When it panics, the change matters; the stack is logged once.
type Predicate func(Change) bool

// NewChange returns a change of an object of kind, as a watch delivers it, for tests of predicates and sources. before is
// nil for Listed and Added, after is nil for Deleted. A Deleted is Certain. The states are encoded, as protobuf where
// their type supports it: Changed cannot separate the status from other fields then. An error means that a state cannot
// be encoded.
func NewChange(t ChangeType, kind schema.GroupVersionKind, before, after kube.Object) (Change, error) {
	old, errOld := encodeState(before)
	current, errNew := encodeState(after)
	if err := errors.Join(errOld, errNew); err != nil {
		return Change{}, fmt.Errorf("new change: %w", err)
	}
	c := Change{Type: t, states: &states{kind: kind, old: old, new: current, oldRead: true, newRead: true, complete: true}}
	if current != nil {
		c.Key = current.Key
	} else if old != nil {
		c.Key = old.Key
	}
	return c, nil
}

func encodeState(obj kube.Object) (*wire.Object, error) {
	if usercode.IsNil(obj) {
		return nil, nil
	}
	if encoded, ok := obj.(*cache.EncodedObject); ok {
		return encoded.Encoded, nil
	}
	return wire.FromObject(obj, nil)
}

// States returns the encoded states, for the other packages of this module. Programs call Decode.
func (c Change) States() cache.States { return c.states }

// Kind returns the kind of the object. It is empty when the Retriever does not tell it.
func (c Change) Kind() schema.GroupVersionKind {
	if c.states == nil {
		return schema.GroupVersionKind{}
	}
	return c.states.kind
}

// Changed returns in which of parts the states before and after an Updated differ: see
// wire.Comparer. Subscribers that ask for the same share the work. What the resource version,
// the generation, the UID and the deletion cost is next to nothing; for the other parts the
// state before is read. It is zero for other types, and for states that cannot be read.
func (c Change) Changed(parts kube.ChangedParts) kube.ChangedParts {
	if c.Type != Updated || c.states == nil {
		return 0
	}
	return c.states.compare(parts)
}

// Later returns a function that tells at any later time, and from any goroutine, what
// Changed(kube.ChangedAnything) tells now. It keeps both states alive. Nil: there is nothing to
// tell.
func (c Change) Later() func() kube.ChangedParts {
	if c.Type != Updated || c.states == nil {
		return nil
	}
	return c.states.later(c.Key)
}

// Manager returns the field manager that wrote the state after the change last, as far as
// metadata.managedFields tells (its times are in seconds). Empty: unknown, as for Deleted, and
// for objects that had been kept when they were announced.
func (c Change) Manager() string {
	if c.states == nil || !c.states.newRead || c.states.new == nil {
		return ""
	}
	return c.states.new.Manager
}

// Certain reports, for a Deleted, whether the state before the change is the last that the
// object had (or had in the selection). It is false when a list has found the object gone.
func (c Change) Certain() bool {
	return c.Type == Deleted && c.states != nil && c.states.complete
}

// FromList reports whether a list has found the change: each Listed, what a list shows after a watch
// was interrupted, and the objects that Informer.SetRetriever adds or drops. Lists bring any number
// of changes at once, and later than they happened. What a watch brings is not FromList.
func (c Change) FromList() bool {
	return c.Type == Listed || c.states != nil && c.states.fromList
}

// Decode returns the states before and after a change as objects of type T, which belong
// to the caller. One that does not exist is nil.
func Decode[T kube.Object](c Change) (before, after T, err error) {
	decoder, err := wire.NewDecoder[T](c.Kind())
	if err != nil {
		return before, after, err
	}
	if before, err = decodeState(decoder, c.states.Old); err != nil {
		return before, after, fmt.Errorf("decode the state of %s before it was %s: %w", c.Key, c.Type, err)
	}
	if after, err = decodeState(decoder, c.states.New); err != nil {
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
