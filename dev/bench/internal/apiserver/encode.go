package apiserver

import (
	"encoding/binary"
	"encoding/json"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
)

// Format is how objects travel.
type Format string

// The formats of the API server.
const (
	JSON     Format = "json"
	Protobuf Format = "protobuf"
)

// contentType returns the header of a response in f.
func (f Format) contentType(watch bool) string {
	switch {
	case f == JSON:
		return runtime.ContentTypeJSON
	case watch:
		return runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return runtime.ContentTypeProtobuf
}

// typeOf is the type of a kind in encoded objects.
type typeOf struct{ apiVersion, kind string }

// encode returns obj in f: its own protobuf message without an envelope, or its JSON.
func encode(obj any, f Format) ([]byte, error) {
	if f == JSON {
		return json.Marshal(obj)
	}
	return obj.(interface{ Marshal() ([]byte, error) }).Marshal()
}

// Numbers of protobuf fields with their wire type 2, length-delimited.
const (
	field1 = 1<<3 | 2
	field2 = 2<<3 | 2
	field3 = 3<<3 | 2
	field4 = 4<<3 | 2
)

func appendBytesField(b []byte, field byte, value string) []byte {
	b = binary.AppendUvarint(append(b, field), uint64(len(value)))
	return append(b, value...)
}

// sizeOfField is the size of a length-delimited field with n bytes of content.
func sizeOfField(n int) int { return 1 + len(binary.AppendUvarint(nil, uint64(n))) + n }

// envelopeHead is what precedes n bytes of a message in "k8s\0" and runtime.Unknown;
// envelopeTail follows them.
func (t typeOf) envelopeHead(n int) []byte {
	meta := appendBytesField(appendBytesField(nil, field1, t.apiVersion), field2, t.kind)
	b := appendBytesField([]byte("k8s\x00"), field1, string(meta))
	return binary.AppendUvarint(append(b, field2), uint64(n))
}

func envelopeTail() string { return string([]byte{field3, 0, field4, 0}) }

// appendEvent appends one event of a watch, ready to be sent, and returns where in it the
// object begins.
func (t typeOf) appendEvent(b []byte, f Format, event string, object []byte) (result []byte, at int) {
	if f == JSON {
		b = append(append(append(b, `{"type":"`...), event...), `","object":`...)
		if t.kind == "" || hasKind(object) {
			at = len(b)
			b = append(b, object...)
		} else {
			b = append(b, `{"kind":"`+t.kind+`","apiVersion":"`+t.apiVersion+`",`...)
			at = len(b) - 1
			b = append(b, object[1:]...)
		}
		return append(b, "}\n"...), at
	}
	head, tail := t.envelopeHead(len(object)), envelopeTail()
	raw := len(head) + len(object) + len(tail)
	size := sizeOfField(len(event)) + sizeOfField(sizeOfField(raw))
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = appendBytesField(b, field1, event)
	b = binary.AppendUvarint(append(b, field2), uint64(sizeOfField(raw)))
	b = binary.AppendUvarint(append(b, field1), uint64(raw))
	b = append(b, head...)
	at = len(b)
	b = append(b, object...)
	return append(b, tail...), at
}

// hasKind reports whether the JSON of an object begins with its kind, as that of custom
// resources does also in lists.
func hasKind(object []byte) bool { return len(object) > 2 && object[1] == '"' && object[2] == 'k' }

// listHead is what precedes the items of a list; a list ends with listTail.
func (t typeOf) listHead(f Format, rv uint64, next string, items [][]byte) []byte {
	if f == JSON {
		head := `{"kind":"` + t.kind + `List","apiVersion":"` + t.apiVersion + `","metadata":{"resourceVersion":"` +
			strconv.FormatUint(rv, 10) + `"`
		if next != "" {
			head += `,"continue":"` + next + `"`
		}
		return []byte(head + `},"items":[`)
	}
	meta := appendBytesField(nil, field2, strconv.FormatUint(rv, 10))
	meta = appendBytesField(meta, field3, next)
	size := sizeOfField(len(meta))
	for _, item := range items {
		size += sizeOfField(len(item))
	}
	list := typeOf{apiVersion: t.apiVersion, kind: t.kind + "List"}
	return appendBytesField(list.envelopeHead(size), field1, string(meta))
}

func listTail(f Format) string {
	if f == JSON {
		return "]}"
	}
	return envelopeTail()
}

// appendItem appends item i of a list.
func appendItem(b []byte, f Format, i int, item []byte) []byte {
	switch {
	case f == Protobuf:
		b = binary.AppendUvarint(append(b, field2), uint64(len(item)))
	case i > 0:
		b = append(b, ',')
	}
	return append(b, item...)
}
