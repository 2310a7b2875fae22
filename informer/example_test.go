package informer_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Example is the code of the package documentation.
func Example() {
	_ = func(ctx context.Context, cluster *kube.Cluster) error {
		pods, err := informer.New(informer.Config[*corev1.Pod]{Retriever: informer.Retrieve[*corev1.Pod](cluster)})
		if err != nil {
			return err
		}
		defer pods.Join(ctx)() // runs it until the function returns
		if err := pods.WaitSynced(ctx); err != nil {
			return err
		}
		pod, found, err := pods.Get(kube.Key{Namespace: "shop", Name: "web-1"})
		fmt.Println(pod, found)
		return err
	}
}

// A loop over many objects that are kept decoded copies nothing.
func ExampleInformer_WithoutCopies() {
	_ = func(pods *informer.Informer[*corev1.Pod], namespace string) (byNode map[string]int, err error) {
		byNode = map[string]int{}
		for pod, err := range pods.WithoutCopies().List(informer.Query{Namespace: namespace}) {
			if err != nil {
				return nil, err
			}
			byNode[pod.Spec.NodeName]++ // reads pod, and changes nothing in it
		}
		return byNode, nil
	}
}

// All informers of Pods, also those of controllers and sources, select by a label, and leave out a field.
func ExampleSetDefaults() {
	cluster, err := kube.Connect(&rest.Config{Host: "https://cluster.example.com"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = informer.SetDefaults(informer.Config[*corev1.Pod]{
		Retriever: informer.RetrieveSelected[*corev1.Pod](cluster, kube.Selection{LabelSelector: "app=web"}),
		Cut:       []string{"spec.containers.env"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	pods, err := informer.New(informer.Config[*corev1.Pod]{Retriever: informer.Retrieve[*corev1.Pod](cluster)})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(pods.Ready())
	// Output: informer "Pod" of Pod (labels app=web): not running
}
