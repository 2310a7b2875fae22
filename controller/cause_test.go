package controller_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestCausesHas(t *testing.T) {
	t.Parallel()
	causes := controller.NewCauses(
		controller.Cause{Type: controller.CauseListed}, controller.Cause{Type: controller.CauseUpdated, Detail: "spec"})
	var has []controller.CauseType
	for _, cause := range controller.CauseTypes() {
		if causes.Has(cause) {
			has = append(has, cause)
		}
	}
	if diff := cmp.Diff([]controller.CauseType{controller.CauseListed, controller.CauseUpdated}, has); diff != "" {
		t.Errorf("has (-want +got):\n%s", diff)
	}
	if got, want := causes.String(), "listed, updated (spec)"; got != want {
		t.Errorf("String is %q, want %q", got, want)
	}
	if got := (controller.Causes{}).String(); got != "" {
		t.Errorf("the text of no causes is %q, want an empty text", got)
	}
}

func TestCausesAreMergedAndBounded(t *testing.T) {
	t.Parallel()
	var all []controller.Cause
	for detail := range strings.FieldsSeq("1 2 3 4 5 6 7 8 9 1 10") {
		all = append(all, controller.Cause{Type: controller.CauseTriggered, Detail: detail})
	}
	causes := controller.NewCauses(all...)
	if list := causes.List(); len(list) != 8 || list[0].Count != 2 || list[1].Count != 1 || causes.Dropped() != 2 {
		t.Errorf("%d causes were dropped, want 2; the others are %+v", causes.Dropped(), list)
	}
	if got, want := causes.String(), "triggered 2 times (1), triggered (2)"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, ", and 2 more") {
		t.Errorf("String is %q", got)
	}
}

func TestCauseTypesAreDifferent(t *testing.T) {
	t.Parallel()
	types := controller.CauseTypes()
	slices.Sort(types)
	if got := len(slices.Compact(types)); got != 9 {
		t.Errorf("%d different types, want 9: %v", got, types)
	}
}

func TestCausesAsJSON(t *testing.T) {
	t.Parallel()
	causes := controller.NewCauses(controller.Cause{Type: controller.CauseUpdated, Changed: kube.ChangedSpec | kube.ChangedLabels})
	encoded, err := json.Marshal(causes)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"List":[{"Type":"updated"`, `"Changed":"labels,spec"`, `"Dropped":0`} {
		if !strings.Contains(string(encoded), want) {
			t.Errorf("the causes as JSON lack %s: %s", want, encoded)
		}
	}
}
