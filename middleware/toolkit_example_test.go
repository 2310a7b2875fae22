package middleware_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/status"
)

// ExampleStatus is the structure of a handler that creates something outside of the cluster and reports in the status.
// Nothing outside of the cluster is created before the finalizer is stored. The status shows the result of every run,
// also of a failed one.
func ExampleStatus() {
	_, c, err := makeServer() // in a program: client.New
	if err != nil {
		fmt.Println(err)
		return
	}
	cleanup, err := finalizer.New(finalizer.Config[*corev1.Service]{
		Client: c,
		Name:   "shop.example.com/cleanup",
		Steps: []finalizer.Step[*corev1.Service]{{Name: "dns", Run: func(context.Context, *corev1.Service) error {
			fmt.Println("the record is removed")
			return nil
		}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	down := errors.New("the DNS provider is down")
	handler := controller.Chain(
		func(_ context.Context, service *corev1.Service) error {
			fmt.Println("finalizers:", service.Finalizers)
			if down != nil {
				return down
			}
			status.SetReady(&service.Status.Conditions, service.Generation, "Published", "the record is there")
			return nil
		},
		middleware.Status(c, middleware.StatusOptions[*corev1.Service]{OnError: middleware.FailureConditions(conditionsOf)}),
		middleware.Finalizer(cleanup, middleware.FinalizerOptions[*corev1.Service]{}),
	)

	ctx := context.Background()
	run := func() { // in a program, the controller does this
		service, err := client.Get[*corev1.Service](ctx, c, webKey())
		if err != nil {
			fmt.Println("it is gone:", errors.Is(err, client.ErrGone))
			return
		}
		fmt.Println("result:", handler(ctx, service))
		for _, condition := range service.Status.Conditions {
			fmt.Println(condition.Type, condition.Status, condition.Message)
		}
	}
	run()
	down = nil
	run()
	if err := client.Delete(ctx, c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: webKey().Namespace, Name: webKey().Name}}); err != nil {
		fmt.Println(err)
	}
	run()
	run()
	// Output:
	// finalizers: [shop.example.com/cleanup]
	// result: the DNS provider is down
	// Ready False the DNS provider is down
	// Reconciling True the DNS provider is down
	// finalizers: [shop.example.com/cleanup]
	// result: <nil>
	// Ready True the record is there
	// the record is removed
	// result: <nil>
	// Ready True the record is there
	// it is gone: true
}

// ExampleCommitStatus stores the name of something outside of the cluster before it is created: if the process crashes,
// the next one finds it.
func ExampleCommitStatus() {
	server, c, err := makeServer() // in a program: client.New
	if err != nil {
		fmt.Println(err)
		return
	}
	handler := controller.Chain(
		func(ctx context.Context, service *corev1.Service) error {
			if !meta.IsStatusConditionTrue(service.Status.Conditions, "Named") {
				status.Set(&service.Status.Conditions, status.True("Named", service.Generation, "Named", "web-1.example.com"))
				if err := middleware.CommitStatus(ctx, service); err != nil {
					return err
				}
			}
			fmt.Println("make the record after", len(server.Requests()), "requests")
			status.SetReady(&service.Status.Conditions, service.Generation, "Published", "")
			return nil
		},
		middleware.Status(c, middleware.StatusOptions[*corev1.Service]{}),
	)
	for range 2 { // in a program, the controller does this
		service, err := client.Get[*corev1.Service](context.Background(), c, webKey())
		if err != nil {
			fmt.Println(err)
			return
		}
		server.Requests()
		fmt.Println("result:", handler(context.Background(), service))
		fmt.Println("requests after that:", len(server.Requests()))
	}
	// Output:
	// make the record after 1 requests
	// result: <nil>
	// requests after that: 1
	// make the record after 0 requests
	// result: <nil>
	// requests after that: 0
}
