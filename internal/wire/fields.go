package wire

// Fields calls use for each field of a JSON object, in the order of the data. The values are parts of data. A field
// that the object has twice is used twice.
func Fields(data []byte, use func(name string, value []byte)) error {
	s := scanner{data: data}
	var m members
	for {
		name, more, err := s.next(&m)
		if err != nil {
			return err
		}
		if !more {
			return s.endOfData()
		}
		start := s.i
		if err := s.skip(); err != nil {
			return err
		}
		use(string(s.key(name)), data[start:s.i:s.i])
	}
}

// Items returns the items of a JSON array, which are parts of data.
func Items(data []byte) ([][]byte, error) {
	s := scanner{data: data}
	var m members
	var items [][]byte
	for {
		more, err := s.element(&m)
		if err != nil {
			return nil, err
		}
		if !more {
			return items, s.endOfData()
		}
		start := s.i
		if err := s.skip(); err != nil {
			return nil, err
		}
		items = append(items, data[start:s.i:s.i])
	}
}
