package client

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// gauge is a custom type with properties that the types of k8s.io/api lack.
//
//nolint:modernize // omitempty of structs, as types of the field have it
type gauge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              gaugeSpec   `json:"spec"`
	Status            gaugeStatus `json:"status,omitempty"`
}

//nolint:modernize // the same
type gaugeSpec struct {
	Limit    int                  `json:"limit"`
	Names    []string             `json:"names"`
	Period   metav1.Duration      `json:"period"`
	Patience metav1.Duration      `json:"patience,omitempty"`
	Cost     resource.Quantity    `json:"cost,omitempty"`
	Port     intstr.IntOrString   `json:"port,omitempty"`
	Since    metav1.Time          `json:"since"`
	Free     runtime.RawExtension `json:"free,omitempty"`
	Parts    map[string]gaugePart `json:"parts,omitempty"`
	Main     *gaugePart           `json:"main,omitempty"`
	Zero     gaugePart            `json:"zero,omitzero"`
	Untagged string
	hidden   struct{ Inner string }
	gaugePart
}

//nolint:modernize // the same
type gaugePart struct {
	Deep struct {
		Color string `json:"color,omitempty"`
	} `json:"deep,omitempty"`
	Weight int32 `json:"weight,omitempty"`
}

type gaugeStatus struct {
	Ready bool `json:"ready"`
}

func (g *gauge) DeepCopyObject() runtime.Object { copied := *g; return &copied }

