package store

import (
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Ref is one stored state of an object. It is immutable, and remains readable after the store has replaced or deleted
// that state, because it keeps the state in memory. The zero Ref has no state: its methods return zero values, and Read
// returns an error.
type Ref struct {
	Kept
	header header // parsed once for all methods
}

// Kept is a Ref without its parsed header, for states that are kept for long: it is a fourth of the size.
type Kept struct {
	record     string
	namespace  *namespace
	dictionary *dictionary // nil if the record is not compressed
	pool       *pool
}

// Size returns the number of bytes of the stored state.
func (k Kept) Size() int { return len(k.record) }

// Store returns a pointer that identifies the store.
func (k Kept) Store() any { return k.pool }

// Ref returns the Ref of k.
func (k Kept) Ref() Ref {
	if k.record == "" {
		return Ref{}
	}
	return Ref{Kept: k, header: parse(k.record)}
}

// Exists reports whether r is not the zero Ref.
func (r *Ref) Exists() bool { return r.record != "" }

// Key returns a copy of the object's key, for queues, which would otherwise keep the state in memory for long.
func (r *Ref) Key() kube.Key {
	key := r.KeyInState()
	key.Name = strings.Clone(key.Name)
	return key
}

// KeyInState returns the object's key. It is a part of the state, and keeps it in memory.
func (r *Ref) KeyInState() kube.Key {
	if !r.Exists() {
		return kube.Key{}
	}
	return kube.Key{Namespace: r.namespace.name, Name: r.header.name}
}

// UID returns the object's UID.
func (r *Ref) UID() types.UID {
	var buffer [64]byte
	return types.UID(r.header.appendUID(buffer[:0]))
}

// ResourceVersion returns the resource version of this state.
func (r *Ref) ResourceVersion() string {
	var buffer [32]byte
	return string(r.header.appendVersion(buffer[:0]))
}

// Same reports whether o is the stored state: the UID and the resource version are equal, and the version is not empty.
// It does not allocate.
func (r *Ref) Same(o *wire.Object) bool {
	if !r.Exists() || o.ResourceVersion == "" {
		return false
	}
	var buffer [64]byte
	return string(r.header.appendVersion(buffer[:0])) == o.ResourceVersion &&
		string(r.header.appendUID(buffer[:0])) == string(o.UID)
}

// Differs returns which of UID, resource version, generation and deletion are different in o and the stored state. It
// does not decompress the state, and does not allocate. For the zero Ref all of them differ.
func (r *Ref) Differs(o *wire.Object) kube.ChangedParts {
	const all = kube.ChangedUID | kube.ChangedResourceVersion | kube.ChangedGeneration | kube.ChangedDeletion
	if !r.Exists() {
		return all
	}
	h := &r.header
	var buffer [64]byte
	changed := kube.ChangedParts(0)
	if string(h.appendUID(buffer[:0])) != string(o.UID) {
		changed |= kube.ChangedUID
	}
	if string(h.appendVersion(buffer[:0])) != o.ResourceVersion {
		changed |= kube.ChangedResourceVersion
	}
	if h.generation != o.Generation {
		changed |= kube.ChangedGeneration
	}
	if (h.flags&flagDeleting != 0) != o.Deleting {
		changed |= kube.ChangedDeletion
	}
	return changed
}

// Read calls use with the object. The object and its Bytes are only valid during the call; its strings may be kept.
// Read returns the error of use unchanged.
func (r *Ref) Read(use func(*wire.Object) error) error {
	if !r.Exists() {
		return errors.New("read an object: the Ref is zero")
	}
	scratch := r.pool.get()
	defer r.pool.put(scratch)
	if err := r.read(&scratch.object, scratch); err != nil {
		return err
	}
	return use(&scratch.object)
}

// read sets o; its Bytes are a part of scratch.
func (r *Ref) read(o *wire.Object, scratch *scratch) error {
	h := &r.header
	b, err := scratch.unpack(h, r.dictionary)
	if err != nil {
		return err
	}
	// All strings are parts of one string, to allocate once.
	scratch.names = h.appendUID(append(scratch.names[:0], h.name...))
	version := len(scratch.names)
	scratch.names = h.appendVersion(scratch.names)
	all := string(scratch.names)
	*o = wire.Object{
		Format:          h.format(),
		Bytes:           b,
		Key:             kube.Key{Namespace: r.namespace.name, Name: all[:len(h.name)]},
		UID:             types.UID(all[len(h.name):version]),
		ResourceVersion: all[version:],
		Generation:      h.generation,
		Deleting:        h.flags&flagDeleting != 0,
	}
	return nil
}
