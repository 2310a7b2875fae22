package status_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/status"
)

// short formats conditions without their times.
func short(conditions []metav1.Condition) []string {
	var lines []string
	for _, c := range conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %d %s: %s", c.Type, c.Status, c.ObservedGeneration, c.Reason, c.Message))
	}
	return lines
}

// undecided calls Summarize with a state that is not known. Summarize sets the reason.
func undecided(conditions *[]metav1.Condition, generation int64, _, message string) bool {
	return status.Summarize(conditions, generation, readiness.State{Message: message})
}

// The test makes every transition between two summaries. Conditions of other clients stay.
func TestSummaries(t *testing.T) {
	t.Parallel()
	type summary struct {
		say  func(*[]metav1.Condition, int64, string, string) bool
		want []string
		is   readiness.Status
	}
	summaries := map[string]summary{
		"ready":       {status.SetReady, []string{"Ready=True 4 Why: text"}, readiness.Current},
		"reconciling": {status.SetReconciling, []string{"Ready=False 4 Why: text", "Reconciling=True 4 Why: text"}, readiness.InProgress},
		"undecided":   {undecided, []string{"Ready=Unknown 4 Undecided: text", "Reconciling=True 4 Undecided: text"}, readiness.InProgress},
		"stalled":     {status.SetStalled, []string{"Ready=False 4 Why: text", "Stalled=True 4 Why: text"}, readiness.Failed},
	}
	for oldName, before := range summaries {
		for newName, after := range summaries {
			t.Run(oldName+" to "+newName, func(t *testing.T) {
				t.Parallel()
				conditions := []metav1.Condition{status.True("Synced", 1, "Theirs", "")}
				if !before.say(&conditions, 3, "Before", "") || !after.say(&conditions, 4, "Why", "text") {
					t.Error("it was not said that something changed")
				}
				if after.say(&conditions, 4, "Why", "text") {
					t.Error("said again, something changed")
				}
				if diff := cmp.Diff(append([]string{"Synced=True 1 Theirs: "}, after.want...), short(conditions)); diff != "" {
					t.Errorf("conditions (-want +got):\n%s", diff)
				}
				obj := &unstructured.Unstructured{}
				obj.SetGeneration(4)
				if err := status.Edit(obj, func(c *[]metav1.Condition) { *c = conditions }); err != nil {
					t.Fatal(err)
				}
				if got := readiness.Of(obj); got.Status != after.is {
					t.Errorf("readiness.Of says %s, want %s", got, after.is)
				}
			})
		}
	}
}

func TestSummarize(t *testing.T) {
	t.Parallel()
	current := readiness.State{Status: readiness.Current, Message: "not to be told"}
	failed := readiness.State{Status: readiness.Failed, Message: "Job shop/import: it has failed"}
	progress := readiness.State{Status: readiness.InProgress, Message: "Deployment shop/web: 1 of 3"}
	terminating := readiness.State{Status: readiness.Terminating}
	unknown := readiness.State{Message: "Service shop/web: not read"}
	many := []readiness.State{current}
	for i := range 7 {
		many = append(many, readiness.State{Status: readiness.InProgress, Message: fmt.Sprint("child ", i)})
	}
	for name, test := range map[string]struct {
		states []readiness.State
		want   []string
	}{
		"nothing":     {nil, []string{"Ready=True 1 Current: "}},
		"current":     {[]readiness.State{current, current}, []string{"Ready=True 1 Current: "}},
		"failed":      {[]readiness.State{progress, failed, unknown}, says("False", "Stalled", "Failed", failed.Message)},
		"in progress": {[]readiness.State{terminating, progress, current, unknown, progress}, says("False", "Reconciling", "InProgress", "Terminating; Deployment shop/web: 1 of 3; Service shop/web: not read")},
		"terminating": {[]readiness.State{terminating}, says("False", "Reconciling", "Terminating", "Terminating")},
		"unknown":     {[]readiness.State{unknown, current, {}}, says("Unknown", "Reconciling", "Undecided", "Service shop/web: not read; not known")},
		"many":        {many, says("False", "Reconciling", "InProgress", "child 0; child 1; child 2; child 3; child 4; and 2 more")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var conditions []metav1.Condition
			if !status.Summarize(&conditions, 1, test.states...) || status.Summarize(&conditions, 1, test.states...) {
				t.Error("it is not told right whether something changed")
			}
			if diff := cmp.Diff(test.want, short(conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
		})
	}
}

func says(ready, why, reason, message string) []string {
	return []string{
		strings.Join([]string{"Ready=" + ready, "1", reason + ":", message}, " "),
		strings.Join([]string{why + "=True", "1", reason + ":", message}, " "),
	}
}
