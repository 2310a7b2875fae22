package apitest_test

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

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A controller of this library writes to each of 100 ConfigMaps, and sees its writes, in virtual time.
func TestControllerInBubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const objects = 100
		server, err := apiserver.New(apiserver.Config{Seed: 1, NamespacesExist: true, Kinds: []*apiserver.Kind{apiserver.ConfigMaps()}})
		if err != nil {
			t.Fatal(err)
		}
		cluster, err := kube.Connect(server.RESTConfig("tests"))
		if err != nil {
			t.Fatal(err)
		}
		cluster.SetLogger(slog.New(slog.NewTextHandler(t.Output(), nil)))
		c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "tests"})
		if err != nil {
			t.Fatal(err)
		}
		var handled atomic.Int64
		ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name:      "labeller",
			Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{"shop"}}),
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
		testrun.Start(t, ctrl.Run)
		for i := range objects {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("cm-%03d", i)}}
			if _, err := client.Create(t.Context(), c, cm); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		all, err := client.All[*corev1.ConfigMap](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}})
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
	})
}
