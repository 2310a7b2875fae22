package workqueue_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	var want []workqueue.Cause
	for i := range workqueue.MaxCauses + 3 {
		o := because(fmt.Sprint("number ", i))
		q.Add("a", o)
		if i < workqueue.MaxCauses {
			o.Cause.Count = 1
			want = append(want, o.Cause)
		}
	}
	q.Add("a", because("number 0")) // in the set already, so it is not dropped
	want[0].Count = 2
	causes := take(t, q).Causes
	if diff := cmp.Diff(want, causes.List()); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
	if causes.Dropped() != 3 {
		t.Errorf("%d causes were dropped, want 3", causes.Dropped())
	}
}

func TestCausesOfTakenKeyDoNotChange(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	q.Add("a", because("first"))
	q.Add("a", because("second"))
	causes := take(t, q).Causes
	q.Add("a", because("third"))
	q.Add("a", because("fourth"))
	q.Done("a")
	q.Add("a", because("fifth"))
	if got := causes.String(); got != "triggered (first), triggered (second)" {
		t.Errorf("the causes changed to %q", got)
	}
}

func TestCausesHas(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseListed}})
	q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Detail: "spec"}})
	causes := take(t, q).Causes
	var has []workqueue.CauseType
	for _, cause := range workqueue.CauseTypes() {
		if causes.Has(cause) {
			has = append(has, cause)
		}
	}
	if diff := cmp.Diff([]workqueue.CauseType{workqueue.CauseListed, workqueue.CauseUpdated}, has); diff != "" {
		t.Errorf("has (-want +got):\n%s", diff)
	}
	if got, want := causes.String(), "listed, updated (spec)"; got != want {
		t.Errorf("String is %q, want %q", got, want)
	}
	if got := (workqueue.Causes{}).String(); got != "" {
		t.Errorf("the text of no causes is %q, want an empty text", got)
	}
}

func TestCauseTypesAreDifferent(t *testing.T) {
	t.Parallel()
	types := workqueue.CauseTypes()
	slices.Sort(types)
	if got := len(slices.Compact(types)); got != 9 {
		t.Errorf("%d different types, want 9: %v", got, types)
	}
}

func TestCausesAsJSON(t *testing.T) {
	t.Parallel()
	causes := workqueue.NewCauses(workqueue.Cause{Type: workqueue.CauseUpdated, Changed: kube.ChangedSpec | kube.ChangedLabels})
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
