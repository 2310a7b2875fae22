package wire

import (
	"bytes"
	"slices"

	"github.com/evenkeel-go/evenkeel/kube"
)

// diffJSON returns the parts with different bytes in two objects. Parts that cannot be compared count as different.
func diffJSON(a, b []byte) (different kube.ChangedParts) {
	inOrder := eachJSONDifference(a, b, func(key, av, bv []byte) {
		switch string(key) {
		case "apiVersion", "kind":
		case "metadata":
			if !eachJSONDifference(av, bv, func(key, _, _ []byte) { different |= jsonPart(key) }) {
				different |= metadataParts
			}
		case "status":
			different |= kube.ChangedStatus
		default:
			different |= kube.ChangedSpec
		}
	})
	if inOrder {
		return different
	}
	return diffMembers(a, b) | metadataParts
}

// jsonPart returns the part to which a metadata field belongs.
func jsonPart(key []byte) kube.ChangedParts {
	switch string(key) {
	case nameLabels:
		return kube.ChangedLabels
	case nameAnnotations:
		return kube.ChangedAnnotations
	case nameFinalizers:
		return kube.ChangedFinalizers
	case nameOwnerReferences:
		return kube.ChangedOwnerReferences
	default:
		return 0
	}
}

// eachJSONDifference iterates over the members of two objects in parallel, and calls report for those with different
// values. It returns false if the keys or the order of keys differ, which is rare for two states of an object, or for
// invalid objects. If a value is equal in both it is scanned once.
func eachJSONDifference(a, b []byte, report func(key, av, bv []byte)) bool {
	as, bs := scanner{data: a}, scanner{data: b}
	var am, bm members
	for {
		inA, inB := as.next(&am), bs.next(&bm)
		if !inA || !inB {
			return inA == inB && as.err == nil && bs.err == nil
		}
		key := as.key(am.key)
		if !bytes.Equal(key, bs.key(bm.key)) {
			return false
		}
		start := bs.i
		value := as.raw()
		// The end of these values is part of them, so equal bytes are equal values.
		if len(value) > 0 && bytes.IndexByte([]byte(`{["`), value[0]) >= 0 && bytes.HasPrefix(b[start:], value) {
			bs.i += len(value)
			continue
		}
		if other := bs.raw(); !bytes.Equal(value, other) {
			report(key, value, other)
		}
	}
}

// diffMembers compares the members outside of the metadata, if the two objects have different members.
func diffMembers(a, b []byte) (different kube.ChangedParts) {
	as, aStatus, aok := jsonContent(a)
	bs, bStatus, bok := jsonContent(b)
	if !aok || !bok {
		return contentParts
	}
	if !slices.EqualFunc(aStatus, bStatus, bytes.Equal) {
		different |= kube.ChangedStatus
	}
	if !slices.EqualFunc(as, bs, bytes.Equal) {
		different |= kube.ChangedSpec
	}
	return different
}

// jsonContent returns the members of an object (key and value), and those of its status.
func jsonContent(data []byte) (spec, status [][]byte, ok bool) {
	s := scanner{data: data}
	for m := (members{}); s.next(&m); {
		s.skip()
		member := data[m.key.start:s.i]
		switch string(s.key(m.key)) {
		case "apiVersion", "kind", "metadata":
		case "status":
			status = append(status, member)
		default:
			spec = append(spec, member)
		}
	}
	return spec, status, s.err == nil
}
