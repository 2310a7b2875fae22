package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
)

// TestWebAppLifecycle takes one WebApp through its life, in the order in which it happens to people's.
func TestWebAppLifecycle(t *testing.T) {
	app := create(t, &v1.WebApp{Spec: v1.WebAppSpec{
		Image: "shop:1", Replicas: new(int32(2)), Config: map[string]string{"COLOUR": "blue"}, Host: "shop.example.org",
	}})
	target := app.Name + "." + app.Namespace + ".svc"
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name + v1.ConfigMapSuffix}}
	container := func() *corev1.Container { return &deployment.Spec.Template.Spec.Containers[0] }

	waitReady(t, app, "Available")
	if app.Status.ReadyReplicas != 2 || app.Status.Host != "shop.example.org" {
		t.Errorf("status %+v, want 2 replicas that are ready, and the host", app.Status)
	}
	if got := records.target("shop.example.org"); got != target {
		t.Errorf("the record leads to %s, want %s", got, target)
	}
	for _, child := range []client.Object{deployment, service, configMap} {
		get(t, child)
		if !metav1.IsControlledBy(child, app) || child.GetLabels()[instanceLabel] != app.Name || child.GetLabels()[managedByLabel] != managedBy {
			t.Errorf("%T: owners %v, labels %v", child, child.GetOwnerReferences(), child.GetLabels())
		}
	}
	if configMap.Data["COLOUR"] != "blue" || container().EnvFrom[0].ConfigMapRef.Name != configMap.Name {
		t.Errorf("ConfigMap %v, environment from %+v", configMap.Data, container().EnvFrom)
	}
	if port := service.Spec.Ports[0]; port.Port != v1.DefaultPort || container().Ports[0].ContainerPort != v1.DefaultPort {
		t.Errorf("Service port %+v, container ports %+v", port, container().Ports)
	}

	t.Run("change", func(t *testing.T) {
		old := deployment.Spec.Template.Annotations[v1.ConfigHashAnnotation]
		change(t, app, func() { app.Spec.Image, app.Spec.Config["COLOUR"] = "shop:2", "red" })
		waitReady(t, app, "Available")
		get(t, deployment)
		get(t, configMap)
		if hash := deployment.Spec.Template.Annotations[v1.ConfigHashAnnotation]; container().Image != "shop:2" || hash == old {
			t.Errorf("image %s, hash %s after %s", container().Image, hash, old)
		}
		if configMap.Data["COLOUR"] != "red" {
			t.Errorf("ConfigMap %v", configMap.Data)
		}
	})

	t.Run("drift", func(t *testing.T) {
		change(t, deployment, func() {
			container().Image = "evil:1"
			deployment.Spec.Replicas = new(int32(7))
			deployment.OwnerReferences = nil
		})
		change(t, service, func() {
			service.Spec.Ports[0].Port = 1
			service.Spec.Type = corev1.ServiceTypeNodePort
			delete(service.Labels, managedByLabel)
		})
		change(t, configMap, func() { configMap.Data = map[string]string{"COLOUR": "grey", "OTHER": "1"} })
		eventually(t, "the children are as they were", func(context.Context) string {
			get(t, deployment)
			get(t, service)
			get(t, configMap)
			if container().Image != "shop:2" || *deployment.Spec.Replicas != 2 || !metav1.IsControlledBy(deployment, app) ||
				service.Spec.Ports[0].Port != v1.DefaultPort || service.Spec.Type != corev1.ServiceTypeClusterIP || service.Labels[managedByLabel] == "" ||
				len(configMap.Data) != 1 || configMap.Data["COLOUR"] != "red" {
				return fmt.Sprint(deployment.Spec, service.Spec, configMap.Data)
			}
			return ""
		})
		waitReady(t, app, "Available")
	})

	t.Run("children deleted", func(t *testing.T) {
		for _, child := range []client.Object{deployment, service, configMap} {
			uid := child.GetUID()
			if err := admin.Delete(t.Context(), child); err != nil {
				t.Fatal(err)
			}
			eventually(t, fmt.Sprintf("%T comes back", child), func(ctx context.Context) string {
				err := admin.Get(ctx, client.ObjectKeyFromObject(child), child)
				if err != nil || child.GetUID() == uid {
					return fmt.Sprint("it is the old one, or: ", err)
				}
				return ""
			})
		}
		waitReady(t, app, "Available")
	})

	t.Run("suspend", func(t *testing.T) {
		change(t, app, func() { app.Spec.Suspend = true })
		waitReady(t, app, "Suspended")
		get(t, deployment)
		if *deployment.Spec.Replicas != 0 || app.Status.ReadyReplicas != 0 || !apimeta.IsStatusConditionTrue(app.Status.Conditions, v1.ConditionSuspended) {
			t.Errorf("%d replicas, status %+v", *deployment.Spec.Replicas, app.Status)
		}
		if got := records.target("shop.example.org"); got != target {
			t.Errorf("the record leads to %s, want %s still", got, target)
		}
		change(t, app, func() { app.Spec.Suspend = false })
		waitReady(t, app, "Available")
		if apimeta.IsStatusConditionTrue(app.Status.Conditions, v1.ConditionSuspended) || app.Status.ReadyReplicas != 2 {
			t.Errorf("status %+v", app.Status)
		}
	})

	t.Run("host changed", func(t *testing.T) {
		change(t, app, func() { app.Spec.Host = "store.example.org" })
		eventually(t, "the record has moved", func(context.Context) string {
			if before, now := records.target("shop.example.org"), records.target("store.example.org"); before != "none" || now != target {
				return fmt.Sprintf("the old record leads to %s, the new one to %s", before, now)
			}
			return ""
		})
		waitReady(t, app, "Available")
		if app.Status.Host != "store.example.org" {
			t.Errorf("status.host is %q", app.Status.Host)
		}
	})

	t.Run("nothing to do", testRest(app))
	t.Run("deletion blocked and released", testDeletion(app, deployment, service, configMap))
}

