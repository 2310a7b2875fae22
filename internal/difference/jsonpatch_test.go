package difference

import (
	"encoding/json"
	"fmt"
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
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
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
				d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "new"}},
					d.Spec.Template.Spec.Containers...)
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
			before, err := decode[appsv1.Deployment]([]byte(deployment))
			if err != nil {
				t.Fatal(err)
			}
			after := before.DeepCopy()
			test.change(after)
			patch, err := JSONPatch([]byte(deployment), encoded(t, before), encoded(t, after))
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
			got, err := decode[appsv1.Deployment](result)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, after) {
				t.Errorf("the patched object is %s", result)
			}
			// Each container that is still there has its field later.
			for _, item := range patched(t, deployment,
				patch).(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any) {
				fields := item.(map[string]any)
				want := map[string]any{"a": int64(1), "b": int64(2), "c": int64(3), "new": nil}[fields["name"].(string)]
				if fields["later"] != want {
					t.Errorf("container %s has later %v, want %v", fields["name"], fields["later"], want)
				}
			}
		})
	}
}

// canonical returns a patch as JSONPatch encodes it.
func canonical(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		return ""
	}
	var operations []Operation
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
	items := testlength.Count(20_000, 100_000)
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
			raw := encoded(t, before)
			patch, err := JSONPatch(raw, raw, encoded(t, after))
			if err != nil {
				t.Fatal(err)
			}
			var operations []Operation
			if err := json.Unmarshal(patch, &operations); err != nil || len(operations) != max(items, count) {
				t.Errorf("%d operations, %v", len(operations), err)
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
		if kjson.UnmarshalCaseSensitivePreserveInts([]byte(before), &a) != nil ||
			kjson.UnmarshalCaseSensitivePreserveInts([]byte(after), &b) != nil {
			return
		}
		if reflect.TypeOf(a) != reflect.TypeFor[map[string]any]() ||
			reflect.TypeOf(b) != reflect.TypeFor[map[string]any]() || strings.ContainsRune(before+after, '\uFFFD') {
			return // reviews contain objects
		}
		raw := encoded(t, a)
		patch, err := JSONPatch(raw, raw, encoded(t, b))
		if err != nil {
			t.Fatal(err)
		}
		if (patch == nil) != reflect.DeepEqual(a, b) {
			t.Fatalf("the patch is %s", patch)
		}
		if got := patched(t, string(raw), patch); !reflect.DeepEqual(got, b) {
			t.Fatalf("%s makes %v of %s, want %v", patch, got, raw, b)
		}
	})
}

