package wire

// Fields calls use for each field of a JSON object, in the order of the data. The values are parts of data. A field
// that the object has twice is used twice.
func Fields(data []byte, use func(name string, value []byte)) error {
	s := scanner{data: data}
	s.object(nil, func(key []byte, _ *jsonNode) {
		if value := s.raw(); s.err == nil {
			use(string(key), value)
		}
	})
	return s.endOfData()
}

// EachItem calls use with each item of a JSON array, which is a part of data, until use returns false. Data behind that
// item is not read.
func EachItem(data []byte, use func(item []byte) bool) error {
	s := scanner{data: data}
	for e := (members{}); s.element(&e); {
		if item := s.raw(); s.err == nil && !use(item) {
			return nil
		}
	}
	return s.endOfData()
}
