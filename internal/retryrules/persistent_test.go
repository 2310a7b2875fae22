package retryrules_test

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
)

// nameTakenError is an error with method Persistent.
type nameTakenError struct{ persistent bool }

func (e nameTakenError) Error() string    { return "the name is taken" }
func (e nameTakenError) Persistent() bool { return e.persistent }

// panickingPersistentError panics in method Persistent.
type panickingPersistentError struct{}

func (panickingPersistentError) Error() string    { return "panics" }
func (panickingPersistentError) Persistent() bool { panic("Persistent") }

func TestPersistent(t *testing.T) {
	t.Parallel()
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "web", nil)
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                             {nil, false},
		"unknown":                         {errors.New("broken"), false},
		"forbidden":                       {apierrors.NewForbidden(schema.GroupResource{}, "web", errors.New("no")), false},
		"invalid":                         {invalid, true},
		"invalid, wrapped":                {fmt.Errorf("apply: %w", invalid), true},
		"invalid and transient":           {errors.Join(apierrors.NewInternalError(errors.New("x")), invalid), true},
		"method returns true":             {nameTakenError{true}, true},
		"method returns true, wrapped":    {fmt.Errorf("apply: %w", errors.Join(errors.New("other"), nameTakenError{true})), true},
		"method returns false":            {nameTakenError{false}, false},
		"one of two methods returns true": {errors.Join(nameTakenError{false}, nameTakenError{true}), true},
		"panics":                          {panickingPersistentError{}, false},
	} {
		if got := retryrules.Persistent(test.err); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
