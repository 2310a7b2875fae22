package finalizer_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/middleware"
)

// The middleware never calls the handler for an object without the finalizer or for one that is being deleted.
func Example() {
	server, c := newServer() // in a program: client.New
	defer server.Hook(nil)
	handle := func(context.Context, *corev1.ConfigMap) error {
		fmt.Println("handled")
		return nil
	}
	removeRecord := func(_ context.Context, books *corev1.ConfigMap) error {
		fmt.Println("the DNS record of", books.Name, "is removed")
		return nil
	}
	removeBucket := func(_ context.Context, books *corev1.ConfigMap) error {
		fmt.Println("the bucket of", books.Name, "is removed")
		return nil
	}

	cleanup, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
		Client: c,
		Name:   "shop.example.com/cleanup",
		Steps: []finalizer.Step[*corev1.ConfigMap]{
			{Name: "dns", Run: removeRecord}, {Name: "bucket", Run: removeBucket},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := controller.Chain(handle,
		middleware.Finalizer(cleanup, middleware.FinalizerOptions[*corev1.ConfigMap]{}))

	deleted, err := client.Get[*corev1.ConfigMap](context.Background(), c, books()) // in a program, the controller does this
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(handler(context.Background(), deleted))
	_, err = client.Get[*corev1.ConfigMap](context.Background(), c, books())
	fmt.Println("gone:", errors.Is(err, client.ErrGone))
	// Output:
	// the DNS record of books is removed
	// the bucket of books is removed
	// <nil>
	// gone: true
}
