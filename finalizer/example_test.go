package finalizer_test

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/finalizer"
)

// ExampleFinalizer_Teardown continues a teardown of two steps. An earlier process has done the first step.
func ExampleFinalizer_Teardown() {
	c, shop, stop := startServer() // in a program: client.New, and the object that is handled
	defer stop()
	step := func(name string) finalizer.Step[*corev1.ConfigMap] {
		return finalizer.Step[*corev1.ConfigMap]{Name: name, Run: func(context.Context, *corev1.ConfigMap) error {
			fmt.Println("step", name)
			return nil
		}}
	}
	cleanup, err := finalizer.New(finalizer.Config[*corev1.ConfigMap]{
		Client: c,
		Name:   "shop.example.com/cleanup",
		Steps:  []finalizer.Step[*corev1.ConfigMap]{step("dns"), step("bucket")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	done := shop.Annotations["shop.example.com/cleanup-done"]
	fmt.Println(strings.ReplaceAll(done, string(shop.UID), "UID"))
	fmt.Println(cleanup.Teardown(context.Background(), shop), shop.Finalizers)
	// Output:
	// UID:dns
	// step bucket
	// <nil> []
}
