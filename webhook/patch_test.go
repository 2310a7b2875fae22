package webhook

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

func parse(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// patched returns raw with the patch, as the API server computes it.
func patched(t *testing.T, raw string, patch []byte) any {
	t.Helper()
	if patch == nil {
		return parse(t, raw)
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	result, err := decoded.Apply([]byte(raw))
	if err != nil {
		t.Fatalf("apply %s: %v", patch, err)
	}
	return parse(t, string(result))
}

// The raw objects have fields that the Go type lacks (later), and lack fields that it always encodes.
func TestPatchOfTypedObjects(t *testing.T) {
	t.Parallel()
	const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"shop","later":1},
		"spec":{"replicas":0,"later":{"a":[1]},"template":{"spec":{"containers":[{"name":"a","later":1},{"name":"b","later":2,"env":[{"name":"X","value":""}]},{"name":"c","later":3}]}}}}`
	container := func(d *appsv1.Deployment, i int) *corev1.Container { return &d.Spec.Template.Spec.Containers[i] }
	for name, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   string // the patch
	}{
		"nothing": {func(*appsv1.Deployment) {}, ``},
		"new field": {
			func(d *appsv1.Deployment) { d.Labels = map[string]string{"a/b~c": "1"} },
			`[{"op":"add","path":"/metadata/labels","value":{"a/b~c":"1"}}]`,
		},
		"field with a zero value that the type leaves out": {
			func(d *appsv1.Deployment) { container(d, 1).Env[0].Value = "new" },
			`[{"op":"replace","path":"/spec/template/spec/containers/1/env/0/value","value":"new"}]`,
		},
		"pointer": {
			func(d *appsv1.Deployment) { *d.Spec.Replicas = 3 },
			`[{"op":"replace","path":"/spec/replicas","value":3}]`,
		},
		"removed field": {
			func(d *appsv1.Deployment) { d.Spec.Replicas = nil },
			`[{"op":"remove","path":"/spec/replicas"}]`,
		},
		"new item at the beginning": {
			func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "new"}}, d.Spec.Template.Spec.Containers...)
			},
			`[{"op":"add","path":"/spec/template/spec/containers/0","value":{"name":"new","resources":{}}}]`,
		},
		"removed item": {
			func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers[:1], *container(d, 2))
			},
			`[{"op":"remove","path":"/spec/template/spec/containers/1"}]`,
		},
		"changed item after a removed one": {
			func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[1:]
				container(d, 0).Image = "b:2"
			},
			`[{"op":"add","path":"/spec/template/spec/containers/0/image","value":"b:2"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, err := decode[*appsv1.Deployment]([]byte(deployment))
			if err != nil {
				t.Fatal(err)
			}
			after := before.DeepCopy()
			test.change(after)
			patch, err := patchFor([]byte(deployment), encoded(t, before), encoded(t, after))
			if err != nil {
				t.Fatal(err)
			}
			if name != "changed item after a removed one" && string(patch) != canonical(t, test.want) {
				t.Errorf("the patch is %s, want %s", patch, test.want)
			}
			result, err := json.Marshal(patched(t, deployment, patch))
			if err != nil {
				t.Fatal(err)
			}
			got, err := decode[*appsv1.Deployment](result)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, after) {
				t.Errorf("the patched object is %s", result)
			}
			// Each container that is still there has its field later.
			for _, item := range patched(t, deployment, patch).(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any) {
				fields := item.(map[string]any)
				want := map[string]any{"a": int64(1), "b": int64(2), "c": int64(3), "new": nil}[fields["name"].(string)]
				if fields["later"] != want {
					t.Errorf("container %s has later %v, want %v", fields["name"], fields["later"], want)
				}
			}
		})
	}
}

// canonical returns a patch as patchFor encodes it.
func canonical(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		return ""
	}
	var operations []operation
	if err := json.Unmarshal([]byte(text), &operations); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// A list with many changed items must not take quadratic time.
func TestPatchOfLongLists(t *testing.T) {
	t.Parallel()
	const items = 100_000
	for name, count := range map[string]int{"as many items": items, "more items": items + 1, "fewer items": items - 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before, after := make([]any, items), make([]any, count)
			for i := range before {
				before[i] = map[string]any{"value": int64(i)}
			}
			for i := range after {
				after[i] = map[string]any{"value": int64(-i - 1)}
			}
			if got := apply(before, before, after); !reflect.DeepEqual(got, after) {
				t.Error("the result has not the items of after")
			}
		})
	}
}

