package controllerruntime_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
)

// The main of an operator on controller-runtime, with this cache.
func ExampleNewCache() {
	run := func(ctx context.Context, config *rest.Config) error {
		manager, err := ctrl.NewManager(config, ctrl.Options{NewCache: controllerruntime.NewCache})
		if err != nil {
			return err
		}
		return manager.Start(ctx) // after the set-up of the controllers, as before
	}
	fmt.Printf("%T", run)
	// Output: func(context.Context, *rest.Config) error
}

// The SetupWithManager of a reconciler, with the engine of this module. "ctrl." has become "controllerruntime.".
func ExampleNewControllerManagedBy() {
	setup := func(manager ctrl.Manager, r reconcile.Reconciler) error {
		return controllerruntime.NewControllerManagedBy(manager).
			For(&appsv1.Deployment{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
			Owns(&corev1.ConfigMap{}).
			Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}).
			WithEventFilter(predicate.ResourceVersionChangedPredicate{}).
			Named("deployments").
			WithOptions(controller.Options{MaxConcurrentReconciles: 3}).
			Complete(r)
	}
	run := func(ctx context.Context, config *rest.Config, r reconcile.Reconciler) error {
		manager, err := ctrl.NewManager(config, ctrl.Options{
			NewCache: controllerruntime.NewCache, NewClient: controllerruntime.NewClient,
		})
		if err != nil {
			return err
		}
		if err := setup(manager, r); err != nil {
			return err
		}
		return manager.Start(ctx)
	}
	fmt.Printf("%T", run)
	// Output: func(context.Context, *rest.Config, reconcile.TypedReconciler[sigs.k8s.io/controller-runtime/pkg/reconcile.Request]) error
}
