package wire

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Change is a set of the parts in which two states of an object differ.
type Change uint16

// The parts of an object.
const (
	// ChangedUID: another object of the same name has taken the place of the old one.
	ChangedUID Change = 1 << iota
	ChangedResourceVersion
	ChangedGeneration
	// ChangedDeletion: the object has got (or lost) a deletionTimestamp.
	ChangedDeletion
	ChangedLabels
	ChangedAnnotations
	ChangedFinalizers
	ChangedOwnerReferences
	// ChangedSpec: anything outside the metadata and the status, whatever it is called
	// (the data of a Secret, for one).
	ChangedSpec
	ChangedStatus

	// ChangedAnything asks for all of them.
	ChangedAnything Change = 1<<iota - 1
)

// Has tells whether c has at least one of parts.
func (c Change) Has(parts Change) bool { return c&parts != 0 }

// String lists the parts, separated by commas; "nothing" for none.
func (c Change) String() string {
	names := [...]string{
		"uid", "resourceVersion", "generation", "deletion", "labels", "annotations", "finalizers", "ownerReferences", "spec", "status",
	}
	var has []string
	for i, name := range names {
		if c&(1<<i) != 0 {
			has = append(has, name)
		}
	}
	if len(has) == 0 {
		return "nothing"
	}
	return strings.Join(has, ",")
}

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
func (c Comparer) Compare(before, after *Object, parts Change) Change {
	changed := Change(0)
	note := func(part Change, differs bool) {
		if differs {
			changed |= part & parts
		}
	}
	note(ChangedUID, before.UID != after.UID)
	note(ChangedResourceVersion, before.ResourceVersion != after.ResourceVersion)
	note(ChangedGeneration, before.Generation != after.Generation)
	note(ChangedDeletion, before.Deleting != after.Deleting)
	if parts.Has(ChangedLabels) {
		note(ChangedLabels, !sameField(before, after, metaLabels) && !maps.Equal(before.Labels(), after.Labels()))
	}
	if parts.Has(ChangedAnnotations) {
		note(ChangedAnnotations, !sameField(before, after, metaAnnotations) && !maps.Equal(before.Annotations(), after.Annotations()))
	}
	if parts.Has(ChangedFinalizers) {
		note(ChangedFinalizers, !sameField(before, after, metaFinalizers) && !slices.Equal(before.Finalizers(), after.Finalizers()))
	}
	if parts.Has(ChangedOwnerReferences) {
		note(ChangedOwnerReferences, !sameField(before, after, metaOwnerReferences) &&
			!slices.EqualFunc(before.OwnerReferences(), after.OwnerReferences(), sameOwner))
	}
	if parts.Has(ChangedSpec | ChangedStatus) {
		changed |= c.compareContent(before, after) & parts
	}
	return changed
}

func sameOwner(a, b metav1.OwnerReference) bool { return reflect.DeepEqual(a, b) }

// sameField is true when a field of the metadata has the same bytes in both.
func sameField(a, b *Object, field metaField) bool {
	if a.Format != b.Format {
		return false
	}
	if a.Format == JSON {
		av, aok := jsonMetadataField(a.Bytes, field.name())
		bv, bok := jsonMetadataField(b.Bytes, field.name())
		return aok && bok && bytes.Equal(av, bv)
	}
	am, aok := protoMetadataBytes(a.Bytes)
	bm, bok := protoMetadataBytes(b.Bytes)
	return aok && bok && sameFields(am, bm, func(num int32) bool { return num == int32(field) })
}

// compareContent compares what is outside the metadata.
func (c Comparer) compareContent(before, after *Object) (changed Change) {
	const all = ChangedSpec | ChangedStatus
	if before.Format != after.Format {
		return all
	}
	if before.Format == JSON {
		return compareJSON(before.Bytes, after.Bytes)
	}
	if !c.typed {
		if sameFields(before.Bytes, after.Bytes, func(num int32) bool { return num != numMetadata }) {
			return 0
		}
		return all
	}
	if !sameFields(before.Bytes, after.Bytes, func(num int32) bool { return num == c.status }) {
		changed |= ChangedStatus
	}
	if !sameFields(before.Bytes, after.Bytes, func(num int32) bool { return num != c.status && num != numMetadata }) {
		changed |= ChangedSpec
	}
	return changed
}

// sameFields compares the fields of two messages that are asked for, in their order.
func sameFields(a, b []byte, asked func(num int32) bool) bool {
	i, j := 0, 0
	for {
		f, endA, okA := nextAsked(a, i, asked)
		g, endB, okB := nextAsked(b, j, asked)
		if !okA || !okB {
			return false
		}
		if endA || endB {
			return endA == endB
		}
		if !bytes.Equal(a[f.start:f.end], b[g.start:g.end]) {
			return false
		}
		i, j = f.end, g.end
	}
}

func nextAsked(b []byte, i int, asked func(num int32) bool) (f field, end, ok bool) {
	for i < len(b) {
		if f, ok = nextField(b, i); !ok {
			return f, false, false
		}
		if asked(f.num) {
			return f, false, true
		}
		i = f.end
	}
	return f, true, true
}

// compareJSON compares the members of two objects.
func compareJSON(a, b []byte) (changed Change) {
	as, aStatus, aok := jsonContent(a)
	bs, bStatus, bok := jsonContent(b)
	if !aok || !bok {
		return ChangedSpec | ChangedStatus
	}
	if !slices.EqualFunc(aStatus, bStatus, bytes.Equal) {
		changed |= ChangedStatus
	}
	if !slices.EqualFunc(as, bs, bytes.Equal) {
		changed |= ChangedSpec
	}
	return changed
}

// jsonContent returns the members of an object, key and value, and those of its status.
func jsonContent(data []byte) (spec, status [][]byte, ok bool) {
	s := scanner{data: data}
	var m members
	for {
		t, more, err := s.next(&m)
		if err != nil || !more {
			return spec, status, err == nil
		}
		start := t.start
		if err := s.skip(); err != nil {
			return nil, nil, false
		}
		member := data[start:s.i]
		switch string(s.key(t)) {
		case "apiVersion", "kind", "metadata":
		case "status":
			status = append(status, member)
		default:
			spec = append(spec, member)
		}
	}
}
