package wire

import (
	"bytes"
	"cmp"
	"time"
)

// lastWriter finds the last writer of an object in metadata.managedFields: the manager of the entry with the latest
// time, or the last one of several. Times are in seconds, so it is a guess if two managers write within a second: tied
// is then another manager with this time.
//
// It reads every entry of every object, even if managedFields are cut. It must therefore be cheap: it allocates no
// string, and skips the entries' fields.
type lastWriter struct {
	name []byte
	// the entry before, in the order of the entries, of those with the same time and another name; nil: none
	tied  []byte
	found bool
	// Time of the entry with this name, in protobuf or JSON.
	seconds, nanos int64
	text           []byte
}

// proto reads one entry, a metav1.ManagedFieldsEntry. It ignores an invalid entry: decoding the object reports the
// error.
func (w *lastWriter) proto(entry []byte) {
	const numManager, numTime = 1, 4
	var name []byte
	var seconds, nanos int64
	f := fields{b: entry}
	for f.next() && f.num <= numTime { // encoders write fields in order: the rest is the largest part
		if f.wireType == wireBytes {
			switch f.num {
			case numManager:
				name = f.content()
			case numTime:
				seconds, nanos = protoTime(f.content())
			}
		}
	}
	if f.invalid {
		return
	}
	if order := cmp.Or(cmp.Compare(seconds, w.seconds), cmp.Compare(nanos, w.nanos)); !w.found || order >= 0 {
		w.latest(name, order == 0)
		w.seconds, w.nanos = seconds, nanos
	}
}

// latest records the manager of an entry whose time is not before that of the entries seen so far.
func (w *lastWriter) latest(name []byte, sameTime bool) {
	switch {
	case !w.found || !sameTime:
		w.tied = nil
	case !bytes.Equal(name, w.name):
		w.tied = w.name
	}
	w.name, w.found = name, true
}

// protoTime parses a metav1.Timestamp.
func protoTime(b []byte) (seconds, nanos int64) {
	for f := (fields{b: b}); f.next(); {
		switch {
		case f.num == 1 && f.wireType == wireVarint:
			seconds = int64(f.value)
		case f.num == 2 && f.wireType == wireVarint:
			nanos = int64(f.value)
		}
	}
	return seconds, nanos
}

// json reads and skips the entries at s.i. It returns the entry with the fields that applier has applied to the object
// itself, or nil. It returns nil if applier is empty.
func (w *lastWriter) json(s *scanner, applier string) (applied []byte) {
	if s.peek() != '[' {
		s.skip()
		return nil
	}
	for entries := (members{}); s.element(&entries); {
		if s.peek() != '{' {
			s.skip()
			continue
		}
		start := s.i
		if w.jsonEntry(s, applier) {
			applied = s.data[start:s.i]
		}
	}
	return applied
}

// jsonEntry reads one entry, and reports whether it has the fields that applier has applied.
func (w *lastWriter) jsonEntry(s *scanner, applier string) (isApplied bool) {
	var name, at, operation, subresource []byte
	for fields := (members{}); s.next(&fields); {
		into := &name
		switch string(s.data[fields.key.start:fields.key.end]) {
		case "manager":
		case "time":
			into = &at
		case "operation":
			into = &operation
		case "subresource":
			into = &subresource
		default:
			into = nil
		}
		if into == nil || s.peek() != '"' {
			s.skip()
		} else {
			*into = s.key(s.str())
		}
	}
	at = comparableTime(at)
	if order := bytes.Compare(at, w.text); !w.found || order >= 0 {
		w.latest(name, order == 0)
		w.text = at
	}
	return applier != "" && string(name) == applier && string(operation) == operationApply && len(subresource) == 0
}

// comparableTime returns a time in the format of API servers, 2006-01-02T15:04:05Z, which can be compared as text. A
// missing time is the earliest.
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
