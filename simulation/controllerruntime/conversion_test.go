package controllerruntime

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	conversionwebhook "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"github.com/evenkeel-go/evenkeel/simulation"
)

// robotSpec is the spec of both versions of a robot: v1 has the size, v2 the length.
type robotSpec struct {
	Size   int `json:"size,omitempty"`
	Length int `json:"length,omitempty"`
}

type robotMeta struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

// robotV1 is a spoke.
type robotV1 struct {
	robotMeta `json:",inline"`

	Spec robotSpec `json:"spec"`
}

// robotV2 is the hub, which is stored.
type robotV2 struct {
	robotMeta `json:",inline"`

	Spec robotSpec `json:"spec"`
}

func (r *robotV1) DeepCopyObject() runtime.Object {
	return &robotV1{robotMeta{r.TypeMeta, *r.ObjectMeta.DeepCopy()}, r.Spec}
}

func (r *robotV2) DeepCopyObject() runtime.Object {
	return &robotV2{robotMeta{r.TypeMeta, *r.ObjectMeta.DeepCopy()}, r.Spec}
}

func (*robotV2) Hub() {}

func (r *robotV1) ConvertTo(hub conversion.Hub) error {
	if r.Spec.Size < 0 {
		return errors.New("the size is negative")
	}
	to := hub.(*robotV2)
	to.ObjectMeta, to.Spec = r.ObjectMeta, robotSpec{Length: r.Spec.Size}
	return nil
}

func (r *robotV1) ConvertFrom(hub conversion.Hub) error {
	from := hub.(*robotV2)
	r.ObjectMeta, r.Spec = from.ObjectMeta, robotSpec{Size: from.Spec.Length}
	return nil
}

// The conversion handler of controller-runtime works unchanged, with its clients.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: robots.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Robot, plural: robots}
  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {namespace: default, name: hooks, path: /convert}}}}
  versions:
  - {name: v1, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}
  - {name: v2, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {length: {type: integer}}}}}}}
`
	scheme := runtime.NewScheme()
	for version, obj := range map[string]runtime.Object{"v1": &robotV1{}, "v2": &robotV2{}} {
		gv := schema.GroupVersion{Group: "example.com", Version: version}
		metav1.AddToGroupVersion(scheme, gv)
		scheme.AddKnownTypeWithName(gv.WithKind("Robot"), obj)
	}
	simulation.Test(t, simulation.Config{YAML: definition}, func(t *testing.T, c *simulation.Cluster) {
		c.HandleWebhooks(conversionwebhook.NewWebhookHandler(scheme, conversionwebhook.NewRegistry()))
		user, err := client.New(c.RESTConfig("user"), client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		robot := &robotV1{robotMeta{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}, robotSpec{Size: 3}}
		if err := user.Create(t.Context(), robot); err != nil {
			t.Fatal(err)
		}
		stored := &robotV2{}
		if err := user.Get(t.Context(), client.ObjectKeyFromObject(robot), stored); err != nil || stored.Spec.Length != 3 {
			t.Errorf("stored: %+v, error %v", stored.Spec, err)
		}
		stored.Spec.Length = 4
		if err := user.Update(t.Context(), stored); err != nil {
			t.Fatal(err)
		}
		if err := user.Get(t.Context(), client.ObjectKeyFromObject(robot), robot); err != nil || robot.Spec.Size != 4 {
			t.Errorf("read: %+v, error %v", robot.Spec, err)
		}
		robot.Spec.Size = -1
		const want = "conversion webhook for example.com/v1, Kind=Robot failed: the size is negative"
		if err := user.Update(t.Context(), robot); err == nil || err.Error() != want {
			t.Errorf("update: %v, want %s", err, want)
		}
	})
}