func TestConfigurationOf(t *testing.T) {
	t.Parallel()
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for name, test := range map[string]struct {
		kind        schema.GroupVersionKind
		obj         kube.Object
		subresource string
		unchanged   bool
		want        string // without apiVersion, kind, and the metadata's name and namespace
	}{
		"structs that nobody has touched": {
			kind: appsv1.SchemeGroupVersion.WithKind("Deployment"),
			obj: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{},
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "web"}},
					Volumes:    []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				}},
			}},
			want: `{"metadata":{},"spec":{"selector":{},"template":{"spec":{
				"containers":[{"name":"web"}],"volumes":[{"name":"tmp","emptyDir":{}}]}}}}`,
		},
		"an empty struct that must be there says something": {
			kind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
			obj:  &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{"Ingress"}}},
			want: `{"metadata":{},"spec":{"podSelector":{},"policyTypes":["Ingress"]}}`,
		},
		"ports without a target": {
			kind: corev1.SchemeGroupVersion.WithKind("Service"),
			obj: &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
				{Port: 80}, {Port: 81, TargetPort: intstr.FromString("web")},
			}}},
			want: `{"metadata":{},"spec":{"ports":[{"port":80},{"port":81,"targetPort":"web"}]}}`,
		},
		"zero values of a custom type": {
			kind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Gauge"},
			obj:  &gauge{Spec: gaugeSpec{hidden: struct{ Inner string }{"x"}}},
			want: `{"metadata":{},"spec":{"limit":0,"period":"0s","Untagged":""}}`,
		},
		"values of a custom type": {
			kind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Gauge"},
			obj: &gauge{Spec: gaugeSpec{
				Names: []string{}, Patience: metav1.Duration{Duration: time.Minute}, Cost: resource.MustParse("1000m"),
				Port: intstr.FromInt32(8), Since: at, Free: runtime.RawExtension{Raw: []byte(`{"a":{},"b":null}`)},
				Parts: map[string]gaugePart{"a": {}, "b": {Weight: 2}}, Main: &gaugePart{}, gaugePart: gaugePart{Weight: 7},
			}},
			want: `{"metadata":{},"spec":{"limit":0,"names":[],"period":"0s","patience":"1m0s","cost":"1","port":8,
				"since":"2026-01-02T03:04:05Z","free":{"a":{},"b":null},"parts":{"a":{},"b":{"weight":2}},"main":{},"weight":7,"Untagged":""}}`,
		},
		"metadata of the API server": {
			kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			obj: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
				UID: "u1", ResourceVersion: "7", Generation: 3, CreationTimestamp: at, DeletionTimestamp: &at, DeletionGracePeriodSeconds: new(int64(3)),
				GenerateName: "c-", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "x"}},
				Labels: map[string]string{"a": "b"}, Finalizers: []string{"f"}, OwnerReferences: []metav1.OwnerReference{{Name: "o"}},
			}},
			want: `{"metadata":{"uid":"u1","labels":{"a":"b"},"finalizers":["f"],
				"ownerReferences":[{"apiVersion":"","kind":"","name":"o","uid":""}]}}`,
		},
		"a resourceVersion that is a condition": {
			kind: corev1.SchemeGroupVersion.WithKind("ConfigMap"), unchanged: true,
			obj:  &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}},
			want: `{"metadata":{"resourceVersion":"7"}}`,
		},
		"no status": {
			kind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Gauge"},
			obj: &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"creationTimestamp": nil}, "spec": map[string]any{"empty": map[string]any{}, "int": 3}, "status": map[string]any{"a": 1},
			}},
			want: `{"metadata":{},"spec":{"empty":{},"int":3}}`,
		},
		"nothing but the status": {
			kind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Gauge"}, subresource: "status",
			obj:  &gauge{ObjectMeta: metav1.ObjectMeta{UID: "u1", Labels: map[string]string{"a": "b"}}, Status: gaugeStatus{Ready: true}},
			want: `{"metadata":{"uid":"u1"},"status":{"ready":true}}`,
		},
		"a status that is not there": {
			kind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Gauge"}, subresource: "status",
			obj:  &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}},
			want: `{"metadata":{}}`,
		},
		"metadata only": {
			kind: corev1.SchemeGroupVersion.WithKind("Pod"),
			obj:  &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}},
			want: `{"metadata":{"labels":{"a":"b"}}}`,
		},
		"a Secret's stringData": {
			kind: corev1.SchemeGroupVersion.WithKind("Secret"),
			obj:  &corev1.Secret{Data: map[string][]byte{"a": []byte("hush"), "b": []byte("x")}, StringData: map[string]string{"b": "hush"}},
			want: `{"metadata":{},"data":{"a":"aHVzaA==","b":"aHVzaA=="}}`,
		},
		"stringData of another kind of that name": {
			kind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "Secret"},
			obj:  &unstructured.Unstructured{Object: map[string]any{"stringData": map[string]any{"a": "b"}}},
			want: `{"metadata":{},"stringData":{"a":"b"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := configurationOf(target{
				client: newBareClient(), kind: test.kind, key: kube.Key{Namespace: "shop", Name: "x"},
				settings: settings{subresource: test.subresource, unchanged: test.unchanged},
			}, test.obj)
			if err != nil {
				t.Fatal(err)
			}
			metadata := got["metadata"].(map[string]any)
			head := []any{got["apiVersion"], got["kind"], metadata["namespace"], metadata["name"]}
			if diff := cmp.Diff([]any{test.kind.GroupVersion().String(), test.kind.Kind, "shop", "x"}, head); diff != "" {
				t.Errorf("what it is (-want +got):\n%s", diff)
			}
			for _, name := range []string{"namespace", "name"} {
				delete(metadata, name)
			}
			delete(got, "apiVersion")
			delete(got, "kind")
			if diff := cmp.Diff(fromJSON(t, test.want), fromJSON(t, toJSON(t, got))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidConfiguration(t *testing.T) {
	t.Parallel()
	secret := target{client: newBareClient(), kind: corev1.SchemeGroupVersion.WithKind("Secret"), key: kube.Key{Namespace: "shop", Name: "x"}}
	for content, want := range map[string]string{
		`{"stringData":{"a":1}}`: "stringData[a] is a int64", `{"stringData":"x"}`: "stringData is a string",
	} {
		_, err := configurationOf(secret, &unstructured.Unstructured{Object: fromJSON(t, content).(map[string]any)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
	if _, err := configurationOf(secret, &unstructured.Unstructured{Object: map[string]any{"a": func() {}}}); err == nil {
		t.Error("a function was encoded")
	}
}

// Computing the configuration must not change the caller's object.
func TestConfigurationIsCopied(t *testing.T) {
	t.Parallel()
	u := &unstructured.Unstructured{Object: fromJSON(t, `{"metadata":{"uid":"u","resourceVersion":"1"},"spec":{"a":{}},"status":{}}`).(map[string]any)}
	before := u.DeepCopy()
	if _, err := configurationOf(target{client: newBareClient(), key: kube.Key{Name: "x"}}, u); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, u); diff != "" {
		t.Errorf("the object was changed (-before +after):\n%s", diff)
	}
}

func fromJSON(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func toJSON(t *testing.T, value any) string {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

// newBareClient returns a client without a cluster, for code that makes no request.
func newBareClient() *Client { return &Client{shapes: &difference.Shapes{}} }

// shadowed has an unexported field with the same name as the JSON name of another field.
type shadowed struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              shadowedSpec `json:"spec"`
	spec              shadowedSpec
}

//nolint:modernize // omitempty of structs, as types of the field have it
type shadowedSpec struct {
	Part gaugePart `json:"part,omitempty"`
}

func (s *shadowed) DeepCopyObject() runtime.Object { copied := *s; return &copied }

// An unexported field must not affect the exported field that is encoded with its name.
func TestContentOfFieldWithUnexportedNamesake(t *testing.T) {
	t.Parallel()
	obj := &shadowed{Spec: shadowedSpec{Part: gaugePart{Weight: 3}}}
	obj.spec = shadowedSpec{}
	content, err := contentOf(obj)
	if diff := cmp.Diff(map[string]any{"part": map[string]any{"weight": int64(3)}}, content["spec"]); err != nil || diff != "" {
		t.Errorf("%v, spec (-want +got):\n%s", err, diff)
	}
}
