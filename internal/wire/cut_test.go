package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestCutIsEqualInBothFormats(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		path string
		hand func(*appsv1.Deployment)
	}{
		"managed fields": {ManagedFields, func(d *appsv1.Deployment) { d.ManagedFields = nil }},
		"all labels":     {"metadata.labels", func(d *appsv1.Deployment) { d.Labels = nil }},
		"one label":      {`metadata.labels["app"]`, func(d *appsv1.Deployment) { d.Labels = nil }},
		"absent label":   {`metadata.labels["other"]`, func(*appsv1.Deployment) {}},
		"absent field":   {"spec.paused", func(*appsv1.Deployment) {}},
		"a number":       {"spec.replicas", func(d *appsv1.Deployment) { d.Spec.Replicas = nil }},
		"all of the status": {"status", func(d *appsv1.Deployment) {
			d.Status = appsv1.DeploymentStatus{}
		}},
		"in a list": {"spec.template.spec.containers.env", func(d *appsv1.Deployment) {
			for i := range d.Spec.Template.Spec.Containers {
				d.Spec.Template.Spec.Containers[i].Env = nil
			}
		}},
		"in a list in a list": {"spec.template.spec.containers.env.valueFrom.fieldRef.fieldPath", func(d *appsv1.Deployment) {
			for i := range d.Spec.Template.Spec.Containers {
				d.Spec.Template.Spec.Containers[i].Env[1].ValueFrom.FieldRef.FieldPath = ""
			}
		}},
		"in an embedded struct": {"spec.template.spec.volumes.projected.sources.configMap.name", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Volumes[1].Projected.Sources[1].ConfigMap.Name = ""
		}},
		"in an embedded struct of a pointer": {"spec.template.spec.containers.livenessProbe.httpGet", func(d *appsv1.Deployment) {
			for i := range d.Spec.Template.Spec.Containers {
				d.Spec.Template.Spec.Containers[i].LivenessProbe.HTTPGet = nil
			}
		}},
		"an entry of a map of messages": {`spec.template.spec.containers.resources.limits["cpu"]`, func(d *appsv1.Deployment) {
			for i := range d.Spec.Template.Spec.Containers {
				delete(d.Spec.Template.Spec.Containers[i].Resources.Limits, corev1.ResourceCPU)
			}
		}},
	}
	decoder, err := NewDecoder[*appsv1.Deployment](deploymentKind)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cut := mustCut(t, reflect.TypeFor[*appsv1.Deployment](), tt.path)
			want := realDeployment()
			tt.hand(want)
			for _, data := range [][]byte{asProto(t, realDeployment(), deploymentKind), asJSON(t, realDeployment(), deploymentKind)} {
				o := mustParse(t, data, cut)
				got, err := decoder.Decode(o)
				if err != nil {
					t.Fatal(err)
				}
				if !equality.Semantic.DeepEqual(want, got) {
					t.Errorf("%s (-want +got):\n%s", o.Format, cmp.Diff(want, got))
				}
				checkMetadata(t, &want.ObjectMeta, o)
			}
		})
	}
}

func TestCutLeavesValidJSON(t *testing.T) {
	t.Parallel()
	cut := mustCut(t, reflect.TypeFor[*unstructured.Unstructured](), "a", "c", "list.x", `map["k.1"]`)
	tests := map[string]string{
		`{"a":1}`:                       `{}`,
		`{"a":1,"b":2}`:                 `{"b":2}`,
		`{"b":2,"a":1}`:                 `{"b":2}`,
		`{"a":1,"c":3}`:                 `{}`,
		`{"a":1,"b":2,"c":3}`:           `{"b":2}`,
		`{"a":1,"c":3,"b":2,"d":4}`:     `{"b":2,"d":4}`,
		`{"b":2,"a":1,"c":3,"d":4}`:     `{"b":2,"d":4}`,
		`{ "a" : 1 , "b" : 2 }`:         `{ "b" : 2 }`,
		`{"b":2 , "a":{"b":[1,2]} }`:    `{"b":2  }`,
		`{"\u0061":1,"b":2}`:            `{"b":2}`,
		`{"a":1,"a":2,"b":3}`:           `{"b":3}`,
		`{"list":[{"x":1},{"y":2}]}`:    `{"list":[{},{"y":2}]}`,
		`{"list":[[{"x":1}],{"x":2}]}`:  `{"list":[[{}],{}]}`,
		`{"list":{"x":1},"a":0}`:        `{"list":{}}`,
		`{"list":7,"map":"x"}`:          `{"list":7,"map":"x"}`,
		`{"list":[7,null,{"x":1}]}`:     `{"list":[7,null,{}]}`,
		`{"map":{"k.1":1,"k":2}}`:       `{"map":{"k":2}}`,
		`{"c":3,"map":{"k.1":1}}`:       `{"map":{}}`,
		`{"a":1,"map":{"k.1":1,"z":0}}`: `{"map":{"z":0}}`,
	}
	for data, want := range tests {
		o := mustParse(t, []byte(data), cut)
		if string(o.Bytes) != want || !json.Valid(o.Bytes) {
			t.Errorf("%s was cut to %s, want %s", data, o.Bytes, want)
		}
	}
}

