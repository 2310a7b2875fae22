package crd_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/evenkeel-go/evenkeel/crd"
)

// TestFunctionsAcceptOnlyTheirOptions compares the static types: the compiler accepts an option if and only
// if the type that it is returned as is assignable to the type of the function's options.
func TestFunctionsAcceptOnlyTheirOptions(t *testing.T) {
	t.Parallel()
	options := map[string]any{
		"AllowDataLoss": crd.AllowDataLoss, "AllowNarrowing": crd.AllowNarrowing, "AcceptNewer": crd.AcceptNewer,
		"Pace": crd.Pace,
	}
	for name, test := range map[string]struct {
		function any
		accepts  []string
	}{
		"Ensure":  {crd.Ensure, []string{"AllowDataLoss", "AllowNarrowing", "AcceptNewer"}},
		"Migrate": {crd.Migrate, []string{"Pace"}},
	} {
		function := reflect.TypeOf(test.function)
		accepted := function.In(function.NumIn() - 1).Elem()
		for option, constructor := range options {
			compiles := reflect.TypeOf(constructor).Out(0).AssignableTo(accepted)
			if want := slices.Contains(test.accepts, option); compiles != want {
				t.Errorf("%s accepts %s: %t, want %t", name, option, compiles, want)
			}
		}
	}
}
