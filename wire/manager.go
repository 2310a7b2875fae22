package wire

import (
	"bytes"
	"time"
)

// lastWriter finds in metadata.managedFields who wrote an object last: the manager of the
// entry with the latest time; of several, the last. Times are in seconds, so that it is a
// guess where two managers write within one.
//
// It sees every entry on the way to the object, also where managedFields are cut. So it must
// cost little: it makes no string, and what an entry says about fields is passed over.
type lastWriter struct {
	name  []byte
	found bool
	// When the entry with that name was written: in protobuf, or in JSON.
	seconds, nanos int64
	text           []byte
}

// proto reads one entry, a metav1.ManagedFieldsEntry. One that cannot be read is nobody's:
// what is wrong with it shows when the object is decoded.
func (w *lastWriter) proto(entry []byte) {
	const numManager, numTime = 1, 4
	var name []byte
	var seconds, nanos int64
	for i := 0; i < len(entry); {
		f, ok := nextField(entry, i)
		if !ok {
			return
		}
		if f.num > numTime {
			break // encoders write fields in order: what follows is the largest part
		}
		if f.wireType == wireBytes {
			switch f.num {
			case numManager:
				name = entry[f.body:f.end]
			case numTime:
				seconds, nanos = protoTime(entry[f.body:f.end])
			}
		}
		i = f.end
	}
	if !w.found || seconds > w.seconds || seconds == w.seconds && nanos >= w.nanos {
		w.name, w.found, w.seconds, w.nanos = name, true, seconds, nanos
	}
}

// protoTime reads a metav1.Timestamp.
func protoTime(b []byte) (seconds, nanos int64) {
	for i := 0; i < len(b); {
		f, ok := nextField(b, i)
		if !ok {
			break
		}
		switch {
		case f.num == 1 && f.wireType == wireVarint:
			seconds = int64(f.value)
		case f.num == 2 && f.wireType == wireVarint:
			nanos = int64(f.value)
		}
		i = f.end
	}
	return seconds, nanos
}

// json reads the entries at s.i, and passes them.
func (w *lastWriter) json(s *scanner) error {
	if s.peek() != '[' {
		return s.skip()
	}
	var entries members
	for {
		more, err := s.element(&entries)
		if err != nil || !more {
			return err
		}
		if s.peek() != '{' {
			err = s.skip()
		} else {
			err = w.jsonEntry(s)
		}
		if err != nil {
			return err
		}
	}
}

func (w *lastWriter) jsonEntry(s *scanner) error {
	var name, at []byte
	var fields members
	for {
		t, more, err := s.next(&fields)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		into := &name
		switch string(s.data[t.start:t.end]) {
		case "manager":
		case "time":
			into = &at
		default:
			into = nil
		}
		if into == nil || s.peek() != '"' {
			err = s.skip()
		} else if t, err = s.str(); err == nil {
			*into = s.key(t)
		}
		if err != nil {
			return err
		}
	}
	if at = comparableTime(at); !w.found || bytes.Compare(at, w.text) >= 0 {
		w.name, w.found, w.text = name, true, at
	}
	return nil
}

// comparableTime returns a time in the form that API servers write, 2006-01-02T15:04:05Z,
// which can be compared as text. No time at all is the earliest.
func comparableTime(b []byte) []byte {
	if shapedLikeTime(b) {
		return b
	}
	at, err := time.Parse(time.RFC3339, string(b))
	if err != nil {
		return nil
	}
	return []byte(at.UTC().Format(time.RFC3339))
}
