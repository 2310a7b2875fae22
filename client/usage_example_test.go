package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1apply "k8s.io/client-go/applyconfigurations/apps/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// newShop returns a cluster with the Deployment web, the ConfigMap settings and the Pods web-0 and
// db-0, all in namespace shop.
func newShop() *kube.Cluster {
	server := apitest.New(
		apitest.Deployments(),
		apiserver.ConfigMaps(),
		apitest.Pods(),
	)
	put := func(resource, name string, labels map[string]any) {
		server.Edit(resource, kube.Key{Namespace: "shop", Name: name}, "somebody", func(obj map[string]any) bool {
			obj["metadata"].(map[string]any)["labels"] = labels
			return true
		})
	}
	put("deployments", "web", nil)
	put("pods", "web-0", map[string]any{"app": "web"})
	put("pods", "db-0", map[string]any{"app": "db"})
	cluster, err := kube.Connect(server.Config("shop-operator"))
	if err != nil {
		panic(err)
	}
	return cluster
}

// shopClient returns a client of newShop.
func shopClient() *client.Client {
	c, err := client.New(client.Config{Cluster: newShop()})
	if err != nil {
		panic(err)
	}
	return c
}

// Example reads an object and changes one of its fields.
func Example() {
	ctx, cluster := context.Background(), newShop() // in a program: kube.Connect
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "shop-operator"})
	if err != nil {
		fmt.Println(err)
		return
	}
	web, err := client.Get[*appsv1.Deployment](ctx, c, kube.Key{Namespace: "shop", Name: "web"})
	if err != nil {
		fmt.Println(err)
		return
	}
	changed := web.DeepCopy()
	changed.Spec.Paused = true
	web, err = client.Patch(ctx, c, web, client.MergeFrom(web, changed))
	fmt.Println(web.Spec.Paused, err)
	// Output:
	// true <nil>
}

// ExampleApplyConfiguration applies only the set fields: not the empty template of a typed Deployment.
func ExampleApplyConfiguration() {
	ctx := context.Background()
	c := intercepted(shopClient(), func(_ context.Context, r *client.Request) error {
		fmt.Println(string(r.Body))
		r.Status = http.StatusOK
		return nil
	}, client.VerbApply)

	web := appsv1apply.Deployment("web", "shop").WithSpec(appsv1apply.DeploymentSpec().WithReplicas(3))
	applied, err := client.ApplyConfiguration(ctx, c, web, client.Force())
	fmt.Println(applied.Outcome, err)
	// Output:
	// {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop"},"spec":{"replicas":3}}
	// updated <nil>
}

// ExampleClient_With derives a client for dry runs from another client.
func ExampleClient_With() {
	ctx, c := context.Background(), shopClient() // in a program: client.New
	plan, err := c.With(func(config *client.Config) { config.DryRun = true })
	if err != nil {
		fmt.Println(err)
		return
	}
	key := kube.Key{Namespace: "shop", Name: "colours"}
	_, err = client.Create(ctx, plan, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}})
	existing, _ := client.Exists[*corev1.ConfigMap](ctx, c, key)
	fmt.Println(err, existing)
	// Output:
	// <nil> false
}

// ExampleList lists the Pods of an application page by page.
func ExampleList() {
	c := shopClient() // in a program: client.New
	show := func(ctx context.Context) error {
		web := kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}
		for pod, err := range client.List[*corev1.Pod](ctx, c, web) {
			if err != nil {
				return err
			}
			fmt.Println(pod.Name)
		}
		return nil
	}
	fmt.Println(show(context.Background()))
	// Output:
	// web-0
	// <nil>
}

