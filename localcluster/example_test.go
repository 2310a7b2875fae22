package localcluster_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/localcluster"
)

// A program with its own cluster.
func Example() {
	run := func(ctx context.Context) error {
		cluster, err := localcluster.Start(ctx, localcluster.Config{})
		if err != nil {
			return err
		}
		defer cluster.Stop() //nolint:errcheck // the cluster ends with the program anyway
		client, err := kubernetes.NewForConfig(cluster.RESTConfig())
		if err != nil {
			return err
		}
		namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		fmt.Println(namespaces.Items[0].Name)
		return nil
	}
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
}
