package event_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Two equal events become one Event with a count.
func ExampleRecorder_Normal() {
	server := newAPIServer()
	cluster, err := kube.Connect(&rest.Config{Host: "https://example.com", Transport: server}) // in a program: kube.LoadConfig
	if err != nil {
		fmt.Println(err)
		return
	}
	events, err := event.New(event.Config{Cluster: cluster, Controller: "shop-operator"})
	if err != nil {
		fmt.Println(err)
		return
	}
	website := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	for range 2 {
		url := "https://shop.example.com"
		events.Normal(website, "Published", "Publish", "serves at %s", url)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // Run sends the queued events, and returns
	if err := events.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println(server.list())
	// Output:
	// [web Published x2]
}
