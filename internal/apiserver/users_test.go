package apiserver_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

const objects = 100

func newServer(t *testing.T, kinds ...*apiserver.Kind) *apiserver.Server {
	t.Helper()
	s, err := apiserver.New(apiserver.Config{
		Seed: 1, NamespacesExist: true, Kinds: append(kinds, apiserver.ConfigMaps(), apiserver.Namespaces()),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// client-go's dynamic client and informer see creates, changes of labels, and deletes of a custom kind for a virtual day.
func TestDynamicInformerInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
		server := newServer(t, apiserver.Custom(gvr.GroupVersion().WithKind("Widget"), gvr.Resource))
		dyn, err := dynamic.NewForConfig(server.RESTConfig("tests"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dyn, 0, "shop", func(o *metav1.ListOptions) { o.LabelSelector = "app=web" })
		lister := factory.ForResource(gvr).Lister()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		client := dyn.Resource(gvr).Namespace("shop")
		for i := range objects {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(i)}}}
			u.SetGroupVersionKind(gvr.GroupVersion().WithKind("Widget"))
			u.SetName(fmt.Sprintf("w-%03d", i))
			u.SetLabels(map[string]string{"app": "web"})
			created, err := client.Create(ctx, u, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 { // leaves the selection
				created.SetLabels(nil)
				if _, err := client.Update(ctx, created, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(15 * time.Minute)
		}
		if err := client.Delete(ctx, "w-001", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cached, err := lister.List(labels.Everything())
		if err != nil {
			t.Fatal(err)
		}
		if want := objects/2 - 1; len(cached) != want {
			t.Errorf("%d objects in the informer, want %d", len(cached), want)
		}
		cancel()
		factory.Shutdown()
	})
}
