package wire

import (
	"bytes"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Comparer compares two states of an object of one Go type without decoding them. The zero Comparer supports every
// type, but cannot distinguish spec and status in protobuf.
type Comparer struct {
	typed  bool
	status int32 // zero if the type has no status
}

// NewComparer returns a Comparer for objects of the Go type t.
func NewComparer(t reflect.Type) Comparer {
	t = apiobject.ElementType(t)
	if t.Kind() != reflect.Struct || !isMessage(reflect.PointerTo(t)) ||
		t == reflect.TypeFor[metav1.PartialObjectMetadata]() {
		return Comparer{}
	}
	c := Comparer{typed: true}
	if fields := apiobject.FindField(t, "status"); len(fields) == 1 {
		c.status = protoNumber(fields[0])
	}
	return c
}

// Compare returns which of parts differ. It ignores other parts, so comparing only the generation costs almost nothing.
//
// A part that is not returned is equal. Labels and annotations are compared as sets, finalizers and owner references in
// their order. Spec and status are compared as bytes, so that a difference of the encoding alone (order of keys,
// format) is returned too; API servers encode equal states equally. Fields that were cut from both states are not
// compared.
func (c Comparer) Compare(before, after *Object, parts kube.ChangedParts) kube.ChangedParts {
	changed := kube.ChangedParts(0)
	note := func(part kube.ChangedParts, differs bool) {
		if differs {
			changed |= part & parts
		}
	}
	note(kube.ChangedUID, before.UID != after.UID)
	note(kube.ChangedResourceVersion, before.ResourceVersion != after.ResourceVersion)
	note(kube.ChangedGeneration, before.Generation != after.Generation)
	note(kube.ChangedDeletion, before.Deleting != after.Deleting)
	if parts&(metadataParts|contentParts) != 0 {
		different := c.different(before, after, parts)
		changed |= different&contentParts | compareMetadata(before, after, different)
	}
	return changed
}

const (
	metadataParts = kube.ChangedLabels | kube.ChangedAnnotations | kube.ChangedFinalizers | kube.ChangedOwnerReferences
	contentParts  = kube.ChangedSpec | kube.ChangedStatus
)

// different returns which of parts have different bytes. Parts that cannot be compared count as different.
func (c Comparer) different(a, b *Object, parts kube.ChangedParts) (different kube.ChangedParts) {
	switch {
	case a.Format != b.Format:
		return parts
	case a.Format != Protobuf:
		return diffJSON(a.Bytes, b.Bytes) & parts
	}
	if parts.Has(metadataParts) {
		am, aok := protoMetadataBytes(a.Bytes)
		bm, bok := protoMetadataBytes(b.Bytes)
		if !aok || !bok || !eachDifference(am, bm, func(num int32) { different |= protoPart(num) }) {
			different |= metadataParts
		}
	}
	if parts.Has(contentParts) &&
		!eachDifference(a.Bytes, b.Bytes, func(num int32) { different |= c.contentPart(num) }) {
		different |= contentParts
	}
	return different & parts
}

// compareMetadata decodes and compares the parts of the metadata with different bytes.
func compareMetadata(before, after *Object, different kube.ChangedParts) (changed kube.ChangedParts) {
	if different.Has(kube.ChangedLabels) && !maps.Equal(before.Labels(), after.Labels()) {
		changed |= kube.ChangedLabels
	}
	if different.Has(kube.ChangedAnnotations) && !maps.Equal(before.Annotations(), after.Annotations()) {
		changed |= kube.ChangedAnnotations
	}
	if different.Has(kube.ChangedFinalizers) && !slices.Equal(before.Finalizers(), after.Finalizers()) {
		changed |= kube.ChangedFinalizers
	}
	if different.Has(kube.ChangedOwnerReferences) &&
		!slices.EqualFunc(before.OwnerReferences(), after.OwnerReferences(), sameOwner) {
		changed |= kube.ChangedOwnerReferences
	}
	return changed
}

func sameOwner(a, b metav1.OwnerReference) bool { return reflect.DeepEqual(a, b) }

// protoPart returns the part to which a metadata field belongs.
func protoPart(num int32) kube.ChangedParts {
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

// eachDifference iterates over the fields of two messages in parallel, and calls report with the number of every field
// that has different bytes at the same position. Fields with other numbers are equal in both. (The reverse need not
// hold.) It returns false for invalid messages.
func eachDifference(a, b []byte, report func(num int32)) (ok bool) {
	f, g := fields{b: a}, fields{b: b}
	inA, inB := f.next(), g.next()
	for inA || inB {
		switch {
		case inA && inB && f.num == g.num:
			if !bytes.Equal(a[f.start:f.end], b[g.start:g.end]) {
				report(f.num)
				if bytes.Equal(a[f.end:], b[g.end:]) {
					return true // common in metadata after the resourceVersion
				}
			}
			inA, inB = f.next(), g.next()
		// Encoders write fields in the order of their numbers, so one message lacks a field of the other.
		case !inB || inA && f.num < g.num:
			report(f.num)
			inA = f.next()
		default:
			report(g.num)
			inB = g.next()
		}
	}
	return !f.invalid && !g.invalid
}

// contentPart returns the part to which a field of the object belongs.
func (c Comparer) contentPart(num int32) kube.ChangedParts {
	switch {
	case num == numMetadata:
		return 0
	case !c.typed:
		return contentParts
	case num == c.status:
		return kube.ChangedStatus
	}
	return kube.ChangedSpec
}
