package controllerruntime

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// A list that fails before its request has no selection to read.
func TestSelectionOfListWithoutRequest(t *testing.T) {
	t.Parallel()
	failing := errors.New("no mapping")
	lw := &toolscache.ListWatch{ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return nil, failing
	}}
	informer := (&informerFactory{}).newInformer(lw, &corev1.ConfigMap{}, 0, nil)
	err := informer.SetTransform(nil)
	if !errors.Is(err, failing) || !strings.Contains(err.Error(), "find what an informer of *v1.ConfigMap selects: ") {
		t.Errorf("error %v", err)
	}
}
