// Command controllerruntime is the measured controller on controller-runtime.
package main

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/program"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

func main() { probe.Main(start) }

func start(ctx context.Context, options probe.Options, failed chan<- error) (*probe.Reader, error) {
	var variant program.Variant
	if options.Best {
		noCopies := true
		variant.Change = func(o *ctrl.Options) {
			o.Cache = cache.Options{
				DefaultTransform:             cache.TransformStripManagedFields(),
				DefaultUnsafeDisableDeepCopy: &noCopies,
			}
		}
	}
	return program.Start(ctx, options, variant, failed)
}
