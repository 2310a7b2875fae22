package source_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/source"
)

// A controller of Deployments runs when one of their Pods changes. In a cluster, pods would be an informer of
// informer.Retrieve[*corev1.Pod](cluster). As the handler only counts Pods, source.Owned[*corev1.Pod](cluster)
// would be enough.
func ExampleOwnedIn() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := slog.New(slog.DiscardHandler)
	deployments := kindserver.New[*appsv1.Deployment](apitest.Deployments(), true)
	podServer := kindserver.New[*corev1.Pod](apitest.Pods(), true)
	pods, err := informer.New(informer.Config[*corev1.Pod]{Name: "pods", Retriever: podServer, Logger: logger})
	if err != nil {
		fmt.Println(err)
		return
	}
	// Changes by users and other controllers between the runs of the handler.
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-1", Controller: new(true)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: []metav1.OwnerReference{owner}}}
	then := []func(){
		func() { podServer.Put(pod) },
		func() { podServer.Delete(kube.KeyOf(pod)) },
		cancel,
	}
	ctrl, err := controller.New(controller.Config[*appsv1.Deployment]{
		Name:      "pod-counter",
		Retriever: deployments,
		Handler: func(ctx context.Context, d *appsv1.Deployment) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Printf("%s has %d pods: %s\n", d.Name, pods.Len(), run.Causes)
			then[0]()
			then = then[1:]
			return nil
		},
		Sources: []controller.Source{
			source.OwnedIn(pods, source.Owner{Kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}}),
		},
		Logger: logger,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	deployments.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// web has 0 pods: listed
	// web has 1 pods: owned pods: shop/web-1 added by editor
	// web has 0 pods: owned pods: shop/web-1 deleted
}

// The program shares an informer of client-go with another library. In a cluster it would come from an
// informers.SharedInformerFactory, which the program starts.
func ExampleShared() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pods := kindserver.New[*corev1.Pod](apitest.Pods(), true)
	configs := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
	shared := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: configs.List, WatchFuncWithContext: configs.Watch,
	}, &corev1.ConfigMap{}, 0, cache.Indexers{})
	var running sync.WaitGroup
	running.Go(func() { shared.RunWithContext(ctx) }) // waited for below
	then := []func(){
		func() {
			configs.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}})
		},
		cancel,
	}
	ctrl, err := controller.New(controller.Config[*corev1.Pod]{
		Name:      "reloader",
		Retriever: pods,
		Handler: func(ctx context.Context, pod *corev1.Pod) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Printf("%s: %s\n", pod.Name, run.Causes)
			then[0]()
			then = then[1:]
			return nil
		},
		Sources: []controller.Source{
			source.Shared("shared", shared, func(config *corev1.ConfigMap) []kube.Key {
				return []kube.Key{kube.KeyOf(config)} // the Pod of the same name
			}),
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pods.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}})
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	running.Wait()
	// Output:
	// web-1: listed
	// web-1: shared: ConfigMap shop/web-1 added
}

// A controller of Pods runs when a ConfigMap that a Pod refers to changes: the function looks up these Pods in the
// informer. Labels are not configuration, so a predicate drops changes of labels only.
func ExampleMapped() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := slog.New(slog.DiscardHandler)
	podServer := kindserver.New[*corev1.Pod](apitest.Pods(), true)
	configServer := kindserver.New[*corev1.ConfigMap](apiserver.ConfigMaps(), true)
	pods, err := informer.New(informer.Config[*corev1.Pod]{Name: "pods", Retriever: podServer, Logger: logger})
	if err != nil {
		fmt.Println(err)
		return
	}
	configs, err := informer.New(informer.Config[*corev1.ConfigMap]{Name: "configs", Retriever: configServer, Logger: logger})
	if err != nil {
		fmt.Println(err)
		return
	}
	configuredBy := func(config *corev1.ConfigMap) []kube.Key {
		var keys []kube.Key
		for pod, err := range pods.List(informer.Query{}) {
			if err == nil && pod.Namespace == config.Namespace && pod.Annotations["example.com/config"] == config.Name {
				keys = append(keys, kube.KeyOf(pod))
			}
		}
		return keys
	}
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "colours"}}
	then := []func(){
		func() {
			config.Labels = map[string]string{"tier": "front"}
			configServer.Put(config)
			config.Data = map[string]string{"button": "green"}
			configServer.Put(config)
		},
		cancel,
	}
	ctrl, err := controller.New(controller.Config[*corev1.Pod]{
		Name:     "reloader",
		Informer: pods,
		Handler: func(ctx context.Context, pod *corev1.Pod) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Printf("%s: %s\n", pod.Name, run.Causes)
			then[0]()
			then = then[1:]
			return nil
		},
		Sources: []controller.Source{
			source.Mapped(configs, configuredBy,
				predicate.Types(informer.Added, informer.Updated, informer.Deleted), // the first run of each Pod reads its ConfigMap anyway
				predicate.SpecChanged[*corev1.ConfigMap]()),
		},
		Logger: logger,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	configServer.Put(&corev1.ConfigMap{ObjectMeta: config.ObjectMeta, Data: map[string]string{"button": "blue"}})
	config.Data = map[string]string{"button": "blue"}
	podServer.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", Annotations: map[string]string{"example.com/config": "colours"},
	}})
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// web-1: listed
	// web-1: mapped configs: shop/colours updated (spec) by editor
}

// A controller of Deployments runs when one of their Pods changes, and before all others when a Pod breaks: the function
// compares the Pod before and after the change.
func ExampleWithTrigger() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	logger := slog.New(slog.DiscardHandler)
	deployments := kindserver.New[*appsv1.Deployment](apitest.Deployments(), true)
	podServer := kindserver.New[*corev1.Pod](apitest.Pods(), true)
	pods, err := informer.New(informer.Config[*corev1.Pod]{Name: "pods", Retriever: podServer, Logger: logger})
	if err != nil {
		fmt.Println(err)
		return
	}
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "uid-1", Controller: new(true)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", OwnerReferences: []metav1.OwnerReference{owner}}}
	podServer.Put(pod)
	then := []func(){
		func() {
			broken := pod.DeepCopy()
			broken.Annotations = map[string]string{"example.com/broken": "disk"}
			podServer.Put(broken)
		},
		cancel,
	}
	brokenFirst := func(_ kube.Key, why *controller.Trigger) {
		before, after, err := informer.Decode[*corev1.Pod](why.Change)
		if err != nil || before == nil || after == nil {
			return
		}
		if part := after.Annotations["example.com/broken"]; part != "" && before.Annotations["example.com/broken"] == "" {
			why.Priority, why.Detail = controller.PriorityHigh, part
		}
	}
	ctrl, err := controller.New(controller.Config[*appsv1.Deployment]{
		Name:      "pod-counter",
		Retriever: deployments,
		Handler: func(ctx context.Context, d *appsv1.Deployment) error {
			run, _ := controller.RunFrom(ctx)
			fmt.Printf("%s: %s\n", d.Name, run.Causes)
			then[0]()
			then = then[1:]
			return nil
		},
		Sources: []controller.Source{
			source.WithTrigger(source.OwnedIn(pods, source.Owner{Kind: schema.GroupKind{Group: "apps", Kind: "Deployment"}}), brokenFirst),
		},
		Logger: logger,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	deployments.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	if err := ctrl.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// web: listed
	// web: owned pods: shop/web-1 updated (annotations) (disk) by editor
}
