package difference

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	kjson "sigs.k8s.io/json"
)

func decoded(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var content map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &content); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return content
}

func TestWalk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string
		walker        Walker
		want          []string
	}{
		"equal": {
			before: `{"a":[{"b":1}],"c":{"d":null},"e":[1,{"f":2}]}`,
			after:  `{"a":[{"b":1}],"c":{},"e":[1,{"f":2}]}`,
		},
		"number": {
			before: `{"a":3,"b":[3.0],"c":3}`, after: `{"a":3.0,"b":[3],"c":3.5}`,
			want: []string{"c [c]: 3 -> 3.5"},
		},
		"null in a list of values": {
			before: `{"a":[1,{"b":null}]}`, after: `{"a":[1,{}]}`,
			want: []string{`a [a]: [1,{"b":null}] -> [1,{}]`},
		},
		"elements by name": {
			before: `{"c":[{"name":"a","v":1},{"name":"b.c","v":1},{"name":"d"}]}`,
			after:  `{"c":[{"name":"e"},{"name":"b.c","v":2},{"name":"a","v":2}]}`,
			want: []string{
				"c[a].v [c[0].v]: 1 -> 2", "c[b.c].v [c[1].v]: 1 -> 2", `c[d] [c[2]]: {"name":"d"} -> null`,
				`c[e] [c[0]]: null -> {"name":"e"}`,
			},
		},
		"elements by type": {
			before: `{"c":[{"type":"A","name":"x"},{"type":"B","name":"x"}]}`,
			after:  `{"c":[{"type":"A","name":"x"},{"type":"B","name":"y"}]}`,
			want:   []string{`c[B].name [c[1].name]: "x" -> "y"`},
		},
		"elements by key": {
			before: `{"c":[{"key":"A","v":1}]}`, after: `{"c":[{"key":"A"}]}`,
			want: []string{"c[A].v [c[0].v]: 1 -> null"},
		},
		"elements with a number": {
			before: `{"c":[{"name":1}]}`, after: `{"c":[{"name":2}]}`,
			want: []string{"c[0].name [c[0].name]: 1 -> 2"},
		},
		"new elements": {
			before: `{"c":[]}`, after: `{"c":[{"name":"a"}]}`,
			want: []string{`c[a] [c[0]]: null -> {"name":"a"}`},
		},
		"order": {
			before: `{"c":[{"name":"a"},{"name":"b"}]}`,
			after:  `{"c":[{"name":"b"},{"name":"a"}]}`,
			want:   []string{`c [c]: [{"name":"a"},{"name":"b"}] -> [{"name":"b"},{"name":"a"}]`},
		},
		"values": {
			before: `{"c":[1,2]}`, after: `{"c":[2]}`,
			want: []string{"c [c]: [1,2] -> [2]"},
		},
		"whole lists": {
			before: `{"c":[{"name":"a"}]}`, after: `{"c":[{"name":"b"}]}`,
			walker: Walker{WholeLists: true}, want: []string{`c [c]: [{"name":"a"}] -> [{"name":"b"}]`},
		},
		"object of one value": {
			before: `{}`, after: `{"a":{"b":{"c":1},"d":{}}}`,
			want: []string{`a [a]: null -> {"b":{"c":1},"d":{}}`},
		},
		"object of one value, split": {
			before: `{}`, after: `{"a":{"b":{"c":1},"d":{}}}`, walker: Walker{Expand: true},
			want: []string{"a.b.c [a.b.c]: null -> 1", "a.d [a.d]: null -> {}"},
		},
		"another type": {
			before: `{"a":1}`, after: `{"a":{"b":1}}`, walker: Walker{Expand: true},
			want: []string{`a [a]: 1 -> {"b":1}`},
		},
		"keys": {
			before: `{}`, after: `{"a":{"b.c/d":1,"":2,"x-y_Z0":3}}`,
			walker: Walker{Expand: true}, want: []string{
				"a[] [a[]]: null -> 2", "a[b.c/d] [a[b.c/d]]: null -> 1",
				"a.x-y_Z0 [a.x-y_Z0]: null -> 3",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			test.walker.Report = func(path Path, before, after any) {
				got = append(got, fmt.Sprintf("%s [%s]: %s -> %s", path, path.Indexed(), encoded(t, before),
					encoded(t, after)))
			}
			test.walker.Walk(decoded(t, test.before), decoded(t, test.after))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A walk of two values reports a difference exactly if they differ, and the values that it reports are those at the
// paths.
func TestWalkOfRandomObjects(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // repeatable
	for range 5000 {
		original := randomFields(random, 3)
		changed := changedFields(random, original)
		for _, w := range []Walker{{}, {Expand: true}, {WholeLists: true}} {
			// nulls count only in lists that are one value
			before, after := withoutNulls(original), withoutNulls(changed)
			reported := false
			w.Report = func(path Path, old, value any) {
				reported = true
				for _, side := range []struct{ in, want any }{{before, old}, {after, value}} {
					if got, isClear := valueAt(side.in, path); isClear && side.want != nil &&
						!reflect.DeepEqual(got, side.want) {
						t.Fatalf("%s of %s is %s, and %s was reported", path, encoded(t, side.in), encoded(t, got),
							encoded(t, side.want))
					}
				}
			}
			w.Walk(before, after)
			if reported == reflect.DeepEqual(before, after) {
				t.Fatalf("%+v reported %t: %s and %s", w, reported, encoded(t, before), encoded(t, after))
			}
		}
	}
}

// valueAt returns the value at a path. isClear is false if an element has no name, so that it may have another index.
func valueAt(value any, path Path) (got any, isClear bool) {
	for _, step := range path {
		switch current := value.(type) {
		case map[string]any:
			value = current[step.Name]
		case []any:
			i := slices.IndexFunc(current, func(element any) bool {
				fields, _ := element.(map[string]any)
				return step.Name != "" && fields["name"] == step.Name
			})
			if i < 0 {
				return nil, false
			}
			value = current[i]
		}
	}
	return value, true
}

func withoutNulls(value any) any {
	switch value := value.(type) {
	case map[string]any:
		rest := map[string]any{}
		for name, field := range value {
			if field != nil {
				rest[name] = withoutNulls(field)
			}
		}
		return rest
	case []any:
		rest := make([]any, len(value))
		for i := range value {
			rest[i] = withoutNulls(value[i])
		}
		return rest
	}
	return value
}

// FuzzMergePatch compares MergePatch with a library for merge patches: the library, applied to from, must return to.
// Nulls are excluded: they have no meaning in statuses, and merge patches cannot write them.
func FuzzMergePatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`{}`, `{}`},
		{`{"a":1,"b":{"c":[1,2]}}`, `{"b":{"c":[2],"d":{"e":"f"}}}`},
		{`{"a":{"b":{"c":1}}}`, `{"a":{"b":{}}}`},
		{`{"a":{"b":1}}`, `{"a":[{"b":1}]}`},
		{`{"a":"x"}`, `{"a":{"b":{}}}`},
		{`{"a":{"b":1,"c":2}}`, `{}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		var from, to map[string]any
		if json.Unmarshal([]byte(a), &from) != nil || json.Unmarshal([]byte(b), &to) != nil ||
			strings.Contains(a+b, "null") {
			return
		}
		encoded := func(content map[string]any) []byte {
			if content == nil {
				content = map[string]any{}
			}
			text, err := json.Marshal(content)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		patch := MergePatch(from, to)
		if len(patch) == 0 != reflect.DeepEqual(decoded(t, string(encoded(from))), decoded(t, string(encoded(to)))) {
			t.Fatalf("from %s to %s the patch is %s", a, b, encoded(patch))
		}
		patched, err := jsonpatch.MergePatch(encoded(from), encoded(patch))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(decoded(t, string(encoded(to))), decoded(t, string(patched))); diff != "" {
			t.Errorf("from %s to %s, the patch %s (-want +got):\n%s", a, b, encoded(patch), diff)
		}
	})
}
