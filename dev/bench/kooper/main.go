// Command kooper is the measured controller on Kooper.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spotahome/kooper/v2/controller"
	"github.com/spotahome/kooper/v2/log"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/database"
	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

func main() { probe.Main(start) }

func start(ctx context.Context, options probe.Options, failed chan<- error) (*probe.Reader, error) {
	klog.SetLogger(logr.Discard())
	config := &rest.Config{Host: options.Server, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	newRetriever := podRetriever
	if options.Kind == probe.Databases {
		newRetriever = databaseRetriever
	}
	retriever, err := newRetriever(config)
	if err != nil {
		return nil, err
	}
	if options.Best {
		retriever = stripped{retriever}
	}
	c, err := controller.New(&controller.Config{
		Name:      "bench",
		Retriever: retriever,
		Handler: controller.HandlerFunc(func(_ context.Context, obj runtime.Object) error {
			return handle(options.Observer, obj)
		}),
		Logger:            log.Dummy,
		ConcurrentWorkers: options.Workers,
	})
	if err != nil {
		return nil, err
	}
	go func() { failed <- c.Run(ctx) }() // ends with the process
	return nil, nil                      // Kooper gives no access to its cache
}

func handle(observer *probe.Observer, obj runtime.Object) error {
	started := time.Now()
	switch obj := obj.(type) {
	case *corev1.Pod:
		observer.Handled(started, obj.Namespace, obj.Name, string(obj.UID), obj.Annotations, len(obj.Status.Phase)+
			len(obj.Spec.NodeName))
	case *database.Database:
		observer.Handled(started, obj.Namespace, obj.Name, string(obj.UID), obj.Annotations, len(obj.Status.Phase)+
			len(obj.Spec.Engine))
	default:
		return fmt.Errorf("unexpected object %T", obj)
	}
	return nil
}

// retriever is a controller.Retriever of two functions.
type retriever struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// List implements controller.Retriever.
func (r retriever) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	return r.list(ctx, options)
}

// Watch implements controller.Retriever.
func (r retriever) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return r.watch(ctx, options)
}

func podRetriever(config *rest.Config) (controller.Retriever, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	pods := client.CoreV1().Pods(metav1.NamespaceAll)
	return retriever{
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return pods.List(ctx, options)
		},
		watch: pods.Watch,
	}, nil
}

func databaseRetriever(config *rest.Config) (controller.Retriever, error) {
	scheme := runtime.NewScheme()
	if err := database.AddToScheme(scheme); err != nil {
		return nil, err
	}
	gv := database.GroupVersion()
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	codec := runtime.NewParameterCodec(scheme)
	return retriever{
		list: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &database.DatabaseList{}
			err := client.Get().Resource(database.Resource).VersionedParams(&options, codec).Do(ctx).Into(list)
			return list, err
		},
		watch: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return client.Get().Resource(database.Resource).VersionedParams(&options, codec).Watch(ctx)
		},
	}, nil
}

// stripped is a Retriever without managedFields.
type stripped struct{ controller.Retriever }

// List implements controller.Retriever.
func (s stripped) List(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := s.Retriever.List(ctx, options)
	if err != nil {
		return nil, err
	}
	return list, apimeta.EachListItem(list, func(obj runtime.Object) error {
		strip(obj)
		return nil
	})
}

// Watch implements controller.Retriever.
func (s stripped) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	events, err := s.Retriever.Watch(ctx, options)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
		strip(event.Object)
		return event, true
	}), nil
}

func strip(obj runtime.Object) {
	if meta, err := apimeta.Accessor(obj); err == nil {
		meta.SetManagedFields(nil)
	}
}
