package webhook

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
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
		"new item at the begin": {
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
			patch, err := patchFor([]byte(deployment), before, after)
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
		if !isObject(a) || !isObject(b) || strings.ContainsRune(before+after, '\uFFFD') {
			return // reviews contain objects
		}
		if got := apply(a, a, b); !reflect.DeepEqual(got, b) {
			t.Fatalf("applied: %v, want %v", got, b)
		}
		operations := diff(nil, "", a, b)
		if len(operations) == 0 {
			if !reflect.DeepEqual(a, b) {
				t.Fatal("no patch for different documents")
			}
			return
		}
		patch, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if got := patched(t, string(raw), patch); !reflect.DeepEqual(got, b) {
			t.Fatalf("%s makes %v of %s, want %v", patch, got, raw, b)
		}
	})
}

func isObject(value any) bool {
	_, ok := value.(map[string]any)
	return ok
}
