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

// EachItem calls use with each item of a JSON array, which is a part of data, until use returns false. Data behind that
// item is not read.
func EachItem(data []byte, use func(item []byte) bool) error {
	s := scanner{data: data}
	var m members
	for {
		more, err := s.element(&m)
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
		if !use(data[start:s.i:s.i]) {
			return nil
		}
	}
}
