package strategic_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/client/strategic"
	"github.com/evenkeel-go/evenkeel/internal/fakeserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// One container is changed, and those of others are not mentioned but for their order.
func Example() {
	server := fakeserver.New(fakeserver.Kind{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Resource: "deployments"})
	cluster, err := kube.Connect(server.Config("shop-operator")) // kube.LoadConfig, elsewhere
	if err != nil {
		fmt.Println(err)
		return
	}
	send := func(_ context.Context, r *client.Request) error { // in the place of an API server, of which fakeserver knows no strategic patches
		fmt.Println(r.PatchType, string(r.Body))
		*r.Response.(*appsv1.Deployment) = *deployment(corev1.Container{Name: "web", Image: "web:2"})
		return nil
	}
	c, err := client.New(client.Config{Cluster: cluster, Interceptors: []client.Interceptor{
		func(client.RoundTrip) client.RoundTrip { return send },
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, before := context.Background(), deployment(corev1.Container{Name: "web", Image: "web:1"})

	after := before.DeepCopy()
	after.Spec.Template.Spec.Containers[0].Image = "web:2"
	web, err := client.Patch(ctx, c, before, strategic.From(before, after))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(web.Spec.Template.Spec.Containers[0].Image)
	// Output:
	// application/strategic-merge-patch+json {"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"web"}],"containers":[{"image":"web:2","name":"web"}]}}}}
	// web:2
}