// ExampleDelete ignores that the object is already deleted.
func ExampleDelete() {
	ctx, c := context.Background(), shopClient() // in a program: client.New
	pod, err := client.Get[*corev1.Pod](ctx, c, kube.Key{Namespace: "shop", Name: "web-0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 2 {
		err := client.IgnoreNotFound(client.Delete(ctx, c, pod))
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// <nil>
}

// ExampleIgnoreNotFound_results returns a result to the controller that depends on the reason of the failed request.
func ExampleIgnoreNotFound_results() {
	handle := func(err error) error {
		if apierrors.IsInvalid(err) {
			return controller.Terminal(err)
		}
		return client.IgnoreNotFound(err)
	}
	_, err := client.Get[*corev1.Pod](context.Background(), shopClient(), kube.Key{Namespace: "shop", Name: "web-1"})
	fmt.Println(errors.Is(err, client.ErrGone), handle(err))
	// Output:
	// true <nil>
}

func noDeletions(next client.RoundTrip) client.RoundTrip {
	return func(ctx context.Context, r *client.Request) error {
		if r.Verb == client.VerbDelete {
			return errors.New("nothing is deleted here")
		}
		return next(ctx, r)
	}
}

// ExampleInterceptor rejects some requests of a client.
func ExampleInterceptor() {
	c, err := client.New(client.Config{Cluster: newShop(), Interceptors: []client.Interceptor{noDeletions}})
	if err != nil {
		fmt.Println(err)
		return
	}
	pod, err := client.Get[*corev1.Pod](context.Background(), c, kube.Key{Namespace: "shop", Name: "web-0"})
	fmt.Println(pod.Name, err)
	fmt.Println(client.Delete(context.Background(), c, pod))
	// Output:
	// web-0 <nil>
	// delete Pod shop/web-0: nothing is deleted here
}

// ExampleSubresourceOf_patch scales a Deployment without reading or writing its spec.
func ExampleSubresourceOf_patch() {
	ctx := context.Background()
	c := intercepted(shopClient(), func(_ context.Context, r *client.Request) error {
		fmt.Println(r.Verb, r.Kind.Kind, r.Key, r.Subresource, string(r.Body))
		*r.Response.(*autoscalingv1.Scale) = autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}}
		return nil
	}, client.VerbGet, client.VerbPatch)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}

	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))
	scale, err := client.Patch[*autoscalingv1.Scale](ctx, c, nil, patch, client.SubresourceOf(deployment, "scale"))
	fmt.Println(scale.Spec.Replicas, err)
	// Output:
	// patch Deployment shop/web scale {"spec":{"replicas":2}}
	// 2 <nil>
}

// ExampleSubresourceOf_get reads the desired number of replicas of an object of any kind that can be scaled.
func ExampleSubresourceOf_get() {
	ctx := context.Background()
	c := intercepted(shopClient(), func(_ context.Context, r *client.Request) error {
		*r.Response.(*autoscalingv1.Scale) = autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 3}}
		return nil
	}, client.VerbGet)
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}

	scale, err := client.Get[*autoscalingv1.Scale](ctx, c, kube.KeyOf(deployment), client.SubresourceOf(deployment, "scale"))
	fmt.Println(scale.Spec.Replicas, err)
	// Output:
	// 3 <nil>
}

// ExampleSubresourceOf evicts a Pod, like kubectl drain.
func ExampleSubresourceOf() {
	ctx := context.Background()
	c := intercepted(shopClient(), func(_ context.Context, r *client.Request) error {
		fmt.Println(r.Verb, r.Kind.Kind, r.Key, r.Subresource)
		return nil
	}, client.VerbCreate)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}

	_, err := client.Create(ctx, c, &policyv1.Eviction{}, client.SubresourceOf(pod, "eviction"))
	fmt.Println(err)
	// Output:
	// create Pod shop/web-0 eviction
	// <nil>
}

// ExampleEditMetadata_pod sets a label and removes an annotation, in one request.
func ExampleEditMetadata_pod() {
	ctx, c := context.Background(), shopClient() // in a program: client.New
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	_, changed, err := client.EditMetadata(ctx, c, pod, func(labels, annotations map[string]string) {
		labels["tier"] = "web"
		delete(annotations, "shop.example.com/paused")
	})
	fmt.Println(changed, err)
}

// ExampleSubresourceOf_verbs reads and writes subresources with kinds of their own.
func ExampleSubresourceOf_verbs() {
	ctx, c := context.Background(), shopClient() // in a program: client.New
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`))
	scale, err := client.Get[*autoscalingv1.Scale](ctx, c, kube.KeyOf(web), client.SubresourceOf(web, "scale"))
	fmt.Println(scale, err)
	_, err = client.Create(ctx, c, &policyv1.Eviction{}, client.SubresourceOf(pod, "eviction"))
	fmt.Println(err)
	scale, err = client.Update(ctx, c, scale, client.SubresourceOf(web, "scale"))
	fmt.Println(scale, err)
	scale, err = client.Patch[*autoscalingv1.Scale](ctx, c, nil, patch, client.SubresourceOf(web, "scale"))
	fmt.Println(scale, err)
}
