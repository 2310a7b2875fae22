package client_test

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ExampleScaleLive is a handler that scales down databases that are not needed. It checks the live object, because its
// cache may be stale.
func ExampleScaleLive() {
	server, c, stop := startServer() // in a program: client.New
	defer stop()

	needed := func(database *appsv1.StatefulSet) bool {
		return database.Annotations["shop.example.com/needed"] != ""
	}
	handle := func(ctx context.Context, database *appsv1.StatefulSet) error {
		if needed(database) || *database.Spec.Replicas == 0 {
			return nil // nothing to do; a stale cache does no harm here
		}
		return client.ScaleLive(ctx, c, database, 0, func(live *appsv1.StatefulSet) error {
			if needed(live) {
				return errors.New("it is needed again")
			}
			return nil
		})
	}

	cached := database()
	server.edit(databasePath, func(live *unstructured.Unstructured) { // the cache does not show this change yet
		live.SetAnnotations(map[string]string{"shop.example.com/needed": "until Friday"})
		live.SetResourceVersion("8")
	})
	fmt.Println(handle(context.Background(), cached))

	server.edit(databasePath, nil)
	err := handle(context.Background(), cached)
	fmt.Println(errors.Is(err, client.ErrGone))
	// Output:
	// scale to 0 replicas: StatefulSet shop/db: not done: it is needed again
	// true
}

func ExampleMergeFrom() {
	before := database()
	after := before.DeepCopy()
	after.Spec.Replicas = new(int32(5))
	after.Labels = map[string]string{"tier": "data"}
	fmt.Println(client.MergeFrom(before, after))
	fmt.Println(client.MergeFrom(before, after).Locked(before))
	fmt.Println(client.MergeFrom(before, before).Empty())
	// Output:
	// {"metadata":{"labels":{"tier":"data"}},"spec":{"replicas":5}}
	// {"metadata":{"labels":{"tier":"data"},"resourceVersion":"7"},"spec":{"replicas":5}}
	// true
}

// Example_errors shows a handler that reacts to the reason of an error.
func Example_errors() {
	_, c, stop := startServer() // in a program: client.New
	defer stop()

	_, err := client.Get[*appsv1.StatefulSet](context.Background(), c, kube.Key{Namespace: "shop", Name: "web"})
	switch {
	case errors.Is(err, client.ErrGone):
		fmt.Println("there is none (yet)")
	case apierrors.IsForbidden(err):
		fmt.Println("the operator's Role lacks something:", err)
	case err == nil:
		fmt.Println("here it is")
	}
	// Output:
	// there is none (yet)
}
