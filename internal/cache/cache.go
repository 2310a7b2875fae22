// Package cache defines the methods of an informer for the other packages of this module, without the type of its
// objects: Of returns them. The package is internal because most of its methods use encoded objects, and because
// programs that know the type of the objects have better methods in package informer.
package cache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Holder holds a value for the packages of this module. A type embeds it under an unexported alias: then Of returns the
// value, and programs find no method for it.
type Holder[V any] struct{ value V }

// Hold returns a Holder of value.
func Hold[V any](value V) Holder[V] { return Holder[V]{value} }

func (h Holder[V]) held() V { return h.value }

// Of returns what the Holder in a value holds: an Informer for the informers of package informer, and the states for an
// informer.Change. It allocates nothing.
func Of[V any, H interface{ held() V }](holder H) V { return holder.held() }

// Untyped is implemented by the types with a Holder of an Informer, and by no type outside of this module.
type Untyped interface{ held() Informer }

// Informer is an informer without its type parameter. It is safe for concurrent use.
type Informer interface {
	// Name returns the informer's name, for messages.
	Name() string
	// Kind returns the kind of the objects. It is empty if the Retriever does not specify it.
	Kind() schema.GroupVersionKind
	// ReadsFrom reports whether the informer reads all its objects from the API server with this URL, as far as it is
	// known: it is true for a Retriever of the program, and for an empty URL.
	ReadsFrom(server string) bool
	// Namespaces returns those that the informer selects; "*" means all, and nil that they are not known.
	Namespaces() []string
	// Cluster returns what the informer reads from; nil: not known.
	Cluster() *kube.Cluster
	// Logger returns the informer's logger.
	Logger() *slog.Logger

	Reader
	Awaiter

	// Metadata returns a Reader of the same objects that decodes only their metadata, which takes a part of the time.
	// Its objects are *metav1.PartialObjectMetadata, also of objects that cannot be decoded as the informer's type. All
	// calls return the same Reader.
	Metadata() Reader
	// Staleness returns Health().Staleness. It takes only one lock.
	Staleness() time.Duration
	// Debug returns the informer's state as a value for encoding/json.
	Debug() any
	// Subscribe is Informer.Subscribe without its guard, which costs 1 us for each change, for a func(informer.Change)
	// of this module that guards the functions of the program that it calls.
	Subscribe(notify any) (unsubscribe func())
}

// Reader reads cached objects. While the informer does not run, it finds no objects and returns no error: Covers is
// false then, and the caller must ask the API server.
type Reader interface {
	// NewObject returns a new, empty object of the informer's type. whole is false if the informer keeps only parts of
	// objects: their metadata, or the fields that Config.Cut leaves.
	NewObject() (obj kube.Object, whole bool)
	// Covers reports whether the informer shows every object of its kind that is in namespace (empty: in any, and for
	// cluster-scoped kinds) and that selector matches (nil: every object). If Covers is true, an object that the
	// informer does not show does not exist, or was created too recently. An informer that selects by labels covers the
	// selectors that require the same labels or more.
	//
	// Covers is false until the informer has listed, if the informer selects by fields other than metadata.namespace,
	// for a Retriever of the program, and for an informer with Config.Transform, in which Object finds no objects
	// either. An optional informer that the API server refused covers nothing until it has listed again, whatever
	// errors follow.
	Covers(namespace string, selector labels.Selector) bool
	// Object returns a copy of the object under key, which belongs to the caller, and the fields that the field manager
	// of Config.KeepAppliedBy has applied to the object in that state. applied is nil if the manager has applied
	// nothing, or if KeepAppliedBy is empty.
	Object(key kube.Key) (obj kube.Object, applied *metav1.ManagedFieldsEntry, found bool, err error)
	// Objects iterates over copies of the objects that are in namespace (empty: in any) and that selector matches (nil:
	// every object).
	Objects(namespace string, selector labels.Selector) iter.Seq2[kube.Object, error]

	// HasFields reports whether ObjectsByFields finds all objects that meet required. It does if each requirement is on
	// metadata.name or metadata.namespace, except for one at most: that a field has a value that is not empty, and an
	// index has the name of the field. It is false if the function of the index has failed for an object, or if the
	// informer removes fields, which the function may read.
	HasFields(required fields.Requirements) bool
	// ObjectsByFields iterates over those of Objects that meet all requirements on fields. HasFields must be true for
	// them before and after the iteration: otherwise objects may be missing.
	ObjectsByFields(namespace string, selector labels.Selector, required fields.Requirements) iter.Seq2[kube.Object,
		error]

	// Exists reports whether the API server has the object with this key and uid, whatever the informer selects.
	Exists(ctx context.Context, key kube.Key, uid types.UID) (bool, error)
	// Has reports whether the informer shows an object under key, also if it does not run.
	Has(key kube.Key) bool
	// Absent reports whether the informer has read that there is no object under key. Unlike !Has it is false if the
	// object may exist: while the informer does not run, before its list has ended, while the API server refuses it.
	// For an empty key it reports whether the informer has read everything, and has no object with that key.
	Absent(key kube.Key) bool
	// Encoded returns the bytes of the object under key, which belong to the caller.
	Encoded(key kube.Key) (o *wire.Object, found bool)
	// Decode decodes an object of this informer, such as the object of a change. The caller owns the result.
	Decode(o *wire.Object) (kube.Object, error)
	// As returns an *informer.Informer[kube.Object] of the same objects, which decoder decodes.
	As(decoder wire.Decoder[kube.Object]) any
}

