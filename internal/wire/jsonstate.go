package wire

import "bytes"

// jsonLabelsAndOwners is LabelsAndOwners for JSON. It returns false for values that the typed and the unstructured
// decoder may read differently (duplicate fields, nulls, values of another type): the rest of the object determines
// which decoder is used, so that equal bytes may mean different labels or owners.
func jsonLabelsAndOwners(data []byte, use func(encoded []byte)) bool {
	plain, labels, owners := true, 0, 0
	ok := eachJSONMetadata(data, func(key, value []byte) {
		switch string(key) {
		case nameLabels:
			labels++
			plain = plain && eachString(value, func(_, _ []byte) {})
		case nameOwnerReferences:
			owners++
			plain = plain && plainOwners(value)
		default:
			return
		}
		use(key)
		use(value)
	})
	return ok && plain && labels <= 1 && owners <= 1
}

// plainOwners reports whether value is a list of owner references with fields of the right types.
func plainOwners(value []byte) bool {
	if bytes.Contains(value, []byte("null")) {
		return false
	}
	s := scanner{data: value}
	plain := true
	for e := (members{}); s.element(&e); {
		s.object(nil, func(key []byte, _ *jsonNode) {
			c := s.peek()
			switch string(key) {
			case "apiVersion", "kind", "name", "uid":
				plain = plain && c == '"'
			case "controller", "blockOwnerDeletion":
				plain = plain && (c == 't' || c == 'f')
			default:
				plain = false
			}
			s.skip()
		})
	}
	return s.err == nil && plain
}
