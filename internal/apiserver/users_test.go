package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
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

// A controller of this library writes to each of 100 ConfigMaps, and sees its writes, in virtual time.
func TestControllerInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer(t)
		cluster, err := kube.Connect(server.RESTConfig("tests"))
		if err != nil {
			t.Fatal(err)
		}
		logger := slog.New(slog.NewTextHandler(t.Output(), nil))
		c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "tests", Logger: logger})
		if err != nil {
			t.Fatal(err)
		}
		var handled atomic.Int64
		ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "labeller", Logger: logger,
			Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, informer.Selection{Namespaces: []string{"shop"}}),
			Handler: func(ctx context.Context, cm *corev1.ConfigMap) error {
				handled.Add(1)
				if cm.Labels["seen"] == "yes" {
					return nil
				}
				cm.Labels = map[string]string{"seen": "yes"}
				_, err := client.Update(ctx, c, cm)
				return err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ctrl.Run(ctx) }() // waited for below
		for i := range objects {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("cm-%03d", i)}}
			if _, err := client.Create(t.Context(), c, cm); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		all, err := client.All[*corev1.ConfigMap](t.Context(), c, client.InNamespace("shop"))
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != objects {
			t.Errorf("%d objects, want %d", len(all), objects)
		}
		for _, cm := range all {
			if cm.Labels["seen"] != "yes" {
				t.Errorf("%s was not handled", cm.Name)
			}
		}
		if handled.Load() < objects {
			t.Errorf("%d runs, want at least %d", handled.Load(), objects)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
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