// testRest makes the operator look at an app for which nothing has to be done.
func testRest(app *v1.WebApp) func(*testing.T) {
	return func(t *testing.T) {
		requests.take()
		change(t, app, func() { app.Annotations = map[string]string{"a": "b"} })
		// Another app is handled after it, by the same worker.
		waitReady(t, create(t, &v1.WebApp{Spec: v1.WebAppSpec{Image: "other:1"}}), "Available")
		for _, request := range requests.take() {
			if strings.Contains(request, "/"+app.Namespace+"/") {
				t.Errorf("request at rest: %s", request)
			}
		}
	}
}

func testDeletion(app *v1.WebApp, children ...client.Object) func(*testing.T) {
	return func(t *testing.T) {
		records.setFailure(errors.New("the records are closed for today"))
		if err := admin.Delete(t.Context(), app); err != nil {
			t.Fatal(err)
		}
		requests.take()
		// The finalizer holds it: the next app's records fail as well, after this one's.
		waitCondition(t, create(t, &v1.WebApp{Spec: v1.WebAppSpec{Image: "other:1", Host: "other.example.org"}}), v1.ConditionReady, "Failed")
		get(t, app)
		if !controllerutil.ContainsFinalizer(app, v1.Finalizer) || records.target("store.example.org") == "none" {
			t.Error("the finalizer or the record is gone though the records fail")
		}
		records.setFailure(nil)
		for _, gone := range append([]client.Object{app}, children...) {
			eventually(t, fmt.Sprintf("%T is gone", gone), func(ctx context.Context) string {
				if err := admin.Get(ctx, client.ObjectKeyFromObject(gone), gone); !apierrors.IsNotFound(err) {
					return fmt.Sprintf("error %v, resourceVersion %s", err, gone.GetResourceVersion())
				}
				return ""
			})
		}
		if got := records.target("store.example.org"); got != "none" {
			t.Errorf("the record is left, and leads to %s", got)
		}
	}
}

