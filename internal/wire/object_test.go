package wire

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/kube"
)

func mustParse(tb testing.TB, data []byte, cut *Cut) *Object {
	tb.Helper()
	o, err := Parse(data, cut)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func TestParseMetadata(t *testing.T) {
	t.Parallel()
	pod := realPod()
	cut := mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields)
	for name, data := range map[string][]byte{
		"protobuf": asProto(t, pod, podKind),
		"JSON":     asJSON(t, pod, podKind),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := mustParse(t, data, cut)
			want := &Object{
				Bytes: o.Bytes, Format: o.Format,
				Key: kube.Key{Namespace: "shop", Name: "checkout-7d9c5b8f6d-x2k4q"}, UID: "0b7f3c1e-5a64-4c0e-9b57-2f6f6f9f1c11",
				ResourceVersion: "184467", Generation: 3, Manager: "kubelet", TiedManager: "kube-controller-manager",
			}
			if diff := cmp.Diff(want, o); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if o.Format.String() != name {
				t.Errorf("format %s, want %s", o.Format, name)
			}
			checkLists(t, &pod.ObjectMeta, o)
			if bytes.Contains(o.Bytes, []byte("kubelet")) {
				t.Error("managedFields were not cut")
			}
		})
	}
	if o := mustParse(t, asProto(t, realDeployment(), deploymentKind), nil); !o.Deleting {
		t.Error("deletionTimestamp is missing in protobuf")
	}
	if o := mustParse(t, asJSON(t, realDeployment(), deploymentKind), nil); !o.Deleting {
		t.Error("deletionTimestamp is missing in JSON")
	}
}

func TestParseWithoutCutKeepsBytes(t *testing.T) {
	t.Parallel()
	data := append([]byte(" \n"), realCRJSON()...)
	data = append(data, "\n "...)
	if o := mustParse(t, data, nil); !bytes.Equal(realCRJSON(), o.Bytes) {
		t.Errorf("Bytes = %s", o.Bytes)
	}
	pod := realPod()
	want, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if o := mustParse(t, asProto(t, pod, podKind), nil); !bytes.Equal(want, o.Bytes) {
		t.Error("Bytes are not the Pod's own message")
	}
}

