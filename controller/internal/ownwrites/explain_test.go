package ownwrites

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestContract13_OnlyRequestedChangesAreExplained checks that a change is explained only if the request contains it.
// Every other change was made by another client.
func TestContract13_OnlyRequestedChangesAreExplained(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		verb, subresource, request, from, to string
		want                                 bool
	}{
		"nothing": {"patch", "", `{}`, `{"spec":{"a":1}}`, `{"spec":{"a":1}}`, true},
		"what every write changes": {
			"patch", "", `{"spec":{"a":2}}`,
			`{"metadata":{"name":"x","resourceVersion":"1","generation":1},"spec":{"a":1}}`,
			`{"metadata":{"name":"x","resourceVersion":"2","generation":2,"managedFields":[]},"spec":{"a":2}}`, true,
		},
		"a field":                     {"patch", "", `{"spec":{"a":2}}`, `{"spec":{"a":1,"b":1}}`, `{"spec":{"a":2,"b":1}}`, true},
		"another field":               {"patch", "", `{"spec":{"a":2}}`, `{"spec":{"a":1,"b":1}}`, `{"spec":{"a":2,"b":2}}`, false},
		"another value":               {"patch", "", `{"spec":{"a":2}}`, `{"spec":{"a":1}}`, `{"spec":{"a":3}}`, false},
		"a large number":              {"patch", "", `{"spec":{"a":9007199254740993}}`, `{"spec":{"a":1}}`, `{"spec":{"a":9007199254740992}}`, false},
		"metadata":                    {"patch", "", `{"metadata":{"labels":{"a.b/c":"d"}}}`, `{"metadata":{"name":"x"}}`, `{"metadata":{"name":"x","labels":{"a.b/c":"d"}}}`, true},
		"another label":               {"patch", "", `{"metadata":{"labels":{"a":"d"}}}`, `{"metadata":{"labels":{"b":"1"}}}`, `{"metadata":{"labels":{"a":"d","b":"2"}}}`, false},
		"a field gone by a patch":     {"patch", "", `{"spec":{"a":null}}`, `{"spec":{"a":1}}`, `{"spec":{}}`, false},
		"a label gone":                {"patch", "", `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{"labels":{"a":"b","c":"d"}}}`, `{"metadata":{"labels":{"a":"b"}}}`, false},
		"an element gone":             {"patch", "", `{"spec":{"l":["a"]}}`, `{"spec":{"l":["a","b"]}}`, `{"spec":{"l":["a"]}}`, false},
		"a named element gone":        {"patch", "", `{"spec":{"l":[{"name":"a"}]}}`, `{"spec":{"l":[{"name":"a"},{"name":"b"}]}}`, `{"spec":{"l":[{"name":"a"}]}}`, false},
		"the status":                  {"patch", "status", `{"status":{"a":1}}`, `{"spec":{}}`, `{"spec":{},"status":{"a":1}}`, true},
		"the rest, by the status":     {"patch", "status", `{"spec":{"a":1},"status":{"a":1}}`, `{"spec":{}}`, `{"spec":{"a":1},"status":{"a":1}}`, false},
		"a label, by the status":      {"patch", "status", `{"status":{"a":1}}`, `{"metadata":{"labels":{"a":"b"}}}`, `{"metadata":{},"status":{"a":1}}`, false},
		"a list as a whole":           {"patch", "", `{"spec":{"l":["a","b"]}}`, `{"spec":{"l":["b"]}}`, `{"spec":{"l":["a","b"]}}`, true},
		"an element by its name":      {"patch", "", `{"spec":{"l":[{"name":"a","v":2}]}}`, `{"spec":{"l":[{"name":"a","v":1},{"name":"b","v":1}]}}`, `{"spec":{"l":[{"name":"a","v":2},{"name":"b","v":1}]}}`, true},
		"another element":             {"patch", "", `{"spec":{"l":[{"name":"a","v":2}]}}`, `{"spec":{"l":[{"name":"a","v":1},{"name":"b","v":1}]}}`, `{"spec":{"l":[{"name":"a","v":2},{"name":"b","v":2}]}}`, false},
		"an element more":             {"patch", "", `{"spec":{"l":[{"name":"a","v":2}]}}`, `{"spec":{"l":[{"name":"a","v":1}]}}`, `{"spec":{"l":[{"name":"a","v":2},{"name":"b","v":2}]}}`, false},
		"an element that is added":    {"patch", "", `{"spec":{"l":[{"name":"b"}]}}`, `{"spec":{"l":[{"name":"a"}]}}`, `{"spec":{"l":[{"name":"a"},{"name":"b"}]}}`, true},
		"another order":               {"patch", "", `{"metadata":{"labels":{"a":"b"}}}`, `{"spec":{"l":[{"name":"a"},{"name":"b"}]}}`, `{"spec":{"l":[{"name":"b"},{"name":"a"}]}}`, false},
		"the order that was asked":    {"patch", "", `{"spec":{"l":[{"name":"b"},{"name":"a"}]}}`, `{"spec":{"l":[{"name":"a"},{"name":"b"}]}}`, `{"spec":{"l":[{"name":"b"},{"name":"a"}]}}`, true},
		"elements by different names": {"patch", "", `{"spec":{"ports":[{"port":80,"to":81}]}}`, `{"spec":{"ports":[{"name":"http","port":80,"to":80},{"name":"https","port":443,"to":443}]}}`, `{"spec":{"ports":[{"name":"http","port":80,"to":81},{"name":"https","port":443,"to":999}]}}`, false},
		"names that come twice": {
			"patch", "", `{"spec":{"env":[{"name":"A","v":1}]},"metadata":{"labels":{"a":"b"}}}`,
			`{"spec":{"env":[{"name":"A","v":1},{"name":"A","v":2}]}}`, `{"metadata":{"labels":{"a":"b"}},"spec":{"env":[{"name":"A","v":1},{"name":"B","v":9}]}}`, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var request, from, to map[string]any
			for into, encoded := range map[*map[string]any]string{&request: test.request, &from: test.from, &to: test.to} {
				if err := utiljson.Unmarshal([]byte(encoded), into); err != nil {
					t.Fatal(err)
				}
			}
			if got := explains(request, kube.Call{Verb: test.verb, Subresource: test.subresource}, from, to); got != test.want {
				t.Errorf("%s %s %s from %s to %s: explained %v, want %v", test.verb, test.subresource, test.request, test.from, test.to, got, test.want)
			}
		})
	}
}

