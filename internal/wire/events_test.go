package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

//nolint:gochecknoglobals // a constant of two tests
var failure = &metav1.Status{
	TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
	Status:   metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old",
}

//nolint:gochecknoglobals // the name of a kind
var statusGVK = metav1.Unversioned.WithKind("Status")

func watchStream(t *testing.T, proto bool) []byte {
	t.Helper()
	bookmark := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
	var stream []byte
	events := []struct {
		kind watch.EventType
		obj  *corev1.Pod
	}{{watch.Added, realPod()}, {watch.Modified, realPod()}, {watch.Deleted, realPod()}, {watch.Bookmark, bookmark}}
	for _, e := range events {
		if proto {
			stream = append(stream, frame(t, e.kind, asProto(t, e.obj, podKind))...)
		} else {
			stream = append(stream, document(e.kind, asJSON(t, e.obj, podKind))...)
		}
	}
	if proto {
		return append(stream, frame(t, watch.Error, asProto(t, failure, statusGVK))...)
	}
	return append(stream, document(watch.Error, asJSON(t, failure, statusGVK))...)
}

func TestEventReader(t *testing.T) {
	t.Parallel()
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	for name, proto := range map[string]bool{"protobuf": true, "JSON": false} {
		stream := watchStream(t, proto)
		readers := map[string]io.Reader{
			"at once": bytes.NewReader(stream), "byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
			"end with the data": iotest.DataErrReader(bytes.NewReader(stream)), "in halves": iotest.HalfReader(bytes.NewReader(stream)),
		}
		for how, body := range readers {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				r := NewEventReader(body, cut)
				want := realPod()
				want.ManagedFields = nil
				for _, kind := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
					e, err := r.Next()
					if err != nil {
						t.Fatal(err)
					}
					if e.Type != kind || e.Status != nil {
						t.Fatalf("got %+v, want %s", e, kind)
					}
					checkMetadata(t, &want.ObjectMeta, e.Object)
					checkDecode(t, want, e.Object)
				}
				e, err := r.Next()
				if err != nil || e.Type != watch.Bookmark || e.Object.ResourceVersion != "9" || e.Object.Annotations()[metav1.InitialEventsAnnotationKey] != "true" {
					t.Fatalf("got %+v, %v, want a bookmark", e, err)
				}
				e, err = r.Next()
				if err != nil || e.Type != watch.Error || e.Object != nil {
					t.Fatalf("got %+v, %v, want an error event", e, err)
				}
				if diff := cmp.Diff(failure, e.Status); diff != "" {
					t.Errorf("status (-want +got):\n%s", diff)
				}
				for range 2 {
					if _, err := r.Next(); err != io.EOF { //nolint:errorlint // must be unwrapped
						t.Errorf("at the end: %v", err)
					}
				}
			})
		}
	}
}

func TestJSONEventVariants(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"object first":        `{"object":{"metadata":{"name":"a"}},"type":"ADDED"}`,
		"no newline between":  `{"type":"ADDED","object":{"metadata":{"name":"a"}}}{"type":"ADDED","object":{"metadata":{"name":"a"}}}`,
		"over many lines":     "\n{\n \"type\": \"ADDED\",\n \"object\": {\n\"metadata\":{\"name\":\"a\"}}\n}\n\n",
		"more members":        `{"x":[1],"type":"ADDED","y":"}","object":{"metadata":{"name":"a"}}}`,
		"type escaped":        `{"type":"\u0041DDED","object":{"metadata":{"name":"a"}}}`,
		"type twice":          `{"type":"DELETED","type":"ADDED","object":{"metadata":{"name":"a"}}}`,
		"object twice":        `{"type":"ADDED","object":{"metadata":{"name":"b"}},"object":{"metadata":{"name":"a"}}}`,
		"key escaped":         `{"typ\u0065":"ADDED","object":{"metadata":{"name":"a"}}}`,
		"quotes and brackets": `{"type":"ADDED","object":{"metadata":{"name":"a"},"x":"\"}\\"}}`,
	}
	for name, stream := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := NewEventReader(iotest.HalfReader(strings.NewReader(stream)), nil)
			n := 0
			for ; ; n++ {
				e, err := r.Next()
				if err == io.EOF { //nolint:errorlint // must be unwrapped
					break
				}
				if err != nil || e.Type != watch.Added || e.Object.Key.Name != "a" {
					t.Fatalf("got %+v, %v", e, err)
				}
			}
			if n == 0 {
				t.Error("no events")
			}
		})
	}
}

