package controller_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

// TestContract13_PatchWithResponseInProtobuf patches with a client that gets protobuf, beside informers that keep other
// formats. The fields in the response are compared with the Go type of any informer of the kind. Without one, they are not
// known, and the patch causes a run.
func TestContract13_PatchWithResponseInProtobuf(t *testing.T) {
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	typed := func(cluster *kube.Cluster) informer.Retriever[*corev1.ConfigMap] {
		return informer.Retrieve[*corev1.ConfigMap](cluster)
	}
	unstructured := func(cluster *kube.Cluster) informer.Retriever[unstructuredObject] {
		return informer.RetrieveSelected[unstructuredObject](cluster, kube.Selection{Kind: kind})
	}
	metadata := func(cluster *kube.Cluster) informer.Retriever[*metav1.PartialObjectMetadata] {
		return informer.RetrieveSelected[*metav1.PartialObjectMetadata](cluster, kube.Selection{Kind: kind})
	}
	t.Run("typed", func(t *testing.T) { testProtobufPatch(t, typed, nil, 1) })
	t.Run("unstructured beside typed", func(t *testing.T) { testProtobufPatch(t, unstructured, typed, 1) })
	t.Run("metadata beside typed", func(t *testing.T) { testProtobufPatch(t, metadata, typed, 1) })
	t.Run("unstructured", func(t *testing.T) { testProtobufPatch(t, unstructured, nil, 2) })
	t.Run("metadata", func(t *testing.T) { testProtobufPatch(t, metadata, nil, 2) })
}

func testProtobufPatch[T kube.Object](
	t *testing.T, retriever func(*kube.Cluster) informer.Retriever[T], reads func(*kube.Cluster) informer.Retriever[*corev1.ConfigMap], want int64,
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, err := kube.Connect(apitest.New(apiserver.ConfigMaps()).Config("operator"), corev1.AddToScheme)
		if err != nil {
			t.Fatal(err)
		}
		maps, err := cluster.RESTClient(corev1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
		if err := maps.Post().Namespace("ns").Resource("configmaps").Body(m).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		var runs atomic.Int64
		c := controller.Config[T]{
			Name: "maps", Retriever: retriever(cluster), ResyncInterval: -1, Logger: slog.New(slog.DiscardHandler),
			Handler: func(ctx context.Context, _ T) error {
				runs.Add(1)
				patch := []byte(`{"data":{"mode":"` + time.Now().String() + `"}}`)
				return maps.Patch(types.MergePatchType).Namespace("ns").Resource("configmaps").Name("a").Body(patch).Do(ctx).Error()
			},
		}
		if reads != nil {
			i, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: reads(cluster), Logger: c.Logger})
			if err != nil {
				t.Fatal(err)
			}
			c.Reads = []informer.Any{i}
		}
		ctrl, err := controller.New(c)
		if err != nil {
			t.Fatal(err)
		}
		start(t, ctrl)
		time.Sleep(time.Minute)
		if runs.Load() != want {
			t.Errorf("%d runs, want %d\n%s", runs.Load(), want, ctrl.Explain(kube.Key{Namespace: "ns", Name: "a"}))
		}
	})
}
