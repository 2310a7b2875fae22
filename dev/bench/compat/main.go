// Command compat is the measured controller on controller-runtime with the cache of compat/controllerruntime, and with
// -best also with its queue.
package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/compat/controllerruntime"
	"github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/program"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

func main() { probe.Main(start) }

func start(ctx context.Context, options probe.Options, failed chan<- error) (*probe.Reader, error) {
	variant := program.Variant{Change: func(o *ctrl.Options) { o.NewCache = controllerruntime.NewCache }}
	if options.Best {
		variant.Change = func(o *ctrl.Options) {
			o.NewCache, o.NewClient = controllerruntime.NewCache, controllerruntime.NewClient
		}
		variant.Complete = complete
	}
	return program.Start(ctx, options, variant, failed)
}

func complete(m ctrl.Manager, of client.Object, options controller.Options, r reconcile.Reconciler) error {
	return controllerruntime.NewControllerManagedBy(m).Named("bench").For(of).WithOptions(options).Complete(r)
}