// endlessWatch is the rest of a stream that would wait for the next data.
type endlessWatch struct{ waited bool }

func (e *endlessWatch) Read([]byte) (int, error) {
	e.waited = true
	return 0, errors.New("the connection broke")
}

// TestDocumentIsDeliveredWhenComplete checks that a document does not wait for what follows it, however it arrives.
func TestDocumentIsDeliveredWhenComplete(t *testing.T) {
	t.Parallel()
	documents := map[string]string{
		"compact":             `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`,
		"over many lines":     "{\n \"type\": \"ADDED\",\n \"object\": {\n\"metadata\":{\"name\":\"a\"}}\n}",
		"quotes and brackets": `{"type":"ADDED","x":["{",{}],"object":{"metadata":{"name":"a"},"x":"\"}\\"}}`,
	}
	for name, document := range documents {
		for _, next := range []string{"", " ", "\n", "{", "\n{\n", `{"type":"ADDED","object":{"metadata":{"name":"}`, document + "{"} {
			t.Run(name+" before "+next, func(t *testing.T) {
				t.Parallel()
				for cut := range document {
					end := &endlessWatch{}
					r := NewEventReader(io.MultiReader(strings.NewReader(document[:cut]), strings.NewReader(document[cut:]+next), end), nil)
					for range 1 + strings.Count(next, document) {
						if e, err := r.Next(); err != nil || e.Type != watch.Added || e.Object.Key.Name != "a" || end.waited {
							t.Fatalf("in two pieces, the first of %d bytes: %+v, %v; waited for more: %t", cut, e, err, end.waited)
						}
					}
					if _, err := r.Next(); err == nil || !end.waited {
						t.Errorf("after the last document: %v", err)
					}
				}
			})
		}
	}
}

func TestEventReaderErrors(t *testing.T) {
	t.Parallel()
	pod := asProto(t, realPod(), podKind)
	whole := frame(t, watch.Added, pod)
	large := binary.BigEndian.AppendUint32(nil, MaxObjectBytes+1)
	nested := frame(t, watch.Added, []byte(`{"kind":"Pod"}`))
	tests := map[string]struct {
		stream string
		want   string
		is     error
	}{
		"a web page":               {"<!DOCTYPE html><title>502", `"<!DOCTYPE html><title>502"`, nil},
		"an array":                 {"[]", `neither JSON nor protobuf`, nil},
		"CBOR":                     {"\xd9\xd9\xf7\xa0", "AcceptContentTypes", nil},
		"CBOR without its tag":     {"\xa2dtype", "AcceptContentTypes", nil},
		"half a length":            {"\x00\x00", "the length of a frame", io.ErrUnexpectedEOF},
		"half a frame":             {string(whole[:100]), "of which 96 have arrived", io.ErrUnexpectedEOF},
		"a large frame":            {string(large), "larger than the limit", nil},
		"an empty frame":           {"\x00\x00\x00\x00", "an empty frame", nil},
		"a broken frame":           {"\x00\x00\x00\x02\x0a\x09", "decode the frame", nil},
		"JSON in a frame":          {string(nested), `want a protobuf object that starts with "k8s\x00"`, nil},
		"an unknown type":          {string(frame(t, "RENAMED", pod)), `unknown type of event "RENAMED"`, nil},
		"an error without status":  {string(frame(t, watch.Error, pod)), "want a Status", nil},
		"a broken status":          {string(frame(t, watch.Error, []byte("k8s\x00\x12\x02\x0a\x09"))), "the status of an ERROR event", nil},
		"a status not in protobuf": {string(frame(t, watch.Error, []byte("k8s\x00"))), "nothing follows", nil},
		"half a document":          {`{"type":"ADDED","object":{"metadata"`, "36 bytes have arrived", io.ErrUnexpectedEOF},
		"broken JSON":              {`{"type":"ADDED","object":{]}`, "want a key", nil},
		"a document no object":     {"{}\n5\n", `unknown type of event nothing`, nil},
		"no event":                 {`{"kind":"Status","code":403}`, `unknown type of event nothing`, nil},
		"no object":                {`{"type":"ADDED"}`, "an event of type ADDED without an object", nil},
		"no JSON object in it":     {`{"type":"ADDED","object":5}`, "the object of a ADDED event", nil},
		"no status in it":          {`{"type":"ERROR","object":5}`, "the status of an ERROR event", nil},
		"another kind of error":    {`{"type":"ERROR","object":{"kind":"Pod"}}`, "want a Status", nil},
		"type as number":           {`{"type":5,"object":{}}`, "decode", nil},
		"a failed read":            {"", "read a watch event at byte 0 of the stream: timeout", iotest.ErrTimeout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body io.Reader = strings.NewReader(tt.stream)
			if tt.is == iotest.ErrTimeout { //nolint:errorlint // a value of the table
				body = iotest.ErrReader(iotest.ErrTimeout)
			}
			r := NewEventReader(body, nil)
			_, err := r.Next()
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if _, repeatedErr := r.Next(); !errors.Is(repeatedErr, err) {
				t.Errorf("then: %v", repeatedErr)
			}
		})
	}
	loose := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	loose.jsonOnly = []string{"x"}
	if _, err := NewEventReader(bytes.NewReader(whole), loose).Next(); err == nil || !strings.Contains(err.Error(), "cannot cut x") {
		t.Errorf("a cut that protobuf does not allow: %v", err)
	}
}

