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

// ChangeType is the kind of a change.
type ChangeType string

// The types of changes.
const (
	// Listed: the object existed when the informer or the subscription started.
	Listed ChangeType = "listed"
	// Added: the object was created, or entered the selection.
	Added ChangeType = "added"
	// Updated: the object changed, or was deleted and created again in between.
	Updated ChangeType = "updated"
	// Deleted: the object was deleted, or left the selection.
	Deleted ChangeType = "deleted"
)

// Change is one change of one object. It is valid only during the call that delivers it.
type Change struct {
	Type ChangeType
	Key  kube.Key
	changeStates
}

// changeStates holds the states before and after a change; nil in the zero Change.
type changeStates = cache.Holder[*states]

// Predicate reports whether a change is relevant. The informer calls it while it announces the change, so it must be
// fast. Package predicate has common predicates. A controller also calls it for the objects of a resync, at the same
// time, so it must be safe for concurrent use. If it panics, the change is relevant, and the stack is logged once.
type Predicate func(Change) bool

// NewChange returns a change of an object of kind, as a watch delivers it, for tests of predicates and sources. before
// is nil for Listed and Added, after is nil for Deleted. The states are encoded, as protobuf
// where their type supports it. In that case Changed cannot separate the status from other fields. An error means that
// a state cannot be encoded.
func NewChange(t ChangeType, kind schema.GroupVersionKind, before, after kube.Object) (Change, error) {
	old, errOld := encodeState(before)
	current, errNew := encodeState(after)
	if err := errors.Join(errOld, errNew); err != nil {
		return Change{}, fmt.Errorf("new change: %w", err)
	}
	encoded, ok := before.(*wire.EncodedObject)
	c := Change{Type: t, changeStates: cache.Hold(&states{
		kind: kind, old: old, new: current, oldRead: true, newRead: true,
		complete: t == Deleted && (!ok || !encoded.Uncertain),
	})}
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
	if encoded, ok := obj.(*wire.EncodedObject); ok {
		return encoded.Encoded, nil
	}
	return wire.FromObject(obj, nil)
}

func (c Change) states() *states { return cache.Of(c) }

// Kind returns the kind of the object. It is empty if the Retriever does not specify it.
func (c Change) Kind() schema.GroupVersionKind {
	if c.states() == nil {
		return schema.GroupVersionKind{}
	}
	return c.states().kind
}

// Changed returns which of parts differ between the states before and after an Updated. Subscribers that compare the
// same parts share the result. The resource version, the generation, the UID and the deletion are cheap to compare. For
// other parts, the state before is decompressed. The result is zero for other types of changes, and for states that
// cannot be read.
func (c Change) Changed(parts kube.ChangedParts) kube.ChangedParts {
	if c.Type != Updated || c.states() == nil {
		return 0
	}
	return c.states().compare(parts)
}

// Manager returns the field manager that made the last write of the state after the change, according to
// metadata.managedFields, whose times are in seconds. It is empty if the manager is unknown: for Deleted, and for
// objects that were already cached when they were announced.
func (c Change) Manager() string {
	s := c.states()
	if s == nil || !s.newRead || s.new == nil {
		return ""
	}
	return s.new.Manager
}

// FromList reports whether a list found the change. That applies to each Listed, to changes that a list shows after a
// watch was interrupted, and to objects that Informer.SetRetriever adds or removes. A list may deliver any number of
// changes at once, later than they happened. Changes from a watch are not FromList.
func (c Change) FromList() bool {
	return c.Type == Listed || c.states() != nil && c.states().fromList
}

// Decode returns the states before and after a change as objects of type T, which belong to the caller. A missing state
// is nil.
func Decode[T kube.Object](c Change) (before, after T, err error) {
	decoder, err := wire.NewDecoder[T](c.Kind())
	if err != nil {
		return before, after, err
	}
	if before, err = decodeState(decoder, c.states().Old); err != nil {
		return before, after, fmt.Errorf("decode the state of %s before it was %s: %w", c.Key, c.Type, err)
	}
	if after, err = decodeState(decoder, c.states().New); err != nil {
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
