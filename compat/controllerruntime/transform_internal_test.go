package controllerruntime

import (
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// The strip transform is recognised wherever it was made, and no other function is.
func TestStripTransformIsRecognised(t *testing.T) {
	t.Parallel()
	made := []toolscache.TransformFunc{cache.TransformStripManagedFields(), makeStrip(cache.TransformStripManagedFields)}
	for i, f := range made {
		if !stripsManagedFields(f) {
			t.Errorf("function %d is not recognised", i)
		}
	}
	if stripsManagedFields(nil) || stripsManagedFields(func(obj any) (any, error) { return made[0](obj) }) {
		t.Error("another function is recognised")
	}
}

func makeStrip(f func() toolscache.TransformFunc) toolscache.TransformFunc { return f() }
