package controllerruntime_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
)

// guard is a keeper that keeps a finalizer on its ConfigMaps, and deletes their Secrets by itself.
type guard struct{ keeper }

const guarded = "example.com/guard"

func (g *guard) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := g.Get(ctx, req.NamespacedName, &cm); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !cm.DeletionTimestamp.IsZero() {
		secret := &corev1.Secret{}
		secret.Namespace, secret.Name = cm.Namespace, cm.Name
		err := client.IgnoreNotFound(g.Delete(ctx, secret))
		if err == nil && controllerutil.RemoveFinalizer(&cm, guarded) {
			err = g.Update(ctx, &cm)
		}
		return ctrl.Result{}, err
	}
	if controllerutil.AddFinalizer(&cm, guarded) {
		if err := g.Update(ctx, &cm); err != nil {
			return ctrl.Result{}, err
		}
	}
	return g.keeper.Reconcile(ctx, req)
}

// An operator moves to this package in two steps, and back to controller-runtime. No form changes what another one has
// written, each takes over the lease that the last one has released, and each continues the work.
func TestWayBack(t *testing.T) {
	t.Parallel()
	inBubbleWithoutCache(t, func(w *world) {
		original := func(o *ctrl.Options) { o.NewCache, o.NewClient = nil, nil }
		withCache := func(o *ctrl.Options) { o.NewClient = nil }
		forms := []struct {
			options  func(*ctrl.Options)
			onEngine bool
		}{{original, false}, {withCache, false}, {nil, true}, {withCache, false}, {original, false}}
		cm := configMap("shop", "a")
		w.create(cm)
		var written []string
		for i, form := range forms {
			mgr := w.newManager(func(o *ctrl.Options) {
				if form.options != nil {
					form.options(o)
				}
				o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "guard", "default"
				o.LeaderElectionReleaseOnCancel = true
			})
			g := &guard{keeper{Client: mgr.GetClient(), runs: map[string]int{}}}
			w.must(w.complete(mgr, form.onEngine, g))
			stop := w.run(mgr)
			time.Sleep(time.Minute)
			if i > 0 && !slices.Equal(w.state(), written) {
				w.Errorf("form %d changed\n%s\nto\n%s", i, written, w.state())
			}
			w.must(w.user.Get(w.Context(), client.ObjectKeyFromObject(cm), cm))
			w.paint(cm, fmt.Sprint(i))
			time.Sleep(time.Minute)
			var secret corev1.Secret
			w.must(w.user.Get(w.Context(), client.ObjectKeyFromObject(cm), &secret))
			if got := string(secret.Data["color"]); got != fmt.Sprint(i) {
				w.Errorf("form %d: the Secret has the color %s", i, got)
			}
			if i == len(forms)-1 {
				w.must(w.user.Delete(w.Context(), cm))
				time.Sleep(time.Minute)
				if left := w.state(); len(left) > 0 {
					w.Errorf("left are %s", left)
				}
			}
			written = w.state()
			w.must(stop())
			var lease coordinationv1.Lease
			w.must(w.user.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: "guard"}, &lease))
			if holder := *lease.Spec.HolderIdentity; holder != "" {
				w.Errorf("form %d: the lease is held by %s", i, holder)
			}
		}
	})
}

// complete makes the controller of a guard.
func (w *world) complete(mgr ctrl.Manager, onEngine bool, r reconcile.Reconciler) error {
	if onEngine {
		return controllerruntime.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(r)
	}
	return ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Owns(&corev1.Secret{}).Complete(r)
}

// state returns the versions of the ConfigMap and the Secret: equal versions are equal objects.
func (w *world) state() (versions []string) {
	for _, list := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}} {
		w.must(w.user.List(w.Context(), list, client.InNamespace("shop")))
		switch list := list.(type) {
		case *corev1.ConfigMapList:
			for _, cm := range list.Items {
				versions = append(versions, cm.Name+" "+cm.ResourceVersion)
			}
		case *corev1.SecretList:
			for _, secret := range list.Items {
				versions = append(versions, secret.Name+" "+secret.ResourceVersion)
			}
		}
	}
	return versions
}