// TestContract13_ForeignChangesAreNeverExplained writes at random after another client's write. If a step is
// explained, the state must be the same as without the other client's write.
func TestContract13_ForeignChangesAreNeverExplained(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	random := rand.New(rand.NewPCG(13, 4))
	steps, explained := testlength.Count(20_000, 100_000), 0
	for range steps {
		from, foreign, own := randomObject(random), randomObject(random), randomObject(random)
		to, alone := clone(t, from), clone(t, from)
		merge(to, foreign)
		merge(to, own)
		merge(alone, own)
		if !explains(own, kube.Call{Verb: "patch", RequestType: string(types.MergePatchType)}, from, to) {
			continue
		}
		explained++
		if text, want := encoded(t, to), encoded(t, alone); text != want {
			t.Fatalf("%s is explained by %s from %s, after another client's %s: without that it would be %s", text, encoded(t, own), encoded(t, from), encoded(t, foreign), want)
		}
	}
	if explained < steps/100 {
		t.Errorf("only %d steps were explained", explained)
	}
}

// randomObject returns an object or a patch with few fields, so that many of them are equal.
func randomObject(random *rand.Rand) map[string]any {
	object := map[string]any{"metadata": randomFields(random, 2)}
	for _, name := range []string{"spec", "status"} {
		if random.IntN(2) == 0 {
			object[name] = randomFields(random, 2)
		}
	}
	return object
}

func randomFields(random *rand.Rand, depth int) map[string]any {
	fields := map[string]any{}
	for _, name := range []string{"a", "b", "l"} {
		switch n := random.IntN(6); {
		case n == 0:
			fields[name] = int64(random.IntN(2))
		case n == 1 && depth > 0:
			fields[name] = randomFields(random, depth-1)
		case n == 2 && name == "l":
			list := []any{}
			for range random.IntN(3) {
				list = append(list, map[string]any{"name": string(rune('a' + random.IntN(3))), "v": int64(random.IntN(2))})
			}
			fields[name] = list
		}
	}
	return fields
}

// merge applies a merge patch without deletions.
func merge(into, patch map[string]any) {
	for name, value := range patch {
		below, ok := value.(map[string]any)
		if !ok {
			into[name] = value
			continue
		}
		present, ok := into[name].(map[string]any)
		if !ok {
			present = map[string]any{}
			into[name] = present
		}
		merge(present, below)
	}
}

func clone(t *testing.T, object map[string]any) (copied map[string]any) {
	t.Helper()
	if err := utiljson.Unmarshal([]byte(encoded(t, object)), &copied); err != nil {
		t.Fatal(err)
	}
	return copied
}

func encoded(t *testing.T, object map[string]any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
