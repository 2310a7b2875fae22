package wire

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

// checkDiffering compares DifferingFields with Content: a field has its value, and a field that is missing is equal in
// both states, or is managedFields.
func checkDiffering(t *testing.T, before, after *Object, twin func() kube.Object) {
	t.Helper()
	from, to, err := DifferingFields(before, after, twin)
	if err != nil {
		t.Fatal(err)
	}
	var whole [2]map[string]any
	for i, o := range []*Object{before, after} {
		if whole[i], err = Content(o, twin); err != nil {
			t.Fatal(err)
		}
		metadata, _ := whole[i]["metadata"].(map[string]any)
		delete(metadata, "managedFields")
	}
	for i, part := range []map[string]any{from, to} {
		if metadata, ok := part["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields")
		}
		checkParts(t, fmt.Sprint("state ", i), part, whole[i])
	}
	checkSame(t, "", from, to, whole[0], whole[1])
}

// checkParts checks that all fields in part have the values that they have in whole, or are zero in protobuf.
func checkParts(t *testing.T, path string, part, whole any) {
	t.Helper()
	fields, ok := part.(map[string]any)
	values, _ := whole.(map[string]any)
	switch {
	case ok:
		for name, value := range fields {
			checkParts(t, path+"."+name, value, values[name])
		}
	case part != nil && !reflect.ValueOf(part).IsZero() && !reflect.DeepEqual(part, whole):
		t.Errorf("%s is %v, want %v", path, part, whole)
	}
}

// checkSame checks that the parts differ as the whole states do.
func checkSame(t *testing.T, path string, from, to, before, after any) {
	t.Helper()
	if reflect.DeepEqual(before, after) {
		if !reflect.DeepEqual(from, to) {
			t.Errorf("%s seems to differ: %v and %v; it is %v", path, from, to, before)
		}
		return
	}
	a, isMap := before.(map[string]any)
	b, areMaps := after.(map[string]any)
	if !isMap || !areMaps {
		if !reflect.DeepEqual(from, before) || !reflect.DeepEqual(to, after) {
			t.Errorf("%s is %v and %v, want %v and %v", path, from, to, before, after)
		}
		return
	}
	x, _ := from.(map[string]any)
	y, _ := to.(map[string]any)
	for _, name := range slices.Compact(slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(a)), slices.Collect(maps.Keys(b))...)))) {
		checkSame(t, path+"."+name, x[name], y[name], a[name], b[name])
	}
}

// TestDifferingFields changes Deployments and a custom resource at random, and compares each two states, in each
// format, with and without managedFields.
func TestDifferingFields(t *testing.T) {
	t.Parallel()
	testlength.OnlyWithoutRaceDetector(t)
	deployments := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	cut := mustCut(t, reflect.TypeFor[*appsv1.Deployment](), ManagedFields)
	kept, err := NewCutExceptApplied(reflect.TypeFor[*appsv1.Deployment](), "helm", ManagedFields)
	if err != nil {
		t.Fatal(err)
	}
	twin := func() kube.Object { return &appsv1.Deployment{} }
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	changes := []func(d *appsv1.Deployment){
		func(d *appsv1.Deployment) { d.Labels = nil },
		func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b", "c/d": "\"é"} },
		func(d *appsv1.Deployment) { d.Annotations = map[string]string{"e": "f"} },
		func(d *appsv1.Deployment) { d.ManagedFields = managedFields() },
		func(d *appsv1.Deployment) { d.ManagedFields = nil },
		func(d *appsv1.Deployment) { d.ResourceVersion += "1" },
		func(d *appsv1.Deployment) { d.Finalizers = append(d.Finalizers, "example.com/a") },
		func(d *appsv1.Deployment) {
			d.OwnerReferences = append(d.OwnerReferences, metav1.OwnerReference{Name: "o", UID: "o"})
		},
		func(d *appsv1.Deployment) { d.Generation++ },
		func(d *appsv1.Deployment) { d.DeletionTimestamp = new(fixtureTime) },
		func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(random.IntN(3))) },
		func(d *appsv1.Deployment) { d.Spec.Replicas = nil },
		func(d *appsv1.Deployment) { d.Spec.Paused = !d.Spec.Paused },
		func(d *appsv1.Deployment) {
			d.Spec.Template.Labels = map[string]string{"x": fmt.Sprint(random.IntN(2))}
		},
		func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "more"})
		},
		func(d *appsv1.Deployment) { d.Spec = appsv1.DeploymentSpec{} },
		func(d *appsv1.Deployment) { d.Status.Replicas = int32(random.IntN(3)) },
		func(d *appsv1.Deployment) {
			d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: "Available", LastUpdateTime: metav1.NewTime(time.Unix(int64(random.IntN(9)), 0))})
		},
		func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} },
	}
	for range 400 {
		before := realDeployment()
		for range random.IntN(3) {
			changes[random.IntN(len(changes))](before)
		}
		after := before.DeepCopy()
		for range random.IntN(4) {
			changes[random.IntN(len(changes))](after)
		}
		states := func(d *appsv1.Deployment) []*Object {
			return []*Object{
				mustParse(t, asProto(t, d, deployments), nil), mustParse(t, asProto(t, d, deployments), cut),
				mustParse(t, asJSON(t, d, deployments), nil), mustParse(t, asJSON(t, d, deployments), kept),
			}
		}
		for _, b := range states(before) {
			for _, a := range states(after) {
				if a.Format == b.Format { // else null and missing fields differ
					checkDiffering(t, b, a, twin)
				}
			}
		}
		if t.Failed() {
			t.Fatalf("before: %s\nafter: %s", asJSON(t, before, deployments), asJSON(t, after, deployments))
		}
	}
}

