package client_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

// intercepted returns a client that calls respond instead of the API server, for some verbs.
func intercepted(c *client.Client, respond client.RoundTrip, verbs ...client.Verb) *client.Client {
	changed, err := c.With(func(config *client.Config) {
		config.FieldOwner = "shop"
		config.Interceptors = []client.Interceptor{client.On(func(client.RoundTrip) client.RoundTrip { return respond }, verbs...)}
	})
	if err != nil {
		panic(err)
	}
	return changed
}

// ExampleApply shows that Apply sends only the set fields.
func ExampleApply() {
	_, c, stop := startServer() // in a program: client.New
	defer stop()
	c = intercepted(c, func(_ context.Context, r *client.Request) error {
		fmt.Println(string(r.Body))
		r.Status = http.StatusCreated
		return nil
	}, client.VerbApply)

	ctx := context.Background()
	applied, err := client.Apply(ctx, c, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 80}},
		},
	}, client.Force())
	fmt.Println(applied.Outcome, err)
	// Output:
	// {"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"spec":{"ports":[{"port":80}],"selector":{"app":"web"}}}
	// created <nil>
}

// ExampleEditMetadata makes no request for labels that the object already has.
func ExampleEditMetadata() {
	_, c, stop := startServer() // in a program: client.New
	defer stop()
	c = intercepted(c, func(_ context.Context, r *client.Request) error {
		fmt.Println(string(r.Body))
		labelled := database()
		labelled.Labels = map[string]string{"app": "db", "tier": "back"}
		*r.Response.(*appsv1.StatefulSet) = *labelled
		return nil
	}, client.VerbPatch)

	obj := database()
	obj.Labels = map[string]string{"app": "db"}
	for range 2 {
		var changed bool
		var err error
		obj, changed, err = client.EditMetadata(context.Background(), c, obj, func(labels, annotations map[string]string) {
			labels["app"], labels["tier"] = "db", "back"
			delete(annotations, "shop.example.com/paused")
		})
		fmt.Println(changed, slices.Sorted(maps.Keys(obj.Labels)), err)
	}
	// Output:
	// {"metadata":{"labels":{"tier":"back"},"uid":"u1"}}
	// true [app tier] <nil>
	// false [app tier] <nil>
}