func TestUnusualMetadata(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data string
		want Object
	}{
		"no metadata":            {`{}`, Object{}},
		"null metadata":          {`{"metadata":null}`, Object{}},
		"null fields":            {`{"metadata":{"name":null,"deletionTimestamp":null,"generation":null}}`, Object{}},
		"same key, same outcome": {`{"metadata":{"name":"a","name":"b"}}`, Object{Key: kube.Key{Name: "b"}}},
		"escaped keys":           {`{"\u006detadata":{"\u006eame":"a\u0062\n"}}`, Object{Key: kube.Key{Name: "ab\n"}}},
		"other case":             {`{"Metadata":{"name":"a"},"metadata":{"Name":"b"}}`, Object{}},
		"not ASCII":              {`{"metadata":{"name":"ä"}}`, Object{Key: kube.Key{Name: "ä"}}},
		"invalid UTF-8":          {"{\"metadata\":{\"name\":\"a\xff\"}}", Object{Key: kube.Key{Name: "a\ufffd"}}},
		"invalid UTF-8, long":    {"{\"metadata\":{\"name\":\"aaaaaaaaaaaaaaaa\x80bbbbbbbbbbbbbbbb\"}}", Object{Key: kube.Key{Name: "aaaaaaaaaaaaaaaa\ufffdbbbbbbbbbbbbbbbb"}}},
		"generation as text":     {`{"metadata":{"name":"a","generation":"5"}}`, Object{Key: kube.Key{Name: "a"}}},
		"generation as float":    {`{"metadata":{"name":"a","generation":1e0}}`, Object{Key: kube.Key{Name: "a"}}},
		"huge generation":        {`{"metadata":{"name":"a","generation":9223372036854775807}}`, Object{Key: kube.Key{Name: "a"}, Generation: 1<<63 - 1}},
		"name as number":         {`{"metadata":{"name":5,"uid":"u"}}`, Object{UID: "u"}},
		"time with an offset":    {`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00+01:00"}}`, Object{Deleting: true}},
		"no time":                {`{"metadata":{"deletionTimestamp":"soon"}}`, Object{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := mustParse(t, []byte(tt.data), nil)
			tt.want.Format, tt.want.Bytes = JSON, []byte(tt.data)
			if diff := cmp.Diff(&tt.want, o); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + "}" }
	tests := map[string]struct{ data, want string }{
		"nothing":                  {"", "neither JSON nor protobuf: nothing"},
		"a web page":               {"<html>" + strings.Repeat("x", 100), `"<html>` + strings.Repeat("x", 58) + `"...`},
		"an array":                 {"[]", "neither"},
		"null":                     {"null", "neither"},
		"two documents":            {"{} {}", "want nothing more"},
		"a zero byte at the end":   {"{}\x00", "want nothing more"},
		"a comma too many":         {`{"a":1,}`, "want a key"},
		"no comma":                 {`{"a":1 "b":2}`, `want "," or }`},
		"no colon":                 {`{"a" 1}`, `want ":"`},
		"no value":                 {`{"a":}`, "want a value"},
		"a bare key":               {`{a:1}`, "want a key"},
		"a wrong bracket":          {`{"a":[1}]`, `want "," or ]`},
		"a comma first":            {`{"a":[,1]}`, "want a value"},
		"a leading zero":           {`{"a":01}`, `want "," or }`},
		"a plus":                   {`{"a":+1}`, "want a value"},
		"a lone minus":             {`{"a":-}`, "want a digit"},
		"a lone point":             {`{"a":1.}`, "want a digit"},
		"a lone exponent":          {`{"a":1e+}`, "want a digit"},
		"a wrong literal":          {`{"a":nul}`, "want null"},
		"a wrong escape":           {`{"a":"\x"}`, "want an escape"},
		"a short unicode escape":   {`{"a":"\u12g4"}`, "want a hexadecimal digit"},
		"a newline in a string":    {"{\"a\":\"\n\"}", "want no control character"},
		"an unclosed string":       {`{"a":"b`, "unexpected end of JSON"},
		"an unclosed object":       {`{"a":1`, "unexpected end of JSON"},
		"an unclosed literal":      {`{"a":tru`, "unexpected end of JSON"},
		"an unclosed escape":       {`{"a":"\`, "unexpected end of JSON"},
		"an unclosed code":         {`{"a":"\u00`, "unexpected end of JSON"},
		"too deep":                 {deep(10001), "nested deeper than 10000"},
		"ambiguous metadata":       {`{"metadata":{"name":"a"},"metadata":{"namespace":"b"}}`, "ambiguous metadata"},
		"undecodable for both":     {`{"metadata":{"name":5},"a":1e999}`, "decode metadata"},
		"an empty envelope":        {"k8s\x00", "nothing follows the prefix"},
		"a broken envelope":        {"k8s\x00\x12\x05a", "read the envelope"},
		"broken metadata":          {"k8s\x00\x12\x04\x0a\x02\x0a\x09", "decode metadata"},
		"metadata of another type": {"k8s\x00\x12\x02\x08\x01", "decode metadata"},
		"a broken label":           {"k8s\x00\x12\x06\x0a\x04\x5a\x02\x0a\x09", "decode metadata"},
		"a broken owner":           {"k8s\x00\x12\x06\x0a\x04\x6a\x02\x0a\x09", "decode metadata"},
		"a broken time":            {"k8s\x00\x12\x06\x0a\x04\x4a\x02\x0a\x00", "decode metadata"},
		"a name that is then null": {`{"metadata":{"name":"a","name":null}}`, "ambiguous metadata"},
		"deleted in the year 1":    {`{"metadata":{"deletionTimestamp":"0001-01-01T00:00:00Z"}}`, "ambiguous metadata"},
		"a group":                  {"k8s\x00\x12\x06\x13\x14\x0a\x02\x0a\x00", "only the kind's own decoder supports"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse([]byte(tt.data), nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "parse an object: ") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
	mustParse(t, []byte(deep(10000)), nil)
	if _, err := Read(Format(7), nil); err == nil || !strings.Contains(err.Error(), "Format(7)") {
		t.Errorf("Read of an unknown format: %v", err)
	}
	if _, err := Read(JSON, []byte("{")); err == nil {
		t.Error("Read accepted half an object")
	}
}

// Metadata in two pieces, after other fields, is merged.
func TestProtobufMetadataInPieces(t *testing.T) {
	t.Parallel()
	first, err := (&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Labels: map[string]string{"x": "1"}, ManagedFields: managedFields(),
	}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	second := "\x1a\x01b\x2a\x01u\x5a\x06\x0a\x01y\x12\x012\x8a\x01\x09\x0a\x07kubelet"
	msg := append([]byte{0x1a, 2, 0x0a, 0}, first...) // an empty status.phase, before the metadata
	msg = append(msg, 0x0a, byte(len(second)))
	msg = append(msg, second...)
	data, err := (&runtime.Unknown{Raw: msg}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	data = append([]byte(protoPrefix), data...)
	for name, cut := range map[string]*Cut{
		"typed":    mustCut(t, reflect.TypeFor[*corev1.Pod](), ManagedFields),
		"metadata": mustCut(t, reflect.TypeFor[*metav1.PartialObjectMetadata](), ManagedFields),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := mustParse(t, data, cut)
			checkMetadata(t, &metav1.ObjectMeta{Name: "a", Namespace: "b", UID: "u", Labels: map[string]string{"x": "1", "y": "2"}}, o)
			if bytes.Contains(o.Bytes, []byte("kubelet")) {
				t.Error("managedFields were not cut")
			}
		})
	}
}

func TestObjectWithInvalidBytes(t *testing.T) {
	t.Parallel()
	for _, o := range []Object{{Format: Protobuf, Bytes: []byte{0x0a, 9}}, {Format: JSON, Bytes: []byte("{")}} {
		if o.Labels() != nil || o.Annotations() != nil || o.Finalizers() != nil || o.OwnerReferences() != nil {
			t.Errorf("%s: invalid bytes have metadata", o.Format)
		}
	}
}

func TestCloneSharesNoMemory(t *testing.T) {
	t.Parallel()
	o := mustParse(t, realCRJSON(), nil)
	c := o.Clone()
	scribble(o.Bytes)
	if !bytes.Equal(realCRJSON(), c.Bytes) {
		t.Error("the clone has changed with the object")
	}
}

//nolint:paralleltest // counts allocations
func TestInternerIsBounded(t *testing.T) {
	n := interner{known: map[string]string{}}
	for i := range 3 * maxInterned {
		if got := n.intern([]byte{'n', byte(i), byte(i >> 8)}); got != string([]byte{'n', byte(i), byte(i >> 8)}) {
			t.Fatalf("interned %q", got)
		}
	}
	if len(n.known) > maxInterned {
		t.Errorf("the interner has %d strings", len(n.known))
	}
	if testing.AllocsPerRun(100, func() { n.intern([]byte{'n', 255, 11}) }) > 0 {
		t.Error("a known string was allocated again")
	}
}