func TestNewCutReportsAllMistakes(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"":                                  "a name is empty",
		"spec.":                             "a name is empty",
		"spec..containers":                  "a name is empty",
		"[\"spec\"]":                        "a name is empty",
		"metadata.labels[app]":              "want a quoted key",
		`metadata.labels["app"`:             `want "]"`,
		`metadata.labels["app"]x`:           `want "." or "["`,
		"metadata":                          "identifies objects and cannot be cut",
		"metadata.name":                     "identifies objects and cannot be cut",
		"metadata.namespace":                "identifies objects and cannot be cut",
		"metadata.uid":                      "identifies objects and cannot be cut",
		"metadata.resourceVersion":          "identifies objects and cannot be cut",
		"metadata.generation":               "identifies objects and cannot be cut",
		"metadata.deletionTimestamp":        "identifies objects and cannot be cut",
		"kind":                              "identifies objects and cannot be cut",
		"spec.container":                    `is it "containers"?`,
		"spec.containers.evn":               `is it "env"?`,
		"spec.volumes.configmap":            `is it "configMap"?`,
		"spec.zzzzzzzzz":                    `"spec.zzzzzzzzz": v1.PodSpec has no such field`,
		"spec.nodeName.x":                   "string has no fields",
		"metadata.creationTimestamp.Time":   "v1.Time has no fields",
		"spec.containers.resources.limit":   `is it "limits"?`,
		`spec.nodeSelector["x"].y`:          "string has no fields",
		"status.containerStatuses.started.": "a name is empty",
	}
	var paths []string
	for path := range tests {
		paths = append(paths, path)
	}
	_, err := NewCut(reflect.TypeFor[*corev1.Pod](), append(paths, ManagedFields)...)
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(tests) {
		t.Errorf("%d errors, want %d:\n%v", len(lines), len(tests), err)
	}
	for path, want := range tests {
		if _, err := NewCut(reflect.TypeFor[*corev1.Pod](), path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("path %q: %v, want %s", path, err, want)
		}
	}
	for _, typ := range []reflect.Type{nil, reflect.TypeFor[int]()} {
		if _, err := NewCut(typ); err == nil {
			t.Errorf("a cut for the type %v", typ)
		}
	}
}

// If a field on a cut's path has an unexpected type, the object must stay invalid.
func TestCutOfAnotherType(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{"\x12\x02\x10\x05", "\x12\x09\x11\x18\x01\x18\x01\x18\x01\x18\x01"} {
		if _, err := Parse([]byte(protoPrefix+spec), deepCut(t)); err == nil {
			t.Errorf("Parse accepted a number as spec: %q", spec)
		}
	}
}

// The generated decoders read the text of a map entry past the entry's end. A cut must not remove bytes there.
func TestCutNextToUnusualMap(t *testing.T) {
	t.Parallel()
	spec := "\x3a\x03\x0a\x0ac\x12\x08\x0a\x01c\x3a\x03\x0a\x01e" // a node selector, a container with env
	raw := "\x12\x0f" + spec
	want := &corev1.Pod{}
	if err := want.Unmarshal([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	if len(want.Spec.NodeSelector) != 1 || len(want.Spec.Containers) != 1 || len(want.Spec.Containers[0].Env) != 1 {
		t.Fatalf("the test object is wrong: %+v", want.Spec)
	}
	want.Spec.Containers[0].Env = nil
	o := mustParse(t, []byte(protoPrefix+"\x12\x11"+raw), mustCut(t, reflect.TypeFor[*corev1.Pod](), "spec.containers.env"))
	checkDecode(t, want, o)
}

func TestCutMetadataOnlyObjects(t *testing.T) {
	t.Parallel()
	paths := []string{ManagedFields, LastApplied, "spec.volumes.secret"}
	loose := mustCut(t, reflect.TypeFor[*unstructured.Unstructured](), paths...)
	o := mustParse(t, realCRJSON(), loose)
	for _, gone := range []string{"kubelet", "last-applied", "secret"} {
		if strings.Contains(string(o.Bytes), gone) {
			t.Errorf("%s was not cut", gone)
		}
	}
	if _, err := Parse(asProto(t, realPod(), podKind), loose); err == nil || !strings.Contains(err.Error(), "spec.volumes.secret") {
		t.Errorf("cut of field names in protobuf: %v", err)
	}
	if _, err := FromObject(realPod(), loose); err == nil {
		t.Error("FromObject accepted a cut for field names in protobuf")
	}
	meta := mustCut(t, reflect.TypeFor[*metav1.PartialObjectMetadata](), paths...)
	o = mustParse(t, asProto(t, realSecret(), secretKind), meta)
	if diff := cmp.Diff(map[string]string{"team": "shop"}, o.Annotations()); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if _, err := NewCut(reflect.TypeFor[*unstructured.Unstructured](), "metadata.label"); err == nil {
		t.Error("NewCut accepted an unknown metadata field")
	}
}
