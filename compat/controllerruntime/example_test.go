package controllerruntime_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

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