// A WatchEvent with another order of fields is decoded by the generated decoder.
func TestUnusualFrame(t *testing.T) {
	t.Parallel()
	pod := asProto(t, realPod(), podKind)
	whole := frame(t, watch.Added, pod)[4:]
	reordered := append(bytes.Clone(whole[7:]), whole[:7]...)
	stream := append(binary.BigEndian.AppendUint32(nil, uint32(len(reordered))), reordered...)
	e, err := NewEventReader(bytes.NewReader(stream), nil).Next()
	if err != nil || e.Type != watch.Added || e.Object.Key.Namespace != "shop" {
		t.Errorf("got %+v, %v", e, err)
	}
	twice := append(bytes.Clone(whole), "\x0a\x07DELETED"...)
	stream = append(binary.BigEndian.AppendUint32(nil, uint32(len(twice))), twice...)
	if e, err := NewEventReader(bytes.NewReader(stream), nil).Next(); err != nil || e.Type != watch.Deleted {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestLargestEvent(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	pod := realPod()
	pod.Annotations["large"] = strings.Repeat("x", 3<<20)
	small := frame(t, watch.Added, asProto(t, realPod(), podKind))
	stream := append(frame(t, watch.Added, asProto(t, pod, podKind)), bytes.Repeat(small, 1000)...)
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	r := NewEventReader(iotest.DataErrReader(bytes.NewReader(stream)), cut)
	if _, err := r.Next(); err != nil || len(r.win.buf) > 2*MaxObjectBytes/4 {
		t.Fatalf("the buffer has %d bytes for the large object, %v", len(r.win.buf), err)
	}
	for {
		e, err := r.Next()
		if err == io.EOF { //nolint:errorlint // must be unwrapped
			break
		}
		if err != nil || e.Object.Key.Namespace != "shop" {
			t.Fatalf("got %+v, %v", e, err)
		}
	}
	if len(r.win.buf) > keepWindow {
		t.Errorf("the buffer has %d bytes after the large object", len(r.win.buf))
	}
	if cap(r.p.buf) > keepWindow {
		t.Errorf("the parser's buffer still has %d bytes after the large object", cap(r.p.buf))
	}
	endless := io.MultiReader(strings.NewReader(`{"type":"ADDED","object":{"a":"`), &endless{data: bytes.Repeat([]byte("x"), 1<<20)})
	if _, err := NewEventReader(endless, nil).Next(); err == nil || !strings.Contains(err.Error(), "larger than the limit") {
		t.Errorf("an endless document: %v", err)
	}
}

// An announced length must not allocate memory before the data arrives.
func TestLengthPrefixAllocatesNoMemory(t *testing.T) {
	t.Parallel()
	r := NewEventReader(bytes.NewReader([]byte{0, 0xff, 0xff, 0xff, 1, 2, 3}), nil)
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if len(r.win.buf) > startWindow {
		t.Errorf("%d bytes for 7 bytes", len(r.win.buf))
	}
}

// An event allocates three strings: name, UID and resourceVersion.
//
//nolint:paralleltest // counts allocations
func TestEventAllocations(t *testing.T) {
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	for name, data := range map[string][]byte{
		"protobuf": frame(t, watch.Modified, asProto(t, realPod(), podKind)),
		"JSON":     document(watch.Modified, realCRJSON()),
	} {
		r := NewEventReader(&endless{data: data}, cut)
		got := testing.AllocsPerRun(500, func() {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		})
		if got > 3 {
			t.Errorf("%s: %v allocations for an event", name, got)
		}
	}
}
