package controllerruntime

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/simulation"
)

const byTheme = "data.theme"

// printer writes a Secret for each ConfigMap, with the text of the ConfigMap that data.theme names. An index finds the
// ConfigMaps with a theme.
type printer struct{ client.Client }

func (p printer) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var page, theme corev1.ConfigMap
	if err := p.Get(ctx, req.NamespacedName, &page); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if page.Data["theme"] == "" {
		return ctrl.Result{}, nil
	}
	if err := p.Get(ctx, client.ObjectKey{Namespace: page.Namespace, Name: page.Data["theme"]}, &theme); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: page.Namespace, Name: page.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, p.Client, secret, func() error {
		secret.Data = map[string][]byte{"text": []byte(theme.Data["color"] + " " + page.Data["text"])}
		return controllerutil.SetControllerReference(&page, secret, p.Scheme())
	})
	return ctrl.Result{}, err
}

func (p printer) setUp(ctx context.Context, mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.ConfigMap{}, byTheme, func(obj client.Object) []string {
		return []string{obj.(*corev1.ConfigMap).Data["theme"]}
	}); err != nil {
		return err
	}
	pages := func(ctx context.Context, theme client.Object) (requests []reconcile.Request) {
		var list corev1.ConfigMapList
		if err := p.List(ctx, &list, client.InNamespace(theme.GetNamespace()), client.MatchingFields{byTheme: theme.GetName()}); err != nil {
			return nil
		}
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return requests
	}
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(pages)).Complete(p)
}

func TestIndexesAndCreateOrUpdate(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		mgr := newManager(t, c.RESTConfig("printer"), nil)
		if err := (printer{mgr.GetClient()}).setUp(t.Context(), mgr); err != nil {
			t.Fatal(err)
		}
		c.Go("manager", mgr.Start)
		c.Apply(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: page}, data: {theme: dark, text: hello}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: other}, data: {theme: light, text: bye}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: dark}, data: {color: black}}`)
		c.Settle()
		text := func(name, want string) {
			t.Helper()
			if got := string(simulation.Get[*corev1.Secret](c, "default/"+name).Data["text"]); got != want {
				t.Errorf("Secret %s: %q, want %q", name, got, want)
			}
		}
		text("page", "black hello")
		text("other", " bye")
		writes := c.Record(func() {
			simulation.Edit(c, "default/dark", "", func(cm *corev1.ConfigMap) { cm.Data["color"] = "grey" })
			c.Settle()
		}).By("printer").Writes()
		text("page", "grey hello")
		if len(writes) != 1 {
			t.Errorf("the change of a theme needs one write:\n%s", writes)
		}
		simulation.Delete[*corev1.Secret](c, "default/page")
		c.Settle()
		text("page", "grey hello")
		simulation.Delete[*corev1.ConfigMap](c, "default/page")
		c.Settle()
		simulation.ExpectGone[*corev1.Secret](c, "default/page")
		if writes := c.Record(func() { c.Advance(time.Hour) }).Writes(); len(writes) > 0 {
			t.Errorf("writes of the idle operator:\n%s", writes)
		}
	})
}
