// Package program is the measured controller on controller-runtime, also with parts of Even Keel.
package program

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/database"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// Variant is what a program changes. The zero value changes nothing.
type Variant struct {
	// Change changes the options of the manager. Default: none.
	Change func(options *ctrl.Options)
	// Complete adds a controller of a kind. Default: controller-runtime's builder.
	Complete func(m ctrl.Manager, of client.Object, options controller.Options, r reconcile.Reconciler) error
}

func complete(m ctrl.Manager, of client.Object, options controller.Options, r reconcile.Reconciler) error {
	return ctrl.NewControllerManagedBy(m).Named("bench").For(of).WithOptions(options).Complete(r)
}

// Start starts the controller. It ends with the process.
func Start(ctx context.Context, options probe.Options, v Variant, failed chan<- error) (*probe.Reader, error) {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, database.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	managerOptions := ctrl.Options{
		Scheme: scheme,
		// The programs have no metrics server; its listener would only take a port.
		Metrics: metricsserver.Options{BindAddress: "0"},
	}
	if v.Change != nil {
		v.Change(&managerOptions)
	}
	if v.Complete == nil {
		v.Complete = complete
	}
	manager, err := ctrl.NewManager(&rest.Config{
		Host:            options.Server,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, managerOptions)
	if err != nil {
		return nil, err
	}
	var reader *probe.Reader
	if options.Kind == probe.Databases {
		reader, err = add(manager, options, v, touchDatabase, countDatabases)
	} else {
		reader, err = add(manager, options, v, touchPod, countPods)
	}
	if err != nil {
		return nil, err
	}
	go func() { failed <- manager.Start(ctx) }() // ends with the process
	return reader, nil
}

func touchPod(pod *corev1.Pod) int {
	return len(pod.Status.Phase) + len(pod.Spec.NodeName)
}

func touchDatabase(d *database.Database) int {
	return len(d.Status.Phase) + len(d.Spec.Engine)
}

func countPods(ctx context.Context, reader client.Reader, namespace string) (int, error) {
	var list corev1.PodList
	err := reader.List(ctx, &list, client.InNamespace(namespace))
	for i := range list.Items {
		touchPod(&list.Items[i])
	}
	return len(list.Items), err
}

func countDatabases(ctx context.Context, reader client.Reader, namespace string) (int, error) {
	var list database.DatabaseList
	err := reader.List(ctx, &list, client.InNamespace(namespace))
	for i := range list.Items {
		touchDatabase(&list.Items[i])
	}
	return len(list.Items), err
}

// object is a pointer to O that is an object.
type object[O any] interface {
	*O
	client.Object
}

func add[O any, T object[O]](
	manager ctrl.Manager, options probe.Options, v Variant, touch func(T) int,
	count func(context.Context, client.Reader, string) (int, error),
) (*probe.Reader, error) {
	reads := manager.GetClient()
	read := func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		started := time.Now()
		obj := T(new(O))
		if err := reads.Get(ctx, request.NamespacedName, obj); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		options.Observer.Handled(started, obj.GetNamespace(), obj.GetName(), string(obj.GetUID()), obj.GetAnnotations(),
			touch(obj))
		return ctrl.Result{}, nil
	}
	workers := controller.Options{MaxConcurrentReconciles: options.Workers}
	if err := v.Complete(manager, T(new(O)), workers, reconcile.Func(read)); err != nil {
		return nil, err
	}
	return &probe.Reader{
		Get: func(key probe.Key) (int, error) {
			obj := T(new(O))
			if err := reads.Get(context.Background(), client.ObjectKey(key), obj); err != nil {
				return 0, err
			}
			return touch(obj), nil
		},
		List: func(namespace string) (int, error) { return count(context.Background(), reads, namespace) },
	}, nil
}
