package controller

import (
	"reflect"
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
	v1, v2 := autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
	informers := []cache.Informer{
		informerOf(t, informer.RetrieveSelected[*metav1.PartialObjectMetadata](cluster, kube.Selection{Kind: v2})),
		informerOf(t, informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{Kind: v2})),
		informerOf(t, informer.Retrieve[*autoscalingv1.HorizontalPodAutoscaler](cluster)),
		informerOf(t, informer.Retrieve[*autoscalingv2.HorizontalPodAutoscaler](cluster)),
	}
	for kind, want := range map[schema.GroupVersionKind]any{
		v1: &autoscalingv1.HorizontalPodAutoscaler{}, v2: &autoscalingv2.HorizontalPodAutoscaler{},
	} {
		for n, from := range [][]cache.Informer{informers, informers[:2]} {
			content := contentDecoder{func(schema.GroupKind) []cache.Informer { return from }}
			newObject := content.typeOf(kind)
			if n == 1 {
				if newObject != nil {
					t.Errorf("%s: no informer has a Go type, but it is %T", kind, newObject())
				}
			} else if newObject == nil || reflect.TypeOf(newObject()) != reflect.TypeOf(want) {
				t.Errorf("%s: no function, or not of %T", kind, want)
			}
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
