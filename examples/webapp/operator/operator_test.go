package operator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestWebappLifecycle(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		app := w.operateUntilReady("shop")
		if app.Status.ReadyReplicas != 1 || app.Status.Host != "shop.example.com" {
			w.Errorf("the status is %+v", app.Status)
		}
		w.check("shop", "shop:1", map[string]string{"GREETING": "hello"})

		hash := w.deployment("shop").Spec.Template.Annotations[v1.ConfigHashAnnotation]
		w.change("shop", func(app *v1.WebApp) {
			app.Spec.Image, app.Spec.Config, app.Spec.Host = "shop:2", map[string]string{"GREETING": "good day"}, "store.example.com"
			app.Spec.Replicas = new(int32(2))
		})
		if app = w.untilReady("shop"); app.Status.ReadyReplicas != 2 {
			w.Errorf("%d replicas are ready, want 2", app.Status.ReadyReplicas)
		}
		w.check("shop", "shop:2", map[string]string{"GREETING": "good day"})
		if w.deployment("shop").Spec.Template.Annotations[v1.ConfigHashAnnotation] == hash {
			w.Error("the Pods were not replaced for the new config")
		}

		w.change("shop", func(app *v1.WebApp) { app.Spec.Suspend = true })
		app = w.untilReady("shop")
		if !apimeta.IsStatusConditionTrue(app.Status.Conditions, v1.ConditionSuspended) || *w.deployment("shop").Spec.Replicas != 0 {
			w.Errorf("suspended: %+v", app.Status)
		}
		w.change("shop", func(app *v1.WebApp) { app.Spec.Suspend = false })
		if app = w.untilReady("shop"); !apimeta.IsStatusConditionFalse(app.Status.Conditions, v1.ConditionSuspended) || *w.deployment("shop").Spec.Replicas != 2 {
			w.Errorf("resumed: %+v", app.Status)
		}
		w.delete("shop")
		w.untilGone("shop")
	})
}

// check compares all objects with the desired state of a WebApp.
func (w *world) check(name, image string, config map[string]string) {
	w.Helper()
	app, err := w.get(name)
	if err != nil {
		w.Fatal(err)
	}
	children := w.children()
	want := []string{"ConfigMap " + name + "-config", "Deployment " + name, "Service " + name}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(children))); diff != "" {
		w.Errorf("children (-want +got):\n%s", diff)
	}
	for child, obj := range children {
		if owner := metav1.GetControllerOf(obj); owner == nil || owner.UID != app.UID || len(obj.GetOwnerReferences()) != 1 {
			w.Errorf("%s has the owners %v", child, obj.GetOwnerReferences())
		}
	}
	if got := w.deployment(name).Spec.Template.Spec.Containers[0].Image; got != image {
		w.Errorf("the image is %s, want %s", got, image)
	}
	if configMap, ok := children["ConfigMap "+name+"-config"].(*corev1.ConfigMap); !ok || !maps.Equal(configMap.Data, config) {
		w.Errorf("the config is %v, want %v", configMap, config)
	}
	if diff := cmp.Diff(map[string]string{app.Spec.Host: name + "." + w.namespace + ".svc"}, w.records.all()); diff != "" {
		w.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestWebappCorrectsDrift(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		w.operateUntilReady("shop")

		// Another client changes fields of the operator, and adds an annotation of its own.
		before := w.deployment("shop")
		after := before.DeepCopy()
		after.Spec.Template.Spec.Containers[0].Image = "evil:1"
		after.Spec.Replicas = new(int32(7))
		after.Annotations["team"] = "shop"
		if _, err := client.Patch(w.Context(), w.client, before, client.MergeFrom(before, after), client.FieldOwner("a-foreign-hand")); err != nil {
			w.Fatal(err)
		}
		w.until("the Deployment is corrected", func() error {
			got := w.deployment("shop")
			if image := got.Spec.Template.Spec.Containers[0].Image; image != "shop:1" || *got.Spec.Replicas != 1 {
				return fmt.Errorf("%s, %d replicas", image, *got.Spec.Replicas)
			}
			return nil
		})
		if got := w.deployment("shop").Annotations["team"]; got != "shop" {
			w.Errorf("the other client's annotation is %q, want it unchanged", got)
		}

		// A child is deleted.
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shop"}}
		if err := client.Delete(w.Context(), w.client, service); err != nil {
			w.Fatal(err)
		}
		w.until("the Service exists again", func() error {
			_, err := client.Get[*corev1.Service](w.Context(), w.client, kube.KeyOf(service))
			return err
		})
		w.untilReady("shop")
		w.check("shop", "shop:1", map[string]string{"GREETING": "hello"})
	})
}

func TestWebappKeepsForeignObjects(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		foreign := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "shop"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1234}}},
		}
		if _, err := client.Create(w.Context(), w.client, foreign); err != nil {
			w.Fatal(err)
		}
		w.operate()
		w.create(w.app("shop"))
		w.untilNotReady("shop", "Service "+w.namespace+"/shop")
		if app, err := w.get("shop"); err != nil || !apimeta.IsStatusConditionTrue(app.Status.Conditions, "Stalled") {
			w.Errorf("not stalled, although a user must delete the Service: %+v, %v", app.Status.Conditions, err)
		}
		got, err := client.Get[*corev1.Service](w.Context(), w.client, kube.KeyOf(foreign))
		if err != nil || got.Spec.Ports[0].Port != 1234 || len(got.OwnerReferences) > 0 {
			w.Errorf("the foreign Service is %+v, %v", got, err)
		}
		if err := client.Delete(w.Context(), w.client, got); err != nil {
			w.Fatal(err)
		}
		w.untilReady("shop")
	})
}

func TestWebappDeletionIsBlockedAndReleased(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		w.operateUntilReady("shop")
		down := errors.New("the provider is down")
		w.records.fail(down)
		w.delete("shop")
		w.untilNotReady("shop", down.Error())
		if len(w.records.all()) != 1 {
			w.Errorf("records are %v", w.records.all())
		}
		w.records.fail(nil)
		w.untilGone("shop")
	})
}

// untilNotReady waits until the WebApp is not ready, for a reason that contains text.
func (w *world) untilNotReady(name, text string) {
	w.Helper()
	w.until("the WebApp says why it is not ready", func() error {
		app, err := w.get(name)
		if err != nil {
			return err
		}
		if ready := apimeta.FindStatusCondition(app.Status.Conditions, v1.ConditionReady); ready == nil || ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, text) {
			return fmt.Errorf("%+v", app.Status.Conditions)
		}
		return nil
	})
}
