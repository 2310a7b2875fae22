package operator

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
)

// NewManager returns a manager with the operator in it.
func NewManager(config *rest.Config, options ctrl.Options, records Records) (ctrl.Manager, error) {
	options.Scheme = runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(options.Scheme))
	utilruntime.Must(v1.AddToScheme(options.Scheme))
	// Without it a run can see the cluster as it was before the run before.
	consistent := true
	options.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: &consistent}

	manager, err := ctrl.NewManager(config, options)
	if err != nil {
		return nil, err
	}
	if err := manager.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := manager.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	return manager, (&Reconciler{Client: manager.GetClient(), Records: records}).SetupWithManager(manager)
}
