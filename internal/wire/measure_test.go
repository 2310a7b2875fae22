package wire

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
)

type (
	measuredBase struct {
		Base   string `json:"base"`
		Hidden []int  `json:"hidden"`
	}
	measuredInner struct{ Plain, Other int }
	measured      struct {
		measuredBase       `json:",inline"`
		*measuredInner     `json:",omitempty"`
		Named              measuredInner `json:"named"`
		Hidden             *measured     `json:"hidden"`
		Items              []measured
		Map                map[string]*measured
		Fixed              [2]measuredInner
		Any                any
		Skipped            string `json:"-"`
		Raw                runtime.RawExtension
		Port               intstr.IntOrString
		Time               metav1.Time
		Ints               map[int]measuredInner
		private            int //nolint:unused // not decoded
		measuredUnexported `json:"unexported"`
		metav1.TypeMeta    `json:",inline"`
	}
	measuredUnexported struct{ A int }
)

// Unknown fields are those of the strict decoder, without indexes and keys. Invalid JSON is an error.
func TestMeasureFindsUnknownFields(t *testing.T) {
	t.Parallel()
	strip := regexp.MustCompile(`\[\d+\]|\.k\d`)
	for _, value := range []any{measured{}, &measured{}, corev1.Pod{}, any(nil), unstructured.Unstructured{}} {
		for _, data := range []string{
			`{}`, `[]`, `null`, `"a"`, `{"base":"a","hidden":{"x":1},"Hidden":1}`, `{"Base":1,"named":{"Plain":1,"plain":1}}`,
			`{"Plain":1,"Other":1,"measuredInner":1}`, `{"Items":[{"a":1},{"b":[{"c":1}]},{"Items":[{"d":{}}]}]}`,
			`{"Map":{"k1":{"a":1},"k2":{"Map":{"k3":{"b":1}}},"k4":null}}`, `{"Fixed":[{"a":1},{"Plain":2},{"Other":1}]}`,
			`{"Any":{"a":{"b":[{"c":1}]}},"Skipped":"a","-":1}`, `{"Raw":{"a":1},"Port":{"a":1},"Time":{"a":1}}`, `{"Ints":{"1":{"Plain":1}}}`,
			`{"private":1,"unexported":{"A":1}}`, `{"apiVersion":"a","kind":"b","Kind":"c"}`, `{"Items":{"a":1},"Map":[{"b":1}],"named":[1]}`,
			`{"a\u0062":1,"ä":{"x":1}}`, `{"spec":{"containers":[{"name":"a","nam":1},{"ports":[{"port":1}]}],"volumes":[{"secret":{"a":1}}]},"status":{"x":1}}`,
			`{"metadata":{"later":1,"managedFields":[{"fieldsV1":{"a":{}},"x":1}],"labels":{"k1":"a"}}}`,
			``, `{`, `{"a"`, `{"a":}`, `{"Items":[}`, `{"Items":[{]}`, `{}x`, `[1,]`, `{"Map":{"a":{}}`,
		} {
			typ := reflect.TypeFor[any]()
			if value != nil {
				typ = reflect.TypeOf(value)
			}
			var got, want []string
			size, err := (&Shapes{}).Measure([]byte(data), typ, 1<<40, func(path string) { got = append(got, path) })
			target := reflect.New(typ)
			problems, decodeErr := kjson.UnmarshalStrict([]byte(data), target.Interface(), kjson.DisallowUnknownFields)
			if decodeErr == nil && err != nil || err == nil && size < 0 {
				t.Errorf("%T, %s: %v, but it is decoded", value, data, err)
			}
			if isSyntax := strings.Contains(fmt.Sprint(decodeErr), "unexpected end") || strings.Contains(fmt.Sprint(decodeErr), "invalid character"); isSyntax && err == nil {
				t.Errorf("%T, %s: no error, want %v", value, data, decodeErr)
			}
			for _, problem := range problems {
				if field, ok := errors.AsType[kjson.FieldError](problem); ok {
					want = append(want, strip.ReplaceAllString(field.FieldPath(), "[]"))
				}
			}
			if decodeErr == nil && !slices.Equal(got, want) && !slices.Equal(slices.Compact(slices.Clone(got)), slices.Compact(want)) {
				t.Errorf("%T, %s: unknown %q, want %q", value, data, got, want)
			}
		}
	}
}

// Names and paths are short, and few are reported.
func TestMeasureReportsShortPaths(t *testing.T) {
	t.Parallel()
	long := `{"` + strings.Repeat("x", 10_000) + `":1` + strings.Repeat(`,"y":1`, 500) + `}`
	var paths []string
	deep := strings.Repeat(`{"hidden":`, 500) + long + strings.Repeat("}", 500)
	if _, err := (&Shapes{}).Measure([]byte(deep), reflect.TypeFor[measured](), 1<<30, func(path string) { paths = append(paths, path) }); err != nil {
		t.Fatal(err)
	}
	if len(paths) != maxUnknown || slices.ContainsFunc(paths, func(path string) bool { return len(path) > maxUnknownPath }) {
		t.Errorf("%d paths, %.300s", len(paths), paths)
	}
}

// The limit ends a measurement early.
func TestMeasureStopsAtTheLimit(t *testing.T) {
	t.Parallel()
	data := []byte(`{"Items":[` + strings.Repeat("{},", 1000) + `x`)
	size, err := (&Shapes{}).Measure(data, reflect.TypeFor[measured](), 10_000, nil)
	if tooLarge := (TooLargeError{}); !errors.As(err, &tooLarge) || size > 20_000 {
		t.Errorf("%d, %v", size, err)
	}
}
