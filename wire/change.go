package wire

import (
	"bytes"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Comparer tells what differs between two states of an object of one Go type, without
// decoding them. The zero Comparer works for every type; it cannot tell the spec from
// the status in protobuf.
type Comparer struct {
	typed  bool
	status int32 // zero when the type has none
}

// NewComparer returns a Comparer for objects of the Go type t.
func NewComparer(t reflect.Type) Comparer {
	t = elementType(t)
	if t.Kind() != reflect.Struct || !isMessage(reflect.PointerTo(t)) || t == reflect.TypeFor[metav1.PartialObjectMetadata]() {
		return Comparer{}
	}
	c := Comparer{typed: true}
	if _, numbers, found := findField(t, "status"); found && len(numbers) == 1 {
		c.status = numbers[0].num
	}
	return c
}

// Compare returns which of parts differ. It looks at no others, so that asking for the
// generation alone costs nothing.
//
// A part that is not reported is the same. Labels and annotations are compared as sets,
// finalizers and owner references in their order. Spec and status are compared as
// bytes: a difference that only the encoder made (the order of keys, another format) is
// reported too; API servers encode the same state in the same way. What was cut from
// both states is not compared.
func (c Comparer) Compare(before, after *Object, parts kube.Change) kube.Change {
	changed := kube.Change(0)
	note := func(part kube.Change, differs bool) {
		if differs {
			changed |= part & parts
		}
	}
	note(kube.ChangedUID, before.UID != after.UID)
	note(kube.ChangedResourceVersion, before.ResourceVersion != after.ResourceVersion)
	note(kube.ChangedGeneration, before.Generation != after.Generation)
	note(kube.ChangedDeletion, before.Deleting != after.Deleting)
	if parts&(metadataParts|contentParts) != 0 {
		unlike := c.unlike(before, after, parts)
		changed |= unlike&contentParts | compareMetadata(before, after, unlike)
	}
	return changed
}

const (
	metadataParts = kube.ChangedLabels | kube.ChangedAnnotations | kube.ChangedFinalizers | kube.ChangedOwnerReferences
	contentParts  = kube.ChangedSpec | kube.ChangedStatus
)

// unlike returns which of parts have not the same bytes in both, as far as it can tell;
// otherwise all.
func (c Comparer) unlike(a, b *Object, parts kube.Change) (unlike kube.Change) {
	switch {
	case a.Format != b.Format:
		return parts
	case a.Format == JSON:
		return unlikeJSON(a.Bytes, b.Bytes) & parts
	}
	if parts.Has(metadataParts) {
		unlike |= unlikeMetadata(a, b)
	}
	if parts.Has(contentParts) {
		unlike |= c.unlikeContent(a, b)
	}
	return unlike & parts
}

// compareMetadata decodes those parts of the metadata that have other bytes, and compares them.
func compareMetadata(before, after *Object, unlike kube.Change) (changed kube.Change) {
	if unlike.Has(kube.ChangedLabels) && !maps.Equal(before.Labels(), after.Labels()) {
		changed |= kube.ChangedLabels
	}
	if unlike.Has(kube.ChangedAnnotations) && !maps.Equal(before.Annotations(), after.Annotations()) {
		changed |= kube.ChangedAnnotations
	}
	if unlike.Has(kube.ChangedFinalizers) && !slices.Equal(before.Finalizers(), after.Finalizers()) {
		changed |= kube.ChangedFinalizers
	}
	if unlike.Has(kube.ChangedOwnerReferences) && !slices.EqualFunc(before.OwnerReferences(), after.OwnerReferences(), sameOwner) {
		changed |= kube.ChangedOwnerReferences
	}
	return changed
}

func sameOwner(a, b metav1.OwnerReference) bool { return reflect.DeepEqual(a, b) }

// unlikeMetadata returns the parts of the metadata that have not the same bytes in protobuf.
func unlikeMetadata(a, b *Object) (unlike kube.Change) {
	am, aok := protoMetadataBytes(a.Bytes)
	bm, bok := protoMetadataBytes(b.Bytes)
	if !aok || !bok || !eachUnlike(am, bm, func(num int32) { unlike |= protoPart(num) }) {
		return metadataParts
	}
	return unlike
}

func protoPart(num int32) kube.Change {
	switch num {
	case numLabels:
		return kube.ChangedLabels
	case numAnnotations:
		return kube.ChangedAnnotations
	case numFinalizers:
		return kube.ChangedFinalizers
	case numOwnerReferences:
		return kube.ChangedOwnerReferences
	default:
		return 0
	}
}

// eachUnlike goes through the fields of two messages at once, and calls unlike with the number
// of every field that has not the same bytes in both at that place. A number that it is not
// called with has the same fields in both. (The reverse need not hold.) It returns false
// for what is no message.
func eachUnlike(a, b []byte, unlike func(num int32)) (ok bool) {
	for i, j := 0, 0; i < len(a) || j < len(b); {
		var f, g field
		if i < len(a) {
			if f, ok = nextField(a, i); !ok {
				return false
			}
		}
		if j < len(b) {
			if g, ok = nextField(b, j); !ok {
				return false
			}
		}
		if f.num == g.num {
			i, j = f.end, g.end
			if !bytes.Equal(a[f.start:f.end], b[g.start:g.end]) {
				unlike(f.num)
				if bytes.Equal(a[i:], b[j:]) {
					return true // as often in the metadata, behind the resourceVersion
				}
			}
			continue
		}
		// Encoders write fields in the order of their numbers: one has a field that the other
		// has not.
		if g.num == 0 || f.num != 0 && f.num < g.num {
			unlike(f.num)
			i = f.end
		} else {
			unlike(g.num)
			j = g.end
		}
	}
	return true
}

// unlikeContent is unlikeMetadata for what is outside of the metadata.
func (c Comparer) unlikeContent(before, after *Object) (changed kube.Change) {
	const all = contentParts
	ok := eachUnlike(before.Bytes, after.Bytes, func(num int32) {
		switch {
		case num == numMetadata:
		case !c.typed:
			changed = all
		case num == c.status:
			changed |= kube.ChangedStatus
		default:
			changed |= kube.ChangedSpec
		}
	})
	if !ok {
		return all
	}
	return changed
}
