package controller_test

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/source"
)

// exampleCluster returns a cluster with ConfigMaps "shop/web" and "shop/queue" of team blue, and a Pod "shop/web-0".
func exampleCluster() *kube.Cluster {
	server := apitest.New(apitest.Pods(), apiserver.ConfigMaps())
	for _, name := range []string{"web", "queue"} {
		server.Edit("configmaps", kube.Key{Namespace: "shop", Name: name}, "somebody", func(obj map[string]any) bool {
			obj["metadata"].(map[string]any)["labels"] = map[string]any{"team": "blue"}
			return true
		})
	}
	server.Edit("pods", kube.Key{Namespace: "shop", Name: "web-0"}, "somebody", func(map[string]any) bool { return true })
	cluster, err := kube.Connect(server.Config("shop-operator"))
	if err != nil {
		panic(err)
	}
	return cluster
}

// A controller of teams: a team is a label of ConfigMaps, not an object.
func ExampleNoObject() {
	cluster := exampleCluster() // in a program: from kube.LoadConfig and kube.Connect
	configs, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	// region teams
	type team string
	reconcile := func(_ context.Context, t team) error {
		n, err := configs.Count(informer.Query{Labels: labels.SelectorFromSet(labels.Set{"team": string(t)})})
		fmt.Printf("team %s has %d ConfigMaps\n", t, n)
		close(done)
		return err
	}
	config := controller.Config[controller.NoObject]{
		Name: "teams",
		Reconciler: controller.KeyHandler(controller.Chain(reconcile,
			middleware.Log[team](nil))),
		Sources: []controller.Source{
			source.Mapped(configs, func(config *corev1.ConfigMap) []kube.Key {
				return []kube.Key{controller.EncodeKey(team(config.Labels["team"]))}
			}),
		},
	}
	// endregion
	slog.SetDefault(slog.New(slog.DiscardHandler))
	runFor(config, done)
	// Output: team blue has 2 ConfigMaps
}

// One controller, with one queue and one number of workers, for objects of several kinds.
func ExampleKeyHandler() {
	cluster := exampleCluster()
	configs, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: informer.Retrieve[*corev1.ConfigMap](cluster)})
	if err != nil {
		fmt.Println(err)
		return
	}
	pods, err := informer.New(informer.Config[*corev1.Pod]{Retriever: informer.Retrieve[*corev1.Pod](cluster)})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{}, 3)
	type objectKey struct{ Kind, Namespace, Name string }
	keysOf := func(kind string, obj metav1.Object) []kube.Key {
		return []kube.Key{controller.EncodeKey(objectKey{kind, obj.GetNamespace(), obj.GetName()})}
	}
	reconcile := func(_ context.Context, key objectKey) error {
		var obj kube.Object
		var found bool
		var err error
		switch name := (kube.Key{Namespace: key.Namespace, Name: key.Name}); key.Kind {
		case "ConfigMap":
			obj, found, err = configs.Get(name)
		case "Pod":
			obj, found, err = pods.Get(name)
		}
		if err != nil || !found {
			return err
		}
		fmt.Printf("%s is a %T\n", obj.GetName(), obj)
		done <- struct{}{}
		return nil
	}
	config := controller.Config[controller.NoObject]{
		Name:       "objects",
		Reconciler: controller.KeyHandler(reconcile),
		Sources: []controller.Source{
			source.Mapped(configs, func(config *corev1.ConfigMap) []kube.Key { return keysOf("ConfigMap", config) }),
			source.Mapped(pods, func(pod *corev1.Pod) []kube.Key { return keysOf("Pod", pod) }),
		},
	}
	all := make(chan struct{})
	go func() { // ends with the example
		for range cap(done) {
			<-done
		}
		close(all)
	}()
	runFor(config, all)
	// Unordered output:
	// web is a *v1.ConfigMap
	// queue is a *v1.ConfigMap
	// web-0 is a *v1.Pod
}

func ExampleEncodeKey() {
	type deployment struct {
		Cluster string
		Key     kube.Key
	}
	key := controller.EncodeKey(deployment{"eu-1", kube.Key{Namespace: "shop", Name: "web"}})
	fmt.Println(key)
	decoded, err := controller.KeyOf[deployment](key) // such as a key of Controller.RecentRuns
	fmt.Println(decoded.Cluster, decoded.Key.Name, err)
	// Output:
	// eu-1/shop/web
	// eu-1 web <nil>
}
