package status_test

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/status"
)

func ExampleSet() {
	var conditions []metav1.Condition
	fmt.Println(status.Set(&conditions, status.False("Synced", 1, "no credentials", "the Secret shop/cloud is missing")))
	fmt.Println(status.Set(&conditions, status.True("Synced", 1, "Synced", "")))
	fmt.Println(status.Set(&conditions, status.True("Synced", 1, "Synced", "")))
	fmt.Println(meta.IsStatusConditionTrue(conditions, "Synced"))
	// Output:
	// true
	// true
	// false
	// true
}

// ExampleSummarize sets conditions that `kubectl wait` and GitOps tools understand from the states of the object's
// children.
func ExampleSummarize() {
	var conditions []metav1.Condition
	status.Summarize(&conditions, 3,
		readiness.State{Status: readiness.Current},
		readiness.State{Status: readiness.InProgress, Message: "Deployment shop/web: 1 of 3 replicas is up"})
	show(conditions)
	status.Summarize(&conditions, 3, readiness.State{Status: readiness.Current}, readiness.State{Status: readiness.Current})
	show(conditions)
	// Output:
	// Ready=False InProgress: Deployment shop/web: 1 of 3 replicas is up
	// Reconciling=True InProgress: Deployment shop/web: 1 of 3 replicas is up
	// Ready=True Current:
}

func show(conditions []metav1.Condition) {
	for _, c := range conditions {
		fmt.Printf("%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
}

// ExampleCommit shows Commit without middleware.Status: before is the object as the run received it, after is the
// object at the end of the run.
func ExampleCommit() {
	c, stop := startServer() // in a program: client.New
	defer stop()
	handle := func(ctx context.Context, shop *Shop) error {
		before := shop.copy()
		status.SetReady(&shop.Status.Conditions, shop.Generation, "Deployed", "3 replicas are up")
		changed, err := status.Commit(ctx, c, before, shop)
		fmt.Println("written:", changed)
		return err
	}
	for range 2 {
		shop, err := client.Get[*Shop](context.Background(), c, shopKey())
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := handle(context.Background(), shop); err != nil {
			fmt.Println(err)
			return
		}
	}
	// Output:
	// written: true
	// written: false
}
