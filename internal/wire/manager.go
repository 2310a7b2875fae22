package wire

import (
	"bytes"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// managedEntry has the parts of a metav1.ManagedFieldsEntry that are read: no string is allocated, and the entry's
// fields are skipped.
type managedEntry struct {
	manager, operation, subresource []byte
	// at orders the times of entries of the same encoding, which are in seconds. It is zero without a time.
	at int64
}

// isAppliedBy reports whether e has the fields that manager has applied to the object itself.
func (e managedEntry) isAppliedBy(manager string) bool {
	return manager != "" && string(e.manager) == manager &&
		string(e.operation) == string(metav1.ManagedFieldsOperationApply) && len(e.subresource) == 0
}

// readProtoEntry returns false for an invalid entry.
func readProtoEntry(encoded []byte) (e managedEntry, ok bool) {
	f := fields{b: encoded}
	for f.next() {
		if f.wireType != wireBytes {
			continue
		}
		switch f.num {
		case 1:
			e.manager = f.content()
		case 2:
			e.operation = f.content()
		case 4:
			for at := (fields{b: f.content()}); at.next(); {
				if at.num == 1 && at.wireType == wireVarint {
					e.at = int64(at.value)
				}
			}
		case 8:
			e.subresource = f.content()
		}
	}
	return e, !f.invalid
}

// readJSONEntry reads the object at s.i.
func readJSONEntry(s *scanner) (e managedEntry) {
	for m := (members{}); s.next(&m); {
		into := &e.manager
		var at []byte
		switch string(s.data[m.key.start:m.key.end]) {
		case "manager":
		case "time":
			into = &at
		case "operation":
			into = &e.operation
		case "subresource":
			into = &e.subresource
		default:
			into = nil
		}
		if into == nil || s.peek() != '"' {
			s.skip()
			continue
		}
		*into = s.key(s.str())
		if into == &at {
			e.at = timeNumber(at)
		}
	}
	return e
}

// timeNumber returns the digits of a time in the format of API servers, 2006-01-02T15:04:05Z.
func timeNumber(b []byte) (digits int64) {
	if !shapedLikeTime(b) {
		at, err := time.Parse(time.RFC3339, string(b))
		if err != nil {
			return 0
		}
		b = at.UTC().AppendFormat(nil, time.RFC3339)
	}
	for _, c := range b {
		if c >= '0' && c <= '9' {
			digits = 10*digits + int64(c-'0')
		}
	}
	return digits
}

// lastWriter finds the last writer of an object in metadata.managedFields: the manager of the entry with the latest
// time, or the last one of several. Times are in seconds, so it is a guess if two managers write within a second: tied
// is then another manager with this time.
//
// It reads every entry of every object, even if managedFields are cut. It must therefore be cheap.
type lastWriter struct {
	name []byte
	// the entry before, in the order of the entries, of those with the same time and another name; nil: none
	tied  []byte
	found bool
	at    int64 // of the entry with this name
}

func (w *lastWriter) add(e managedEntry) {
	switch {
	case !w.found || e.at > w.at:
		w.tied = nil
	case e.at < w.at:
		return
	case !bytes.Equal(e.manager, w.name):
		w.tied = w.name
	}
	w.name, w.at, w.found = e.manager, e.at, true
}

// proto reads one entry. It ignores an invalid entry: decoding the object reports the error.
func (w *lastWriter) proto(encoded []byte) {
	if e, ok := readProtoEntry(encoded); ok {
		w.add(e)
	}
}

// json reads and skips the entries at s.i. It returns the one that is applied by applier, or nil.
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
		e := readJSONEntry(s)
		w.add(e)
		if e.isAppliedBy(applier) {
			applied = s.data[start:s.i]
		}
	}
	return applied
}
