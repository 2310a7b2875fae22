package wire

import (
	"bytes"
	"slices"

	"github.com/evenkeel-go/evenkeel/kube"
)

// unlikeJSON returns which parts have not the same bytes in two objects. What it cannot tell
// is not the same.
func unlikeJSON(a, b []byte) (unlike kube.Change) {
	inOrder := sameMembers(a, b, func(key, av, bv []byte) bool {
		switch string(key) {
		case "apiVersion", "kind":
		case "metadata":
			return bytes.Equal(av, bv) || sameMembers(av, bv, func(key, av, bv []byte) bool {
				if !bytes.Equal(av, bv) {
					unlike |= jsonPart(key)
				}
				return true
			})
		case "status":
			if !bytes.Equal(av, bv) {
				unlike |= kube.ChangedStatus
			}
		default:
			if !bytes.Equal(av, bv) {
				unlike |= kube.ChangedSpec
			}
		}
		return true
	})
	if inOrder {
		return unlike
	}
	return unlikeMembers(a, b) | unlikeJSONMetadata(a, b)
}

// jsonPart returns the part that a field of the metadata is.
func jsonPart(key []byte) kube.Change {
	switch string(key) {
	case metaLabels.name():
		return kube.ChangedLabels
	case metaAnnotations.name():
		return kube.ChangedAnnotations
	case metaFinalizers.name():
		return kube.ChangedFinalizers
	case metaOwnerReferences.name():
		return kube.ChangedOwnerReferences
	default:
		return 0
	}
}

// sameMembers goes through the members of two objects at once. It returns false when they do
// not have the same keys in the same order, as two states of an object mostly do, when use
// does, or when one is no object. Of values that are the same in both it scans one.
func sameMembers(a, b []byte, use func(key, av, bv []byte) bool) bool {
	as, bs := scanner{data: a}, scanner{data: b}
	var am, bm members
	for {
		at, aMore, aErr := as.next(&am)
		bt, bMore, bErr := bs.next(&bm)
		if aErr != nil || bErr != nil || aMore != bMore {
			return false
		}
		if !aMore {
			return true
		}
		key := as.key(at)
		if !bytes.Equal(key, bs.key(bt)) {
			return false
		}
		aStart, bStart := as.i, bs.i
		if as.skip() != nil {
			return false
		}
		value := a[aStart:as.i]
		// These end with what ends them, so that the same bytes are the same value.
		if bytes.IndexByte([]byte(`{["`), value[0]) >= 0 && bytes.HasPrefix(b[bStart:], value) {
			bs.i += len(value)
		} else if bs.skip() != nil {
			return false
		}
		if !use(key, value, b[bStart:bs.i]) {
			return false
		}
	}
}

// unlikeJSONMetadata compares the parts of the metadata, whatever their order.
func unlikeJSONMetadata(a, b []byte) (unlike kube.Change) {
	as, aok := jsonMetadataParts(a)
	bs, bok := jsonMetadataParts(b)
	if !aok || !bok {
		return metadataParts
	}
	parts := [...]kube.Change{kube.ChangedLabels, kube.ChangedAnnotations, kube.ChangedFinalizers, kube.ChangedOwnerReferences}
	for i, part := range parts {
		if !bytes.Equal(as[i], bs[i]) {
			unlike |= part
		}
	}
	return unlike
}

// jsonMetadataParts finds the values of the fields of the metadata that a Comparer asks for:
// labels, annotations, finalizers, owner references. It returns false when one is there more
// than once.
func jsonMetadataParts(data []byte) (values [4][]byte, ok bool) {
	once := true
	ok = eachJSONMetadata(data, func(key, v []byte) {
		i := 0
		switch string(key) {
		case metaLabels.name():
		case metaAnnotations.name():
			i = 1
		case metaFinalizers.name():
			i = 2
		case metaOwnerReferences.name():
			i = 3
		default:
			return
		}
		once = once && values[i] == nil
		values[i] = v
	})
	return values, ok && once
}

// unlikeMembers compares what is outside of the metadata, when one has members that the other
// has not.
func unlikeMembers(a, b []byte) (unlike kube.Change) {
	as, aStatus, aok := jsonContent(a)
	bs, bStatus, bok := jsonContent(b)
	if !aok || !bok {
		return contentParts
	}
	if !slices.EqualFunc(aStatus, bStatus, bytes.Equal) {
		unlike |= kube.ChangedStatus
	}
	if !slices.EqualFunc(as, bs, bytes.Equal) {
		unlike |= kube.ChangedSpec
	}
	return unlike
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
