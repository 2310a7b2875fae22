package wire

import (
	"bytes"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// The JSON names of metadata fields.
const (
	nameLabels          = "labels"
	nameAnnotations     = "annotations"
	nameOwnerReferences = "ownerReferences"
	nameFinalizers      = "finalizers"
)

// jsonMetadataField returns the value of one metadata field, or nil if it is missing. It returns false if the field
// occurs more than once.
func jsonMetadataField(data []byte, name string) (value []byte, ok bool) {
	found := 0
	ok = eachJSONMetadata(data, func(key, v []byte) {
		if string(key) == name {
			found++
			value = v
		}
	})
	return value, ok && found <= 1
}

// eachJSONMetadata calls use for every metadata field. It returns false for invalid objects, and for duplicate
// metadata.
func eachJSONMetadata(data []byte, use func(key, value []byte)) bool {
	metas := 0
	s := scanner{data: data}
	s.object(nil, func(key []byte, _ *jsonNode) {
		isMetadata := string(key) == "metadata"
		if isMetadata {
			metas++
		}
		if !isMetadata || s.peek() != '{' {
			s.skip()
			return
		}
		s.object(nil, func(key []byte, _ *jsonNode) {
			if value := s.raw(); s.err == nil {
				use(key, value)
			}
		})
	})
	return s.err == nil && metas <= 1
}

func jsonStringMap(data []byte, name string) (m map[string]string, ok bool) {
	value, ok := jsonMetadataField(data, name)
	if !ok || value == nil {
		return nil, ok
	}
	plain := eachString(value, func(key, text []byte) {
		if m == nil {
			m = map[string]string{}
		}
		m[string(key)] = string(text)
	})
	if !plain {
		m = nil
		ok = decodeMetadataField(data, name, &m)
	}
	return m, ok
}

// eachString calls use for each member of an object of strings. It returns false unless all are strings that are equal
// to their encoding, possibly after some members.
func eachString(data []byte, use func(key, text []byte)) bool {
	s := scanner{data: data}
	for m := (members{}); s.next(&m) && s.peek() == '"'; {
		t := s.str()
		if s.err != nil || !t.plain {
			return false
		}
		use(s.key(m.key), data[t.start:t.end])
	}
	return s.err == nil && s.i == len(data)
}

// decodeMetadataField decodes one metadata field. It returns false for values that typed and unstructured decoders may
// read differently, such as nulls. The caller then decodes the whole metadata.
func decodeMetadataField(data []byte, name string, into any) bool {
	value, ok := jsonMetadataField(data, name)
	return ok && !bytes.Contains(value, []byte("null")) && (value == nil || utiljson.Unmarshal(value, into) == nil)
}
