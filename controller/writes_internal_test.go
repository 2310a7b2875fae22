package controller

import (
	"fmt"
	"slices"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// States in protobuf are decoded with the Go type of their own API version.
func TestTypeOfStatesInProtobuf(t *testing.T) {
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	v1 := autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
	v2 := autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
	untyped := []cache.Informer{
		informerOf(t, informer.RetrieveSelected[*metav1.PartialObjectMetadata](cluster, kube.Selection{Kind: v2})),
		informerOf(t, informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: v2})),
	}
	typed := append(slices.Clone(untyped),
		informerOf(t, informer.Retrieve[*autoscalingv1.HorizontalPodAutoscaler](cluster)),
		informerOf(t, informer.Retrieve[*autoscalingv2.HorizontalPodAutoscaler](cluster)),
	)
	for _, test := range []struct {
		informers []cache.Informer
		kind      schema.GroupVersionKind
		want      string // the Go type
	}{
		{untyped, v2, "none"},
		{typed, v1, "*v1.HorizontalPodAutoscaler"},
		{typed, v2, "*v2.HorizontalPodAutoscaler"},
	} {
		content, got := contentDecoder{func(schema.GroupKind) []cache.Informer { return test.informers }}, "none"
		if newObject := content.typeOf(test.kind); newObject != nil {
			got = fmt.Sprintf("%T", newObject())
		}
		if got != test.want {
			t.Errorf("%s with %d informers: the Go type is %s, want %s", test.kind, len(test.informers), got, test.want)
		}
	}
}

func informerOf[T kube.Object](t *testing.T, retriever informer.Retriever[T]) cache.Informer {
	t.Helper()
	i, err := informer.New(informer.Config[T]{Retriever: retriever})
	if err != nil {
		t.Fatal(err)
	}
	return cache.Of(i)
}
