package patchtest

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestFailed(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Kind: "Shop"}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":               {nil, false},
		"a patch that fits not": {apierrors.NewInvalid(kind, "a", nil), true},
		"wrapped":               {fmt.Errorf("patch: %w", apierrors.NewInvalid(kind, "a", nil)), true},
		"an invalid object":     {apierrors.NewInvalid(kind, "a", field.ErrorList{field.Required(field.NewPath("spec"), "")}), false},
		"another write":         {apierrors.NewConflict(schema.GroupResource{}, "a", nil), false},
	} {
		if got := Failed(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