// The patch between two documents makes the second one of the first.
func FuzzPatch(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"a":1}`, `{"a":2,"b":null}`},
		{`{"a":[1,2,3]}`, `{"a":[3,1]}`},
		{`{"a":[{"name":"x"},{"name":"y","v":1}]}`, `{"a":[{"name":"y"}]}`},
		{`{"a/b":{"~":1},"":2}`, `{"a/b":{},"":[]}`},
		{`{"a":{}}`, `{"a":[]}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		var a, b any
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(before), &a) != nil || kjson.UnmarshalCaseSensitivePreserveInts([]byte(after), &b) != nil {
			return
		}
		if reflect.TypeOf(a) != reflect.TypeFor[map[string]any]() || reflect.TypeOf(b) != reflect.TypeFor[map[string]any]() || strings.ContainsRune(before+after, '\uFFFD') {
			return // reviews contain objects
		}
		if got := apply(a, a, b); !reflect.DeepEqual(got, b) {
			t.Fatalf("applied: %v, want %v", got, b)
		}
		operations := diff(nil, "", a, b)
		// The same without decoding what is equal.
		shorter, err := patchFor(encoded(t, a), encoded(t, a), encoded(t, b))
		if err != nil {
			t.Fatal(err)
		}
		if len(operations) == 0 && shorter == nil {
			if !reflect.DeepEqual(a, b) {
				t.Fatal("no patch for different documents")
			}
			return
		}
		patch, raw := encoded(t, operations), encoded(t, a)
		if string(patch) != string(shorter) {
			t.Fatalf("the patches are %s and %s", patch, shorter)
		}
		if got := patched(t, string(raw), patch); !reflect.DeepEqual(got, b) {
			t.Fatalf("%s makes %v of %s, want %v", patch, got, raw, b)
		}
	})
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The patch is the same as one of decoded documents, whatever raw has and lacks beside before.
func TestPatchDecodesWhatDiffers(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	for range testlength.Count(3000, 10_000) {
		before := randomFields(random, 3)
		raw, after := changedFields(random, before), changedFields(random, before)
		got, err := patchFor(encoded(t, raw), encoded(t, before), encoded(t, after))
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		if operations := diff(nil, "", raw, apply(raw, before, after)); len(operations) > 0 {
			want = encoded(t, operations)
		}
		if string(got) != string(want) {
			t.Fatalf("raw %s\nbefore %s\nafter %s\nthe patch is %s\nwant %s", encoded(t, raw), encoded(t, before), encoded(t, after), got, want)
		}
	}
}

// randomFields returns an object with some of the fields a to c and name.
func randomFields(random *rand.Rand, depth int) map[string]any {
	fields := map[string]any{}
	for _, name := range []string{"a", "b", "c", "name"} {
		switch random.IntN(6) {
		case 0:
			fields[name] = int64(random.IntN(3))
		case 1:
			fields[name] = strconv.Itoa(random.IntN(3))
		case 2:
			if depth > 0 {
				fields[name] = randomFields(random, depth-1)
			}
		case 3:
			if depth > 0 {
				fields[name] = []any{randomFields(random, depth-1), randomFields(random, 0), randomFields(random, 0)}[random.IntN(3):]
			}
		case 4:
			fields[name] = nil
		}
	}
	return fields
}

// changedFields returns a copy with some fields changed, added and removed, on all levels.
func changedFields(random *rand.Rand, fields map[string]any) map[string]any {
	result := maps.Clone(fields)
	for name, value := range randomFields(random, 1) {
		inner, isObject := result[name].(map[string]any)
		items, isList := result[name].([]any)
		switch {
		case isObject:
			result[name] = changedFields(random, inner)
		case isList && random.IntN(3) > 0:
			items = slices.Clone(items)
			i := random.IntN(len(items))
			items[i] = changedFields(random, items[i].(map[string]any))
			result[name] = items
		case random.IntN(2) == 0:
			result[name] = value
		case random.IntN(2) == 0:
			delete(result, name)
		}
	}
	return result
}