func TestNameOfForeignConfigMapStalls(t *testing.T) {
	namespace := newNamespace(t)
	foreign := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "app" + v1.ConfigMapSuffix}, Data: map[string]string{"A": "mine"},
	}
	if err := admin.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	app := create(t, &v1.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1.WebAppSpec{Image: "a:1"}})
	waitCondition(t, app, v1.ConditionStalled, "NameTaken")
	get(t, foreign)
	if foreign.Data["A"] != "mine" || len(foreign.OwnerReferences) > 0 {
		t.Errorf("the foreign ConfigMap was changed: %+v", foreign)
	}
}

func TestInvalidConfigStalls(t *testing.T) {
	app := create(t, &v1.WebApp{Spec: v1.WebAppSpec{Image: "a:1", Config: map[string]string{"not a key": "b"}}})
	waitCondition(t, app, v1.ConditionStalled, "Invalid")
	change(t, app, func() { app.Spec.Config = map[string]string{"KEY": "b"} })
	waitReady(t, app, "Available")
}

func TestAPIServerRejectsInvalidSpecs(t *testing.T) {
	namespace := newNamespace(t)
	for name, spec := range map[string]v1.WebAppSpec{
		"no-image":       {},
		"no-such-port":   {Image: "a:1", Port: 65536},
		"less-than-none": {Image: "a:1", Replicas: new(int32(-1))},
		"no-dns-name":    {Image: "a:1", Host: "Shop_1.example.org"},
		"1-is-no-letter": {Image: "a:1"},
		"dotted.name":    {Image: "a:1"},
	} {
		app := &v1.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: spec}
		if err := admin.Create(t.Context(), app); !apierrors.IsInvalid(err) {
			t.Errorf("%s: error %v, want a refusal", name, err)
		}
	}
}

// create creates an app, in a new namespace unless it has one.
func create(t *testing.T, app *v1.WebApp) *v1.WebApp {
	t.Helper()
	app.Name = "app"
	if app.Namespace == "" {
		app.Namespace = newNamespace(t)
	}
	if err := admin.Create(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	return app
}

func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := admin.Create(t.Context(), namespace); err != nil {
		t.Fatal(err)
	}
	return namespace.Name
}

func get(t *testing.T, obj client.Object) {
	t.Helper()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
		t.Fatal(err)
	}
}

// change changes an object as another client, concurrently with the operator.
func change(t *testing.T, obj client.Object, mutate func()) {
	t.Helper()
	eventually(t, fmt.Sprintf("%T can be changed", obj), func(ctx context.Context) string {
		get(t, obj)
		mutate()
		if err := admin.Update(ctx, obj); err != nil {
			return err.Error()
		}
		return ""
	})
}

// waitReady waits until app is ready for that reason, as kstatus reads it, and reads it.
func waitReady(t *testing.T, app *v1.WebApp, reason string) {
	t.Helper()
	waitCondition(t, app, v1.ConditionReady, reason)
	for kind, want := range map[string]bool{v1.ConditionReady: true, v1.ConditionReconciling: false, v1.ConditionStalled: false} {
		if apimeta.IsStatusConditionTrue(app.Status.Conditions, kind) != want {
			t.Errorf("condition %s is not %t: %+v", kind, want, app.Status.Conditions)
		}
	}
}

// waitCondition waits until the condition of the app's latest generation has the reason, and reads the app.
func waitCondition(t *testing.T, app *v1.WebApp, kind, reason string) {
	t.Helper()
	eventually(t, kind+" is for the reason "+reason, func(ctx context.Context) string {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(app), app); err != nil {
			return err.Error()
		}
		condition := apimeta.FindStatusCondition(app.Status.Conditions, kind)
		if condition == nil || condition.Reason != reason || app.Status.ObservedGeneration != app.Generation {
			return fmt.Sprintf("generation %d, status %+v", app.Generation, app.Status)
		}
		return ""
	})
}