// Awaiter reports when the informer shows a write.
type Awaiter interface {
	// Await calls seen exactly once: when the informer shows the write w or a later state, or when it will never show
	// it, because it does not run, does not select the object, or reads from another API server. The call may happen
	// before Await returns. Otherwise it happens while the informer announces a change, after its subscribers. seen
	// must be quick, and must not call the informer. After cancel has returned, seen is not called anymore.
	//
	// The informer shows a write if it has the object's state after the write or a later one, or if it does not have
	// the object and has reached the write's resource version. It shows a deletion if it has reached that version and
	// does not have the object, or if it has an object with another UID. If the API server counts the writes of each
	// object (some aggregated APIs do), only the object itself counts. A write that takes the object out of the
	// selection is not awaited, unless an earlier state of the object is cached or awaited.
	//
	// Field selectors are evaluated on the fields of Write.Object with their paths. For Retrievers of the program, the
	// resource version decides. If versions cannot be compared, only the exact state of the write
	// is recognized, so the caller must give up after a while. If combined Retrievers overlap, all that may have the
	// object must show it.
	Await(w Write, seen func()) (cancel func())
	// Unseen returns those of writes that the informer does not show yet, as Await defines it, in their order. It does
	// not block, and a subscriber may call it: while the informer announces a change, it returns all writes.
	Unseen(writes []Write) []Write
	// ReadyFor does the same as Ready, for one write. It returns nil if every watch that must show w works, even while
	// another watch fails, such as that of a forbidden namespace. Otherwise the error contains the reason why w is not
	// shown.
	ReadyFor(w Write) error
}

// ErrSilentWatch is in the error of an informer's Health if a watch is open but delivers nothing, while a list shows
// that objects have changed.
var ErrSilentWatch = errors.New("the watch is silent while objects change")

// Ending is the reason why an informer does not have an object anymore.
type Ending int

// The endings.
const (
	// Gone: the object was deleted.
	Gone Ending = iota
	// GoneOrLeft: the object was deleted, or does not meet the selector of the informer anymore. A watch shows both in
	// the same way. Reader.Exists decides.
	GoneOrLeft
	// Left: the informer does not retrieve the object anymore.
	Left
)

// Write is a write that a client has made, and that an informer will show.
type Write struct {
	// Server is the URL of the API server that performed the write. Empty: not known.
	Server string
	Key    kube.Key
	UID    types.UID
	// ResourceVersion is the object's version after the write. For a deletion, it is the latest known version, or empty
	// if none is known.
	ResourceVersion string
	// Deleted is true if the object no longer exists. It is false if the deletion has only begun, because of finalizers
	// or a grace period.
	Deleted bool
	// Earlier is the UID of an earlier object with the key of a deletion, if informers may not have shown its end.
	Earlier types.UID
	// Object is the object after the write, for checking selections. It may be nil.
	Object *wire.Object
}

// WithLabels returns the write with an Object of which only the identity and the labels are known.
func (w Write) WithLabels(labels map[string]string) Write {
	metadata := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.Key.Namespace, Name: w.Key.Name, UID: w.UID, ResourceVersion: w.ResourceVersion, Labels: labels,
	}}
	w.Object = &wire.Object{Format: wire.Failed, Key: w.Key, UID: w.UID, ResourceVersion: w.ResourceVersion}
	w.Object.Bytes, _ = json.Marshal(metadata) // strings are always encoded
	return w
}

// Decode decodes an object of an informer whose type is T.
func Decode[T kube.Object](i Informer, o *wire.Object) (obj T, err error) {
	decoded, err := i.Decode(o)
	if err != nil {
		return obj, err
	}
	obj, ok := decoded.(T)
	if !ok {
		return obj, fmt.Errorf("informer %q has objects of type %T, not %T", i.Name(), decoded, obj)
	}
	return obj, nil
}
