package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

// Shop is a custom kind in namespaces.
type Shop struct{ corev1.ConfigMap }

// DeepCopyObject implements runtime.Object.
func (s *Shop) DeepCopyObject() runtime.Object { return &Shop{*s.ConfigMap.DeepCopy()} }

func (*Shop) NamespaceScoped() bool { return true }

// Region is a cluster-scoped custom kind.
type Region struct{ corev1.ConfigMap }

// DeepCopyObject implements runtime.Object.
func (r *Region) DeepCopyObject() runtime.Object { return &Region{*r.ConfigMap.DeepCopy()} }

func (*Region) NamespaceScoped() bool { return false }

func addShops(scheme *runtime.Scheme) error {
	version := schema.GroupVersion{Group: "shop.example.com", Version: "v1"}
	scheme.AddKnownTypes(version, &Shop{}, &Region{})
	metav1.AddToGroupVersion(scheme, version)
	return nil
}

// TestDeclaredScopesNeedNoRequest: this cluster does not exist.
func TestDeclaredScopesNeedNoRequest(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://nowhere.example.com"}, addShops)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	only, err := c.With(func(config *client.Config) { config.Namespace = "shop" })
	if err != nil {
		t.Fatal(err)
	}
	named := func(obj kube.Object, namespace string) kube.Object {
		obj.SetNamespace(namespace)
		obj.SetName("a")
		obj.SetUID("1")
		return obj
	}
	kind := schema.GroupVersion{Group: "shop.example.com", Version: "v1"}.WithKind
	ctx := t.Context()
	for want, mistake := range map[string]func() error{
		"Shop a has no namespace": func() error {
			_, err := client.Get[*Shop](ctx, c, kube.Key{Name: "a"})
			return err
		},
		"Region shop/a names a namespace": func() error {
			return client.Delete(ctx, c, named(&Region{}, "shop"))
		},
		"Region lives in no namespace, and this client is for namespace shop only": func() error {
			_, err := client.All[*Region](ctx, only, kube.Selection{})
			return err
		},
		"Shop bank/a is not in namespace shop": func() error {
			_, err := client.Create(ctx, only, named(&Shop{}, "bank"))
			return err
		},
		"Region in shop.example.com/v1 is cluster-scoped, as its Go type declares": func() error {
			_, err := informer.New(informer.Config[*Region]{
				Retriever: informer.RetrieveSelected[*Region](cluster, kube.Selection{Namespaces: []string{"shop"}}),
			})
			return err
		},
		"list: Region in shop names a namespace": func() error {
			_, err := client.Keys[*Region](ctx, c, kube.Selection{Namespaces: []string{"shop"}})
			return err
		},
		`add the finalizer "shop.example.com/f": patch: Shop a has no namespace`: func() error {
			_, err := finalizer.Add(ctx, c, named(&Shop{}, ""), "shop.example.com/f")
			return err
		},
		`remove the finalizer "shop.example.com/f": patch: Region shop/a names a namespace`: func() error {
			region := named(&Region{}, "shop")
			region.SetFinalizers([]string{"shop.example.com/f"})
			_, err := finalizer.Remove(ctx, c, region, "shop.example.com/f")
			return err
		},
		"wait until no object exists: Region in shop names a namespace": func() error {
			return client.WaitForNone[*Region](ctx, c, kube.Selection{Namespaces: []string{"shop"}}, client.Timeout(time.Second))
		},
		"get: Shop b has no namespace": func() error {
			_, err := client.Get[*unstructured.Unstructured](ctx, c, kube.Key{Name: "b"}, client.OfKind(kind("Shop")))
			return err
		},
		"Region in shop.example.com/v1 is cluster-scoped": func() error {
			_, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
				Retriever: informer.RetrieveMetadata[*Region](cluster, kube.Selection{Namespaces: []string{"shop"}}),
			})
			return err
		},
		`the namespace of Shop a is "", and its Go type declares NamespaceScoped: true`: func() error {
			return ownerref.SetControllerInMemory(cluster.Scheme(), named(&Shop{}, ""), &Region{})
		},
		`the namespace of Region shop/a is "shop", and its Go type declares NamespaceScoped: false`: func() error {
			return ownerref.SetControllerInMemory(cluster.Scheme(), named(&Region{}, "shop"), &corev1.Pod{})
		},
		"Region shop/a lives in no namespace": func() error {
			child := named(&Region{}, "shop")
			child.SetUID("2")
			return ownerref.SetControllerInMemory(cluster.Scheme(), named(&Shop{}, "shop"), child)
		},
		`the namespace of Shop c is "", and its Go type declares NamespaceScoped: true`: func() error {
			owner := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "c", UID: "1"}}
			owner.SetGroupVersionKind(kind("Shop"))
			return ownerref.SetControllerInMemory(cluster.Scheme(), owner, &Region{})
		},
		"Region shop/d lives in no namespace": func() error {
			child := &unstructured.Unstructured{}
			child.SetGroupVersionKind(kind("Region"))
			child.SetNamespace("shop")
			child.SetName("d")
			return ownerref.SetControllerInMemory(cluster.Scheme(), named(&Shop{}, "shop"), child)
		},
	} {
		if err := mistake(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// TestDeclaredScopeDiffersFromCluster: a definition with another scope than the Go type is an error for every user of the
// kind, also without the type.
func TestDeclaredScopeDiffersFromCluster(t *testing.T) {
	t.Parallel()
	server := &apiServer{responses: nil}
	server.responses = map[string]http.HandlerFunc{
		"/apis/shop.example.com/v1": resources("shop.example.com/v1",
			metav1.APIResource{Name: "shops", Kind: "Shop"}, metav1.APIResource{Name: "regions", Kind: "Region"}),
	}
	listening := httptest.NewServer(server)
	defer listening.Close()
	cluster, err := kube.Connect(&rest.Config{Host: listening.URL}, addShops)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.HTTPClient().CloseIdleConnections()
	version := schema.GroupVersion{Group: "shop.example.com", Version: "v1"}
	for range 2 { // also when it was discovered before
		_, err = cluster.Resource(t.Context(), version.WithKind("Shop"))
		const want = "kind Shop in shop.example.com/v1 is cluster-scoped in the cluster, and its Go type declares that it is namespaced"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	if resource, err := cluster.Resource(t.Context(), version.WithKind("Region")); err != nil || resource.Resource != "regions" {
		t.Errorf("the scope that was declared: %+v, %v", resource, err)
	}
}

// TestDefinitionWithAnotherScopeIsReplaced: an error about the scope ends when the definition is installed again with the
// scope that the Go type declares.
func TestDefinitionWithAnotherScopeIsReplaced(t *testing.T) {
	t.Parallel()
	shop := schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Shop"}
	serve := func(namespaced bool) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{"/apis/shop.example.com/v1": resources("shop.example.com/v1",
			metav1.APIResource{Name: "shops", Kind: "Shop", Namespaced: namespaced})}
	}
	server := &apiServer{responses: serve(false)}
	listening := httptest.NewServer(server)
	defer listening.Close()
	cluster, err := kube.Connect(&rest.Config{Host: listening.URL}, addShops)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.HTTPClient().CloseIdleConnections()
	if _, err := cluster.Resource(t.Context(), shop); err == nil {
		t.Error("the scope that the Go type does not declare is not an error")
	}
	server.set("/apis/shop.example.com/v1", serve(true)["/apis/shop.example.com/v1"])
	if resource, err := cluster.Resource(t.Context(), shop); err != nil || !resource.Namespaced {
		t.Errorf("after the definition was replaced: %+v, %v", resource, err)
	}
	server.paths()
	if _, err := cluster.Resource(t.Context(), shop); err != nil || server.paths() != nil {
		t.Errorf("the result is not cached: %v", err)
	}
}

// TestDefinitionReplacedByOneWithAnotherScope: an error about a namespace, of a kind whose Go type declares no scope, ends
// when the definition is replaced by one with the scope that the caller expects.
func TestDefinitionReplacedByOneWithAnotherScope(t *testing.T) {
	t.Parallel()
	shop := schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Shop"}
	object := func(namespace, uid string) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(shop)
		obj.SetNamespace(namespace)
		obj.SetName("a")
		obj.SetUID(types.UID(uid))
		return obj
	}
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "owner", UID: "1"}}
	apply := func(ctx context.Context, c *client.Client, owner kube.Object, child kube.Object) error {
		set, err := owned.New(owned.Config{Client: c, Name: "test", Kinds: []schema.GroupVersionKind{shop}})
		if err != nil {
			return err
		}
		if _, err = set.Plan(ctx, owner, owned.Of(child)...); err != nil && strings.Contains(err.Error(), "belongs to no owner") {
			return nil // it has found the object
		}
		return err
	}
	for name, test := range map[string]struct {
		namespaced bool // when the definition is replaced
		call       func(context.Context, *client.Client) error
		want       string // before that
	}{
		"get with a namespace": {true, func(ctx context.Context, c *client.Client) error {
			_, err := client.Get[*unstructured.Unstructured](ctx, c, kube.Key{Namespace: "ns", Name: "a"}, client.OfKind(shop))
			return err
		}, "its kind lives in none"},
		"get without a namespace": {false, func(ctx context.Context, c *client.Client) error {
			_, err := client.Get[*unstructured.Unstructured](ctx, c, kube.Key{Name: "a"}, client.OfKind(shop))
			return err
		}, "its kind lives in namespaces"},
		"owner without a namespace": {false, func(ctx context.Context, c *client.Client) error {
			return ownerref.SetController(ctx, c, object("", "2"), &corev1.ConfigMap{})
		}, "has no namespace, but its kind is namespaced"},
		"child with a namespace": {true, func(ctx context.Context, c *client.Client) error {
			return ownerref.SetController(ctx, c, owner.DeepCopy(), object("ns", "2"))
		}, "lives in no namespace"},
		"child of a set, with a namespace": {true, func(ctx context.Context, c *client.Client) error {
			return apply(ctx, c, owner.DeepCopy(), object("ns", ""))
		}, "it has a namespace, but its kind is cluster-scoped"},
		"child of a set, without a namespace": {false, func(ctx context.Context, c *client.Client) error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "owner", UID: "1"}}
			return apply(ctx, c, node, object("", ""))
		}, "it has no namespace, its kind is namespaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serve := func(namespaced bool) map[string]http.HandlerFunc {
				found := func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"apiVersion":"shop.example.com/v1","kind":"Shop","metadata":{"name":"a","uid":"2"}}`))
				}
				none := func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"1"},"items":[]}`))
				}
				return map[string]http.HandlerFunc{
					"/apis/shop.example.com/v1/shops": none, "/apis/shop.example.com/v1/namespaces/ns/shops": none,
					"/api/v1":                                         resources("v1", metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, metav1.APIResource{Name: "nodes", Kind: "Node"}),
					"/apis/shop.example.com/v1":                       resources("shop.example.com/v1", metav1.APIResource{Name: "shops", Kind: "Shop", Namespaced: namespaced}),
					"/apis/shop.example.com/v1/shops/a":               found,
					"/apis/shop.example.com/v1/namespaces/ns/shops/a": found,
				}
			}
			server := &apiServer{responses: serve(!test.namespaced)}
			listening := httptest.NewServer(server)
			defer listening.Close()
			cluster, err := kube.Connect(&rest.Config{Host: listening.URL})
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.HTTPClient().CloseIdleConnections()
			c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "test"})
			if err != nil {
				t.Fatal(err)
			}
			if err := test.call(t.Context(), c); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("before the definition is replaced: %v, want %q", err, test.want)
			}
			server.set("/apis/shop.example.com/v1", serve(test.namespaced)["/apis/shop.example.com/v1"])
			if err := test.call(t.Context(), c); err != nil {
				t.Errorf("after the definition was replaced: %v", err)
			}
		})
	}
}

// The Go type of a custom resource declares its scope. A missing namespace is then an error before any request.
func ExampleScoped() {
	// func (*Shop) NamespaceScoped() bool { return true }
	var _ kube.Scoped = &Shop{}

	cluster, err := kube.Connect(&rest.Config{Host: "https://not-installed-yet.example.com"}, addShops)
	if err != nil {
		fmt.Println(err)
		return
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Get[*Shop](context.Background(), c, kube.Key{Name: "web"})
	fmt.Println(err)
	// Output:
	// get: Shop web has no namespace, and its kind lives in namespaces
}
