package wire

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A truncated list must be an error, independent of the kind of truncation: otherwise the missing objects would be
// treated as deleted.
func TestTruncatedListIsAnError(t *testing.T) {
	t.Parallel()
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.ConfigMap{
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "u1", ResourceVersion: "5"}, Data: map[string]string{"k": "v"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns", UID: "u2", ResourceVersion: "6"}},
	}}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMapList")
	for name, data := range map[string][]byte{"protobuf": asProto(t, list, kind), "JSON": bytes.TrimSpace(asJSON(t, list, kind))} {
		for n := range len(data) + 1 {
			for _, end := range []error{io.EOF, io.ErrUnexpectedEOF} {
				body := io.MultiReader(bytes.NewReader(data[:n]), failing{end})
				meta, err := ReadList(body, nil, func(*Object) error { return nil })
				// Two empty fields of the envelope, of two bytes each, follow a list in protobuf.
				whole := n == len(data) || name == "protobuf" && (n == len(data)-2 || n == len(data)-4)
				if (err == nil) != (whole && end == io.EOF) { //nolint:errorlint // the reader returns it bare
					t.Errorf("%s, %d of %d bytes, then %v: %v, %v", name, n, len(data), end, meta, err)
				}
			}
		}
	}
}

// A stream that ends within an event brings the events before it, and then an error, and never an
// event that is not whole.
func TestTruncatedEventIsAnError(t *testing.T) {
	t.Parallel()
	object := func(name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: "u", ResourceVersion: "5"}, Data: map[string]string{"{\"": "}\n"},
		}
	}
	kind := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	var frames, documents []byte
	var frameEnds, documentEnds []int
	for _, name := range []string{"a", "b", "c"} {
		frames = append(frames, frame(t, watch.Modified, asProto(t, object(name), kind))...)
		documents = append(documents, document(watch.Modified, asJSON(t, object(name), kind))...)
		frameEnds, documentEnds = append(frameEnds, len(frames)), append(documentEnds, len(bytes.TrimSpace(documents)))
	}
	for name, stream := range map[string]struct {
		data []byte
		ends []int
	}{"protobuf": {frames, frameEnds}, "JSON": {documents, documentEnds}} {
		for n := range len(stream.data) + 1 {
			want := ""
			for i, end := range stream.ends {
				if end <= n {
					want += string(rune('a' + i))
				}
			}
			r := NewEventReader(bytes.NewReader(stream.data[:n]), nil)
			var got strings.Builder
			event, err := r.Next()
			for ; err == nil; event, err = r.Next() {
				got.WriteString(event.Object.Key.Name)
			}
			between := n == 0 || slices.Contains(stream.ends, n) || name == "JSON" && slices.Contains(stream.ends, n-1)
			if got.String() != want || between != (err == io.EOF) || !between && !errors.Is(err, io.ErrUnexpectedEOF) { //nolint:errorlint // the bare one is the clean end
				t.Errorf("%s, %d of %d bytes: %q, then %v; want %q", name, n, len(stream.data), got.String(), err, want)
			}
		}
	}
}

// failing is a reader of an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