// TestDifferingFieldsOfOddObjects compares objects that API servers do not send, or seldom.
func TestDifferingFieldsOfOddObjects(t *testing.T) {
	t.Parallel()
	bodies := []string{
		`{"metadata":{"name":"a","uid":"1"}}`,
		`{"metadata":{"name":"a","uid":"1"},"meta":{"data":{"managedFields":[1],"-applied":1}}}`,
		`{"metadata":{"name":"a","uid":"1"},"meta":{"data":{"managedFields":[2],"x":{}}}}`,
		`{"spec":{"a":{"b":[1,2.5,"x",null,true],"c":{}}},"metadata":{"uid":"1","name":"a"}}`,
		`{ "spec": {"a": {"c": {}, "b":[1,2.5,"x",null,false]}}, "metadata": {"name":"a","uid":"1"}}`,
		`{"spec":{"metadata":{"managedFields":[1],"-applied":2}},"metadata":{"uid":"1","name":"a","-applied":{"f:a":{}}}}`,
		`{"spec":{"metadata":{"managedFields":[2],"-applied":3}},"metadata":{"uid":"1","name":"a","-applied":{"f:b":{}}}}`,
		`{"spec":"text","metadata":{"uid":"1","name":"a"}}`,
		`{"spec":null,"metadata":{"uid":"1","name":"a","managedFields":null}}`,
		`{"spec":9223372036854775807,"metadata":{"uid":"1","name":"a","labels":{"\u0061\"":"b"}}}`,
	}
	for _, before := range bodies {
		for _, after := range bodies {
			checkDiffering(t, mustParse(t, []byte(before), nil), mustParse(t, []byte(after), nil), nil)
		}
	}
	failed := NewFailed(mustParse(t, []byte(bodies[0]), nil), fmt.Errorf("no"))
	if _, _, err := DifferingFields(failed, mustParse(t, []byte(bodies[0]), nil), nil); err == nil {
		t.Error("an object that could not be read was compared")
	}
	encoded := &Object{Format: Protobuf, Key: kube.Key{Name: "a"}, Bytes: []byte{0x12, 0}}
	if _, _, err := DifferingFields(encoded, encoded, nil); err == nil {
		t.Error("protobuf was compared without its Go type")
	}
	valid := &Object{Format: JSON, Bytes: []byte(`{"a":1,"spec":{"b":2}}`)}
	for _, encoded := range []string{`{"spec":tru}`, `{"a":1e999,"spec":{}}`, `{"a":1,"spec":{"b":1e999}}`, `{"a":2`, `[]`, `{"spec":1e999,"a":1}`} {
		for _, pair := range [][2]*Object{{{Format: JSON, Bytes: []byte(encoded)}, valid}, {valid, {Format: JSON, Bytes: []byte(encoded)}}} {
			if from, to, err := DifferingFields(pair[0], pair[1], nil); err == nil {
				t.Errorf("%s was compared: %v, %v", encoded, from, to)
			}
		}
	}
	twin := func() kube.Object { return &appsv1.Deployment{} }
	wellFormed := mustParse(t, asProto(t, realDeployment(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}), nil)
	for _, encoded := range []string{"\x0a\xff", "\x12\x05a", "\x13\x14"} {
		invalid := &Object{Format: Protobuf, Bytes: []byte(encoded)}
		if _, _, err := DifferingFields(invalid, wellFormed, twin); err == nil {
			t.Errorf("invalid protobuf %q was compared", encoded)
		}
	}
}

// TestDifferingFieldsOfDeepObjects compares objects with many levels, which differ in the last one and in the last
// member of each: each level is read a few times, and not twice as often as the one above it.
func TestDifferingFieldsOfDeepObjects(t *testing.T) {
	t.Parallel()
	nested := func(depth int, leaf, last string) *Object {
		return mustParse(t, []byte(`{"metadata":{"name":"a"},"spec":`+strings.Repeat(`{"a":`, depth)+leaf+strings.Repeat(`,"`+last+`":1}`, depth)+`}`), nil)
	}
	for _, depth := range []int{1, maxCompared, 64, 500} {
		checkDiffering(t, nested(depth, "1", "y"), nested(depth, "2", "z"), nil)
		checkDiffering(t, nested(depth, "1", "y"), nested(depth, "2", "y"), nil)
	}
}

// TestDifferingFieldsOfBothFormats compares protobuf with JSON, as for the response to a write.
func TestDifferingFieldsOfBothFormats(t *testing.T) {
	t.Parallel()
	pod := realPod()
	pod.ManagedFields = managedFields()
	changed := pod.DeepCopy()
	changed.UID, changed.Spec.NodeName = types.UID("x"), "other"
	twin := func() kube.Object { return &corev1.Pod{} }
	from, to, err := DifferingFields(mustParse(t, asProto(t, pod, podKind), nil), mustParse(t, asJSON(t, changed, podKind), nil), twin)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []map[string]any{from, to} {
		u := unstructured.Unstructured{Object: content}
		var got corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &got); err != nil {
			t.Fatal(err)
		}
		want := pod
		if u.GetUID() == "x" {
			want = changed
			if len(u.GetManagedFields()) > 0 {
				t.Error("managedFields were decoded from JSON")
			}
		}
		if got.Spec.NodeName != want.Spec.NodeName || !reflect.DeepEqual(got.Labels, want.Labels) {
			t.Errorf("got %v", content)
		}
	}
}
