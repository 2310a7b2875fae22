package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

//nolint:gochecknoglobals // the name of a kind
var podListKind = corev1.SchemeGroupVersion.WithKind("PodList")

func podList() *corev1.PodList {
	return &corev1.PodList{
		ListMeta: metav1.ListMeta{ResourceVersion: "184467", Continue: "next", RemainingItemCount: new(int64(4))},
		Items:    []corev1.Pod{*realPod(), *numbered(1), *numbered(2)},
	}
}

func TestReadList(t *testing.T) {
	t.Parallel()
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	for name, data := range map[string][]byte{"protobuf": asProto(t, podList(), podListKind), "JSON": asJSON(t, podList(), podListKind)} {
		readers := map[string]io.Reader{
			"at once": bytes.NewReader(data), "byte by byte": iotest.OneByteReader(bytes.NewReader(data)),
			"end with the data": iotest.DataErrReader(bytes.NewReader(data)),
		}
		for how, body := range readers {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				want := podList()
				n := 0
				meta, err := ReadList(body, cut, func(o *Object) error {
					want.Items[n].ManagedFields = nil
					checkMetadata(t, &want.Items[n].ObjectMeta, o)
					checkDecode(t, &want.Items[n], o)
					n++
					return nil
				})
				if err != nil || n != len(want.Items) {
					t.Fatalf("%d items, %v", n, err)
				}
				if diff := cmp.Diff(want.ListMeta, meta); diff != "" {
					t.Errorf("metadata (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestReadListVariants(t *testing.T) {
	t.Parallel()
	unknownFields := append([]byte("k8s\x00\x12\x1a"), "\x18\x05\x22\x01x\x29\x00\x00\x00\x00\x00\x00\x00\x00\x35\x00\x00\x00\x00\x12\x05\x0a\x03\x0a\x01a"...)
	tests := map[string]string{
		"metadata after items": `{"items":[{"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"5"},"kind":"PodList"}`,
		"spaces":               " {\n\"items\" : [ { \"metadata\" : {\"name\":\"a\"} }\n] , \"metadata\":{\"resourceVersion\":\"5\"} }\n",
		"escaped keys":         `{"\u0069tems":[{"metadata":{"name":"a"}}],"m\u0065tadata":{"resourceVersion":"5"}}`,
		"more members":         `{"a":{"items":[1]},"b":[{}],"items":[{"metadata":{"name":"a"}}],"c":-1.5e3,"metadata":{"resourceVersion":"5"}}`,
		"kind of its own":      `{"kind":"Fleet","items":[{"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"5"}}`,
		"unknown fields":       string(unknownFields),
	}
	for name, data := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var names []string
			meta, err := ReadList(iotest.HalfReader(strings.NewReader(data)), nil, func(o *Object) error {
				names = append(names, o.Key.Name)
				return nil
			})
			if err != nil || len(names) != 1 || names[0] != "a" || meta.ResourceVersion != "5" && name != "unknown fields" {
				t.Errorf("items %q, %+v, %v", names, meta, err)
			}
		})
	}
	for _, empty := range []string{`{"kind":"PodList","items":null}`, `{"kind":"PodList"}`, `{"items":[]}`, "k8s\x00\x12\x00"} {
		if _, err := ReadList(strings.NewReader(empty), nil, func(*Object) error { return errors.New("an item") }); err != nil {
			t.Errorf("%q: %v", empty, err)
		}
	}
}

func TestReadListStatus(t *testing.T) {
	t.Parallel()
	for name, data := range map[string][]byte{"protobuf": asProto(t, failure, statusGVK), "JSON": asJSON(t, failure, statusGVK)} {
		_, err := ReadList(bytes.NewReader(data), nil, nil)
		if !apierrors.IsResourceExpired(err) || !strings.Contains(err.Error(), "too old") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadListReturnsCallersError(t *testing.T) {
	t.Parallel()
	stop := errors.New("enough")
	for _, data := range [][]byte{asProto(t, podList(), podListKind), asJSON(t, podList(), podListKind)} {
		n := 0
		_, err := ReadList(bytes.NewReader(data), nil, func(*Object) error { n++; return stop })
		if err != stop || n != 1 { //nolint:errorlint // must be the same value
			t.Errorf("%v after %d items", err, n)
		}
	}
}

// An append to an item's bytes must not overwrite the next item.
func TestItemCapacityIsItsLength(t *testing.T) {
	t.Parallel()
	for _, data := range [][]byte{asProto(t, podList(), podListKind), asJSON(t, podList(), podListKind)} {
		_, err := ReadList(bytes.NewReader(data), nil, func(o *Object) error {
			_ = append(o.Bytes, strings.Repeat("X", 100)...)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestReadListErrors(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	proto := asProto(t, podList(), podListKind)
	envelope := func(b string) string { return "k8s\x00" + b }
	list := func(b string) string { return envelope(fmt.Sprintf("\x12%c%s", len(b), b)) }
	large := string(binary.AppendUvarint([]byte{0x12}, MaxObjectBytes+1))
	endless63 := "\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
	tests := map[string]struct {
		data string
		want string
		is   error
	}{
		"nothing":                    {"", "unexpected EOF", io.ErrUnexpectedEOF},
		"a web page":                 {"<html>", `"<html>"`, nil},
		"CBOR":                       {"\xd9\xd9\xf7\xa0", "AcceptContentTypes", nil},
		"an object in JSON":          {`{"kind":"Pod","metadata":{"name":"a"},"spec":{}}`, `want a list, got a "Pod"`, nil},
		"an object in protobuf":      {string(asProto(t, realPod(), podKind)), "want a list, got a \"Pod\"", nil},
		"an error in JSON":           {`{"error":"please log in"}`, `neither kind nor items: "{\"error\":\"please log in\"}"`, nil},
		"an empty object":            {`{}`, "neither kind nor items", nil},
		"an empty envelope":          {envelope(""), "the list in the envelope", io.ErrUnexpectedEOF},
		"only a kind in protobuf":    {envelope("\x0a\x09\x12\x07PodList"), "the list in the envelope", io.ErrUnexpectedEOF},
		"a status without message":   {`{"kind":"Status","status":"Failure","code":502}`, `status "Failure", code 502`, nil},
		"the same in protobuf":       {envelope("\x0a\x08\x12\x06Status\x12\x02\x30\x05"), `code 5`, nil},
		"a late kind":                {list("") + "\x0a\x05\x12\x03Pod", "want a list, got a \"Pod\"", nil},
		"half a JSON list":           {`{"items":[{"metadata":{"name":"a"}},{"meta`, "after 1 items: an item: a value, of which 6 bytes have arrived", io.ErrUnexpectedEOF},
		"no end of items":            {`{"items":[{}`, "unexpected EOF", io.ErrUnexpectedEOF},
		"no items after the key":     {`{"items":`, "unexpected EOF", io.ErrUnexpectedEOF},
		"no comma":                   {`{"items":[{} {}]}`, "want ','", nil},
		"no colon":                   {`{"items" []}`, "want ':'", nil},
		"a comma too many":           {`{"items":[{},]}`, "want {", nil},
		"a number as key":            {`{5:1}`, "want a key", nil},
		"items of another type":      {`{"items":{}}`, "want an array of items", nil},
		"an item of another type":    {`{"items":[5]}`, "want {", nil},
		"duplicate items":            {`{"items":[],"items":[]}`, "duplicate", nil},
		"metadata of another type":   {`{"metadata":5}`, "decode the list's kind and metadata", nil},
		"kind of another type":       {`{"kind":5}`, "decode the list's kind and metadata", nil},
		"a broken member":            {`{"x":01}`, `want ','`, nil},
		"a broken value":             {`{"x":tru}`, "the list's \"x\": invalid JSON", nil},
		"a broken status":            {`{"kind":"Status","code":"x"}`, "decode a status", nil},
		"garbage after JSON":         {`{"items":[]} x`, "'x' follows the list", nil},
		"garbage after protobuf":     {string(proto) + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "more than 64 bits", nil},
		"another prefix":             {"k8s1", "want a list that starts with", nil},
		"half a prefix":              {"k8", "unexpected EOF", io.ErrUnexpectedEOF},
		"half a protobuf list":       {string(proto[:len(proto)-900]), "have arrived", io.ErrUnexpectedEOF},
		"half a tag":                 {list("")[:4] + "\x92", "unexpected EOF", io.ErrUnexpectedEOF},
		"the envelope's other field": {envelope("\x7a\x00"), "an unknown field of the envelope", nil},
		"a broken kind":              {envelope("\x0a\x01\xff"), "decode the kind", nil},
		"a long kind":                {envelope("\x0a\x09a"), "the kind of 9 bytes", io.ErrUnexpectedEOF},
		"a broken status message":    {envelope("\x0a\x08\x12\x06Status\x12\x01\xff"), "decode the status", nil},
		"two lists":                  {list("") + "\x12\x00", "two lists", nil},
		"no length of the list":      {envelope("\x12"), "the length of the list", io.ErrUnexpectedEOF},
		"an endless list":            {envelope("\x12" + endless63), "a list of 9223372036854775807 bytes", nil},
		"a large item":               {envelope("\x12" + string(binary.AppendUvarint(nil, 1<<30)) + large), "larger than the limit", nil},
		"an item past the list":      {envelope("\x12\x02\x12\x03abc"), "an item is longer than the list", nil},
		"metadata past the list":     {envelope("\x12\x02\x0a\x02\x0a\x00"), "longer than the list", nil},
		"broken metadata":            {list("\x0a\x01\xff"), "decode the list's metadata", nil},
		"half metadata":              {envelope("\x12\x09\x0a\x05"), "the list's metadata of 5 bytes", io.ErrUnexpectedEOF},
		"half an item's length":      {envelope("\x12\x09\x12\xff"), "the length of an item", io.ErrUnexpectedEOF},
		"a broken item":              {list("\x12\x01\xff"), "after 0 items: an item: decode metadata", nil},
		"half an unknown field":      {envelope("\x12\x09\x1a\x05x"), "unexpected EOF", io.ErrUnexpectedEOF},
		"half an unknown length":     {envelope("\x12\x09\x1a"), "unexpected EOF", io.ErrUnexpectedEOF},
		"an endless field":           {envelope("\x12\x20\x1a" + endless63), "a field of 9223372036854775807 bytes", nil},
		"a group":                    {list("\x1b\x1c"), "cannot be skipped", nil},
		"items as a number":          {list("\x15\x00\x00\x00\x00"), "with the tag 21", nil},
		"a failed read":              {"", "timeout", iotest.ErrTimeout},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body io.Reader = strings.NewReader(tt.data)
			if tt.is == iotest.ErrTimeout { //nolint:errorlint // a value of the table
				body = iotest.ErrReader(iotest.ErrTimeout)
			}
			_, err := ReadList(body, nil, func(*Object) error { return nil })
			if err == nil || !strings.Contains(err.Error(), tt.want) || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	loose := &Cut{jsonOnly: []string{"x"}}
	if _, err := ReadList(bytes.NewReader(proto), loose, nil); err == nil || !strings.Contains(err.Error(), "cannot cut x") {
		t.Errorf("a cut that protobuf does not allow: %v", err)
	}
	failing := io.MultiReader(strings.NewReader(`{"items":[]}`), iotest.ErrReader(iotest.ErrTimeout))
	if _, err := ReadList(failing, nil, nil); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a read that fails after the list: %v", err)
	}
	long := io.MultiReader(strings.NewReader(`{"x":"`), &endless{data: bytes.Repeat([]byte("x"), 1<<20)})
	if _, err := ReadList(long, nil, nil); err == nil || !strings.Contains(err.Error(), "larger than the limit") {
		t.Errorf("an endless member: %v", err)
	}
	many := io.MultiReader(strings.NewReader(`{"x":0`), &endless{data: []byte(`,"x":"` + strings.Repeat("x", 1<<20) + `"`)})
	if _, err := ReadList(many, nil, nil); err == nil || !strings.Contains(err.Error(), "larger than the limit") {
		t.Errorf("endless members: %v", err)
	}
}

// generated is a reader of a list of n objects, which it creates while it is read.
type generated struct {
	head, item, between, tail []byte
	n, i                      int
	rest                      []byte
}

func (g *generated) Read(p []byte) (int, error) {
	for len(g.rest) == 0 {
		switch {
		case g.i == 0:
			g.rest = append(bytes.Clone(g.head), g.item...)
		case g.i < g.n:
			g.rest = append(append(g.rest, g.between...), g.item...)
		case g.i == g.n:
			g.rest = append(g.rest, g.tail...)
		default:
			return 0, io.EOF
		}
		g.i++
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

// A list of 10,000 objects (50 MB) needs only a few buffers.
//
//nolint:paralleltest // counts what is allocated
func TestReadListMemory(t *testing.T) {
	testlength.OnlyWithoutRaceDetector(t)
	const n = 10_000
	pod := realPod()
	message, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	item := append(binary.AppendUvarint([]byte{0x12}, uint64(len(message))), message...)
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	for name, body := range map[string]*generated{
		"protobuf": {head: append([]byte("k8s\x00\x0a\x09\x12\x07PodList\x12"), binary.AppendUvarint(nil, uint64(n*len(item)))...), item: item, n: n},
		"JSON":     {head: []byte(`{"kind":"DatabaseList","items":[`), item: realCRJSON(), between: []byte(","), tail: []byte("]}"), n: n},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		count, largest := 0, 0
		_, err := ReadList(body, cut, func(o *Object) error {
			count++
			largest = max(largest, cap(o.Bytes))
			return nil
		})
		runtime.ReadMemStats(&after)
		if err != nil || count != n {
			t.Fatalf("%s: %d items, %v", name, count, err)
		}
		// Three small strings per item, and an object of the generator.
		perItem := int(after.TotalAlloc-before.TotalAlloc) / n
		if most := 2*len(body.item) + 600; perItem > most {
			t.Errorf("%s: %d bytes are allocated for an item, want at most %d", name, perItem, most)
		}
		if largest > startWindow {
			t.Errorf("%s: an item's buffer has %d bytes", name, largest)
		}
	}
}
