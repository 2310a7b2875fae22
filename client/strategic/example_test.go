package strategic_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/client/strategic"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// One container is changed, and those of others are not mentioned but for their order.
func Example() {
	server := apitest.New(apitest.Deployments())
	cluster, err := kube.Connect(server.Config("shop-operator")) // kube.LoadConfig, elsewhere
	if err != nil {
		fmt.Println(err)
		return
	}
	show := func(next client.RoundTrip) client.RoundTrip {
		return func(ctx context.Context, r *client.Request) error {
			if r.PatchType != "" {
				fmt.Println(r.PatchType, string(r.Body))
			}
			return next(ctx, r)
		}
	}
	c, err := client.New(client.Config{Cluster: cluster, Interceptors: []client.Interceptor{show}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, before := context.Background(), deployment(corev1.Container{Name: "web", Image: "web:1"})

	if _, err := client.Create(ctx, c, before); err != nil {
		fmt.Println(err)
		return
	}
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