// decode returns an object of a Go type, as package webhook decodes it.
func decode[T any](data []byte) (*T, error) {
	obj := new(T)
	return obj, kjson.UnmarshalCaseSensitivePreserveInts(data, obj)
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// The patch makes the changes of decoded documents, whatever raw has and lacks beside before.
func TestPatchOfRandomDocuments(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // repeatable
	for range testlength.Count(3000, 10_000) {
		before := randomFields(random, 3)
		raw, after := changedFields(random, before), changedFields(random, before)
		patch, err := JSONPatch(encoded(t, raw), encoded(t, before), encoded(t, after))
		if err != nil {
			t.Fatal(err)
		}
		want := apply(raw, before, after)
		if got := patched(t, string(encoded(t, raw)), patch); !reflect.DeepEqual(got, want) {
			t.Fatalf("raw %s\nbefore %s\nafter %s\nthe patch is %s\nthe result is %s\nwant %s", encoded(t, raw),
				encoded(t, before), encoded(t, after), patch, encoded(t, got), encoded(t, want))
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
				fields[name] = []any{
					randomFields(random, depth-1), randomFields(random, 0),
					randomFields(random, 0),
				}[random.IntN(3):]
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

// patchedItem is an item of a list whose items have names.
type patchedItem struct {
	Name   string                       `json:"name"`
	Value  string                       `json:"value,omitempty"`
	Number *uint64                      `json:"number,omitempty"`
	Zero   patchedZero                  `json:"zero,omitzero"`
	Items  []patchedItem                `json:"items,omitempty"`
	Limits map[string]resource.Quantity `json:"limits,omitempty"`
}

// patchedZero is not encoded if it is empty.
type patchedZero struct {
	Ready bool               `json:"ready,omitempty"`
	Port  intstr.IntOrString `json:"port,omitzero"`
	Time  *metav1.Time       `json:"time,omitempty"`
}

// PatchedInline is embedded.
type PatchedInline struct {
	Float float64 `json:"float"`
	Lists [][]int `json:"lists"`
}

type patchedObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`
	PatchedInline     `json:",inline"`
	Items             []patchedItem           `json:"items,omitempty"`
	Zero              patchedZero             `json:"zero,omitzero"`
	Pointer           *patchedItem            `json:"pointer,omitempty"`
	Entries           map[string]*patchedItem `json:"entries,omitempty"`
	Raw               []runtime.RawExtension  `json:"raw,omitempty"`
}

func (p *patchedObject) DeepCopyObject() runtime.Object {
	c := *p
	return &c
}

// patchOf returns the object that raw becomes with the changes of a Mutator. It checks that the Go type decodes them.
func patchOf(t *testing.T, raw string, change func(*patchedObject)) (result, patch []byte) {
	t.Helper()
	obj, err := decode[patchedObject]([]byte(raw))
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	before := encoded(t, obj)
	change(obj)
	after := encoded(t, obj)
	if patch, err = JSONPatch([]byte(raw), before, after); err != nil {
		t.Fatal(err)
	}
	result = []byte(raw)
	if patch != nil {
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		if result, err = decoded.Apply(result); err != nil {
			t.Fatalf("apply %s to %s: %v", patch, raw, err)
		}
	}
	second, err := decode[patchedObject](result)
	if err != nil {
		t.Fatalf("the patch %s: %v", patch, err)
	}
	// A key of a raw extension can have another encoding.
	got := encoded(t, second)
	gotValue, gotErr := decodeValue(got)
	wantValue, wantErr := decodeValue(after)
	if gotErr != nil || wantErr != nil || !reflect.DeepEqual(gotValue, wantValue) {
		t.Fatalf("raw %s\nbefore %s\npatch %s\nresult %s\nwant %s", raw, before, patch, got, after)
	}
	return result, patch
}

// A struct that the Go type leaves out can have fields that the type lacks.
func TestPatchKeepsFieldsOfEmptyStructs(t *testing.T) {
	t.Parallel()
	const raw = `{"zero":{"later":1},"items":[{"name":"a","zero":{"later":2}},{"name":"b","zero":{"later":3}}]}`
	for name, test := range map[string]struct {
		change func(*patchedObject)
		want   string
	}{
		"field": {func(p *patchedObject) { p.Zero.Ready = true }, `[{"op":"add","path":"/zero/ready","value":true}]`},
		"items": {
			func(p *patchedObject) { p.Items[0].Zero.Ready, p.Items[1].Zero.Ready = true, true },
			`[{"op":"add","path":"/items/0/zero/ready","value":true},{"op":"add","path":"/items/1/zero/ready","value":true}]`,
		},
	} {
		if _, patch := patchOf(t, raw, test.change); string(patch) != test.want {
			t.Errorf("%s: the patch is %s, want %s", name, patch, test.want)
		}
	}
}

// A number is neither rounded nor written differently.
func TestPatchKeepsNumbers(t *testing.T) {
	t.Parallel()
	largest := ^uint64(0)
	if _, patch := patchOf(t, `{}`, func(p *patchedObject) {
		p.Pointer = &patchedItem{Number: &largest}
	}); !strings.Contains(string(patch), `"number":18446744073709551615}`) {
		t.Errorf("the patch is %s", patch)
	}
	// The other items move.
	const raw = `{"raw":[{"n":1},{"n":18446744073709551615},{"n":1.0},{"n":-0},{"n":1e3}]}`
	result, _ := patchOf(t, raw, func(p *patchedObject) {
		p.Raw = append([]runtime.RawExtension{{Raw: []byte(`{"n":2}`)}}, p.Raw...)
		p.Raw[5].Raw = []byte(`{"n":3}`)
	})
	if want := `{"raw":[{"n":2},{"n":1},{"n":18446744073709551615},{"n":1.0},{"n":-0},{"n":3}]}`; string(
		result) != want {
		t.Errorf("the result is %s, want %s", result, want)
	}
}

// Items of long lists keep the fields that the Go type lacks, and do not get those of others.
func TestPatchOfLongListsOfNamedItems(t *testing.T) {
	t.Parallel()
	count := testlength.Count(2_000, 10_000)
	var text strings.Builder
	for i := range count {
		fmt.Fprintf(&text, `,{"name":"n%d","later":%d}`, i, i)
	}
	raw := `{"items":[` + text.String()[1:] + `]}`
	for name, change := range map[string]func(*patchedObject){
		"swapped":         func(p *patchedObject) { p.Items[0], p.Items[count-1] = p.Items[count-1], p.Items[0] },
		"reversed":        func(p *patchedObject) { slices.Reverse(p.Items) },
		"several changed": func(p *patchedObject) { p.Items[1].Value, p.Items[count-2].Value = "x", "y" },
		"moved and changed": func(p *patchedObject) {
			p.Items = append(p.Items[1:], patchedItem{Name: "new"})
			p.Items[count-2].Value = "x"
		},
		"fewer": func(p *patchedObject) { p.Items = p.Items[1:]; p.Items[count-2].Value = "x" },
		"more": func(p *patchedObject) {
			p.Items = append([]patchedItem{{Name: "new"}}, p.Items...)
			p.Items[count].Value = "x"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, _ := patchOf(t, raw, change)
			var items struct {
				Items []struct {
					Name  string
					Later *int
				}
			}
			if err := json.Unmarshal(result, &items); err != nil {
				t.Fatal(err)
			}
			for _, item := range items.Items {
				if item.Name != "new" && (item.Later == nil || item.Name != "n"+strconv.Itoa(*item.Later)) {
					t.Fatalf("item %s has another value of later: %s", item.Name, encoded(t, item))
				}
			}
		})
	}
}

// The patch makes the changed object of raw, and keeps the fields that the Go type lacks: random objects and changes.
func TestPatchOfRandomObjects(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	for seed := range uint64(testlength.Count(1000, 10_000)) {
		random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // repeatable
		g := patchGenerator{random: random}
		raw := string(encoded(t, g.raw(g.object())))
		if random.IntN(4) == 0 { // keys and numbers in other encodings
			raw = strings.NewReplacer(`"name":`, `"n\u0061me":`, `"float":0`, `"float":-0`, `"items":`,
				`"items" : `).Replace(raw)
		}
		result, patch := patchOf(t, raw, g.change)
		before, after := laterOf(parse(t, raw)), laterOf(parse(t, string(result)))
		kept := laterOf(parse(t, string(encoded(t, g.changed))))
		for path := range kept {
			if after[path] != before[path] {
				t.Fatalf("seed %d: later of %s was %v and is %v\nraw %s\npatch %s\nresult %s", seed, path, before[path],
					after[path], raw, patch, result)
			}
		}
		for path, value := range after {
			if value != nil && before[path] != value {
				t.Fatalf("seed %d: %s has the value %v of another object\nraw %s\npatch %s\nresult %s", seed, path,
					value, raw, patch, result)
			}
		}
	}
}

// laterOf returns the fields later of all objects by their paths, nil if an object has none. Items of lists have their
// name as path.
func laterOf(content any) map[string]any {
	found := map[string]any{}
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			found[path] = value["later"]
			for name, field := range value {
				if name != "raw" && name != "limits" {
					walk(path+"/"+name, field)
				}
			}
		case []any:
			for _, item := range value {
				if fields, ok := item.(map[string]any); ok {
					walk(fmt.Sprintf("%s/%v", path, fields["name"]), item)
				}
			}
		}
	}
	walk("", content)
	return found
}

// patchGenerator returns random objects. Each has the same name in its list.
type patchGenerator struct {
	random  *rand.Rand
	later   int64
	changed *patchedObject
}

func (g *patchGenerator) maybe() bool { return g.random.IntN(2) == 0 }

func (g *patchGenerator) text() string {
	return []string{"", "a", "b/c~d", "é\u2028<", "~1", "\x01\"\\"}[g.random.IntN(6)]
}

func (g *patchGenerator) zero() patchedZero {
	z := patchedZero{Ready: g.maybe()}
	if g.maybe() {
		z.Port = []intstr.IntOrString{intstr.FromInt32(80), intstr.FromString("http")}[g.random.IntN(2)]
	}
	if g.random.IntN(4) == 0 {
		now := metav1.Unix(int64(g.random.IntN(3)), 0)
		z.Time = &now
	}
	if g.maybe() {
		z = patchedZero{}
	}
	return z
}

func (g *patchGenerator) items(depth int) (items []patchedItem) {
	for _, i := range g.random.Perm(4)[:g.random.IntN(5)] {
		item := g.item(depth)
		item.Name = []string{"", "x", "y/z", "é"}[i]
		items = append(items, item)
	}
	return items
}

func (g *patchGenerator) item(depth int) patchedItem {
	item := patchedItem{Name: g.text(), Value: g.text(), Zero: g.zero()}
	if g.maybe() {
		number := g.random.Uint64() >> g.random.IntN(64)
		item.Number = &number
	}
	if depth > 0 && g.maybe() {
		item.Items = g.items(depth - 1)
	}
	for range g.random.IntN(3) {
		if item.Limits == nil {
			item.Limits = map[string]resource.Quantity{}
		}
		item.Limits[g.text()] = resource.MustParse([]string{"1", "1000m", "1Gi", "0.5"}[g.random.IntN(4)])
	}
	return item
}

func (g *patchGenerator) object() *patchedObject {
	p := &patchedObject{ObjectMeta: metav1.ObjectMeta{Name: g.text()}, Items: g.items(2), Zero: g.zero()}
	p.Float = []float64{0, 1, 1.5, 1e300, -2e-9}[g.random.IntN(5)]
	for range g.random.IntN(3) {
		p.Lists = append(p.Lists, g.random.Perm(g.random.IntN(3)))
	}
	if g.maybe() {
		item := g.item(1)
		p.Pointer = &item
	}
	for range g.random.IntN(3) {
		if p.Entries == nil {
			p.Entries = map[string]*patchedItem{}
		}
		item := g.item(1)
		p.Entries[g.text()] = &item
	}
	for range g.random.IntN(4) {
		p.Raw = append(p.Raw,
			runtime.RawExtension{Raw: []byte([]string{
				`{}`, `{"a":1.0}`, `{"a":[1e3,null]}`, `{"name":"x"}`, `[1]`,
				`{"a":18446744073709551616}`,
			}[g.random.IntN(6)])})
	}
	return p
}

// raw returns the content of an object without some of its empty fields, and with the fields later and null.
func (g *patchGenerator) raw(p *patchedObject) any {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	content, err := decodeValue(data)
	if err != nil {
		panic(err)
	}
	if fields := content.(map[string]any); fields["zero"] == nil && g.maybe() {
		fields["zero"] = map[string]any{}
	}
	g.extend(content)
	return content
}

func (g *patchGenerator) extend(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, isItem := value["name"]; isItem && value["zero"] == nil && g.maybe() {
			value["zero"] = map[string]any{}
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			switch field := value[name]; {
			case name == "raw" || name == "limits" || name == "metadata": // each of their fields is one of the Go type
			case name == "entries":
				entries := field.(map[string]any)
				for _, key := range slices.Sorted(maps.Keys(entries)) {
					g.extend(entries[key])
				}
			case field == nil && g.maybe():
				delete(value, name)
			default:
				g.extend(field)
			}
		}
		if g.maybe() {
			g.later++
			value["later"] = g.later
		}
		if g.random.IntN(4) == 0 {
			for _, name := range []string{"value", "items", "number"} {
				if _, exists := value[name]; !exists && g.maybe() {
					value[name] = nil
				}
			}
		}
	case []any:
		for _, item := range value {
			g.extend(item)
		}
	}
}

// change changes some fields.
func (g *patchGenerator) change(p *patchedObject) {
	g.changed = p
	other := g.object()
	if g.maybe() {
		p.Zero = other.Zero
	}
	if g.random.IntN(4) == 0 {
		p.PatchedInline = other.PatchedInline
	}
	if g.maybe() {
		p.Items = g.changeItems(p.Items)
	}
	switch {
	case p.Pointer == nil || g.random.IntN(5) == 0:
		p.Pointer = other.Pointer
	case g.maybe():
		g.changeItem(p.Pointer)
	}
	for _, key := range slices.Sorted(maps.Keys(p.Entries)) {
		switch g.random.IntN(4) {
		case 0:
			delete(p.Entries, key)
		case 1:
			g.changeItem(p.Entries[key])
		}
	}
	if g.maybe() {
		p.Raw = append(p.Raw[:g.random.IntN(len(p.Raw)+1)], other.Raw...)
	}
}

func (g *patchGenerator) changeItems(items []patchedItem) []patchedItem {
	if g.maybe() && len(items) > 0 {
		items = slices.Delete(items, 0, 1)
	}
	if g.maybe() && len(items) > 0 {
		g.random.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	}
	if g.random.IntN(4) == 0 && len(items) > 0 {
		items[g.random.IntN(len(items))].Name = "renamed"
	}
	for i := range items {
		if g.random.IntN(3) == 0 {
			g.changeItem(&items[i])
		}
	}
	if g.maybe() {
		added := g.item(1)
		added.Name = "added"
		items = slices.Insert(items, g.random.IntN(len(items)+1), added)
	}
	return items
}

// changeItem changes an item, but not its name.
func (g *patchGenerator) changeItem(item *patchedItem) {
	other := g.item(1)
	switch g.random.IntN(6) {
	case 0:
		item.Value = other.Value
	case 1:
		item.Number = other.Number
	case 2:
		item.Zero = other.Zero
	case 3:
		item.Items = g.changeItems(item.Items)
	case 4:
		item.Limits = other.Limits
	case 5:
		item.Limits, item.Zero.Ready = nil, !item.Zero.Ready
	}
}
