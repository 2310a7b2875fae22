package strategic_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/client/strategic"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func deployment(containers ...corev1.Container) *appsv1.Deployment {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	d.Spec.Template.Spec.Containers = containers
	return d
}

func ExampleFrom() {
	before := deployment(corev1.Container{Name: "web", Image: "web:1"}, corev1.Container{Name: "proxy", Image: "proxy:7"})
	after := before.DeepCopy()
	after.Spec.Template.Spec.Containers[0].Image = "web:2"
	fmt.Println(strategic.From(before, after))
	// Output:
	// {"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"},{"name":"proxy"}],"containers":[{"image":"web:2","name":"web"}]}}}}
}

func TestFromEqualObjectsIsEmpty(t *testing.T) {
	t.Parallel()
	read := deployment(corev1.Container{Name: "web"})
	read.TypeMeta = metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}
	created := deployment(corev1.Container{Name: "web"})
	if patch := strategic.From(read, created); !patch.Empty() {
		t.Errorf("the patch of an object that was read and of one that was made is %s", patch)
	}
	if read.Kind == "" {
		t.Error("an argument was changed")
	}
}

func TestLockedAddsResourceVersion(t *testing.T) {
	t.Parallel()
	before := deployment(corev1.Container{Name: "web", Image: "web:1"})
	before.ResourceVersion = "7"
	after := before.DeepCopy()
	after.Spec.Template.Spec.Containers = nil
	after.Labels = map[string]string{"a": "b"}
	patch := strategic.From(before, after).Locked(before).String()
	const want = `{"metadata":{"labels":{"a":"b"},"resourceVersion":"7"},"spec":{"template":{"spec":{"containers":null}}}}`
	if patch != want {
		t.Errorf("the patch is %s, want %s", patch, want)
	}
}

func TestInvalidObjectsRejectedWithoutRequest(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://nobody.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	other := deployment()
	other.Name = "other"
	for want, objects := range map[string][2]kube.Object{
		"Unstructured is not a built-in type of Kubernetes":          {&unstructured.Unstructured{Object: map[string]any{}}, &unstructured.Unstructured{Object: map[string]any{}}},
		"PartialObjectMetadata is not a built-in type of Kubernetes": {&metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{}},
		"an object is nil": {deployment(), (*appsv1.Deployment)(nil)},
		"one object is a *v1.Deployment and the other one a *v1.StatefulSet": {deployment(), &appsv1.StatefulSet{}},
		"one object is shop/web and the other one shop/other":                {deployment(), other},
	} {
		patch := strategic.From(objects[0], objects[1])
		_, err := client.Patch[*appsv1.Deployment](t.Context(), c, nil, patch, client.SubresourceOf(deployment(), "status"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
