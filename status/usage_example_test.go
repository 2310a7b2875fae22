package status_test

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/status"
)

func handle(ctx context.Context, shop *Shop) error {
	status.SetReconciling(&shop.Status.Conditions, shop.Generation, "Deploying", "1 of 3 replicas is up")
	if err := deploy(ctx); err != nil {
		return err
	}
	status.SetReady(&shop.Status.Conditions, shop.Generation, "Deployed", "3 replicas are up")
	return nil
}

func deploy(ctx context.Context) error { return ctx.Err() }

// The handler changes only its copy of the object. It makes no requests.
func Example() {
	shop := &Shop{}
	fmt.Println(handle(context.Background(), shop))
	show(shop.Status.Conditions)
	// Output:
	// <nil>
	// Ready=True Deployed: 3 replicas are up
}

// ExampleEdit sets a condition of a kind without a Go type.
func ExampleEdit() {
	shop := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "shop.example.com/v1", "kind": "Shop"}}
	err := status.Edit(shop, func(conditions *[]metav1.Condition) {
		status.SetReady(conditions, shop.GetGeneration(), "Deployed", "3 replicas are up")
	})
	fmt.Println(err)
	conditions, _, _ := unstructured.NestedSlice(shop.Object, "status", "conditions")
	for _, c := range conditions {
		fmt.Println(c.(map[string]any)["type"], c.(map[string]any)["status"])
	}
	// Output:
	// <nil>
	// Ready True
}
