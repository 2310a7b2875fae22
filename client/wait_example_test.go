package client_test

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// ExampleWaitFor is an installer that creates a Deployment and continues when it is rolled out.
func ExampleWaitFor() {
	server := apitest.New(apitest.Deployments())
	cluster, err := kube.Connect(server.Config("installer"))
	if err != nil {
		panic(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		panic(err)
	}
	key := kube.Key{Namespace: "shop", Name: "web"}
	rollOut := func() {
		server.Edit("deployments", key, "controller", func(obj map[string]any) bool {
			obj["spec"] = map[string]any{"replicas": int64(2)}
			obj["status"] = map[string]any{
				"observedGeneration": int64(1), "replicas": int64(2), "updatedReplicas": int64(2), "availableReplicas": int64(2),
			}
			return true
		})
	}
	ended := make(chan struct{})
	go func() { // waited for at the end
		defer close(ended)
		rollOut()
	}()

	ctx := context.Background()
	deployment, err := client.WaitFor[*appsv1.Deployment](ctx, c, key, readiness.Of, client.Timeout(time.Minute))
	fmt.Println(deployment.Status.AvailableReplicas, "replicas are available:", err)

	<-ended
	_, err = client.WaitFor[*appsv1.Deployment](ctx, c, key, readiness.When("", func(*corev1.Pod) bool { return true }))
	fmt.Println(err)
	// Output:
	// 2 replicas are available: <nil>
	// wait for Deployment shop/web: the object has failed: the check requires a *v1.Pod, the object is a *v1.Deployment
}

// ExampleWaitDeleted is a command that replaces a Deployment. A handler must not wait, but return.
func ExampleWaitDeleted() {
	server := apitest.New(apitest.Deployments())
	key := kube.Key{Namespace: "shop", Name: "web"}
	server.Edit("deployments", key, "somebody", func(map[string]any) bool { return true })
	cluster, err := kube.Connect(server.Config("command"))
	if err != nil {
		panic(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	deployment, err := client.Get[*appsv1.Deployment](ctx, c, key)
	if err != nil {
		panic(err)
	}
	err = client.Delete(ctx, c, deployment)
	if err != nil {
		panic(err)
	}
	err = client.WaitDeleted(ctx, c, deployment, client.Timeout(time.Minute))
	fmt.Println(err)
	// Output:
	// <nil>
}
