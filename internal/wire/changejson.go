package wire

import (
	"bytes"
	"slices"

	"github.com/evenkeel-go/evenkeel/kube"
)

// diffJSON returns the parts with different bytes in two objects. Parts that cannot be compared count as different.
func diffJSON(a, b []byte) (different kube.ChangedParts) {
	inOrder := sameMembers(a, b, func(key, av, bv []byte) bool {
		switch string(key) {
		case "apiVersion", "kind":
		case "metadata":
			return bytes.Equal(av, bv) || sameMembers(av, bv, func(key, av, bv []byte) bool {
				if !bytes.Equal(av, bv) {
					different |= jsonPart(key)
				}
				return true
			})
		case "status":
			if !bytes.Equal(av, bv) {
				different |= kube.ChangedStatus
			}
		default:
			if !bytes.Equal(av, bv) {
				different |= kube.ChangedSpec
			}
		}
		return true
	})
	if inOrder {
		return different
	}
	return diffMembers(a, b) | diffJSONMetadata(a, b)
}

// jsonPart returns the part to which a metadata field belongs.
func jsonPart(key []byte) kube.ChangedParts {
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

// sameMembers iterates over the members of two objects in parallel. It returns false if their keys or the order of keys
// differ, which is rare for two states of an object, if use returns false, or for invalid objects. If a value is equal
// in both it is scanned once.
func sameMembers(a, b []byte, use func(key, av, bv []byte) bool) bool {
	as, bs := scanner{data: a}, scanner{data: b}
	var am, bm members
	for {
		if more := as.next(&am); more != bs.next(&bm) || !more {
			return !more && as.err == nil && bs.err == nil
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
		} else {
			bs.skip()
		}
		if as.err != nil || bs.err != nil || !use(key, value, b[start:bs.i]) {
			return false
		}
	}
}

// diffJSONMetadata compares the parts of the metadata in any order.
func diffJSONMetadata(a, b []byte) (different kube.ChangedParts) {
	as, aok := jsonMetadataParts(a)
	bs, bok := jsonMetadataParts(b)
	if !aok || !bok {
		return metadataParts
	}
	parts := [...]kube.ChangedParts{
		kube.ChangedLabels, kube.ChangedAnnotations, kube.ChangedFinalizers,
		kube.ChangedOwnerReferences,
	}
	for i, part := range parts {
		if !bytes.Equal(as[i], bs[i]) {
			different |= part
		}
	}
	return different
}

// jsonMetadataParts returns the values of the metadata fields that a Comparer needs: labels, annotations, finalizers,
// owner references. It returns false if one occurs more than once.
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
