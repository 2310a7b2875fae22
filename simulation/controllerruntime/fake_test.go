package controllerruntime

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
	webapp "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/operator"
)

// The test of TestWebApp with controller-runtime's fake client, as a comparison. It calls the
// Reconciler itself, sets the defaults of the CustomResourceDefinition itself, and has no watches.
func TestWebAppWithFakeClient(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, v1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	shop := &v1.WebApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"},
		Spec:       v1.WebAppSpec{Image: "shop:1", Replicas: new(int32(2)), Port: v1.DefaultPort, Host: "shop.example.com"},
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(shop).WithStatusSubresource(shop, &appsv1.Deployment{}).Build()
	outside := records{}
	reconciler := &webapp.Reconciler{Client: c, Records: outside}
	key := client.ObjectKeyFromObject(shop)
	reconcile := func() {
		t.Helper()
		if _, err := reconciler.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	get := func(obj client.Object) {
		t.Helper()
		if err := c.Get(t.Context(), key, obj); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	deployment := &appsv1.Deployment{}
	get(deployment)
	if *deployment.Spec.Replicas != 2 || outside["shop.example.com"] != "shop.default.svc" {
		t.Errorf("%d replicas, records %v", *deployment.Spec.Replicas, outside)
	}
	deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2, AvailableReplicas: 2}
	if err := c.Status().Update(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
	reconcile()
	get(shop)
	if !apimeta.IsStatusConditionTrue(shop.Status.Conditions, v1.ConditionReady) {
		t.Errorf("the conditions are %v", shop.Status.Conditions)
	}
	if err := c.Delete(t.Context(), shop); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if err := c.Get(t.Context(), key, shop); client.IgnoreNotFound(err) != nil || err == nil || len(outside) > 0 {
		t.Errorf("the WebApp exists (%v), or records are left: %v", err, outside)
	}
}
