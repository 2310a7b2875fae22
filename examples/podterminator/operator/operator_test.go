package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
)

func TestRoundEndsPercentage(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 5)
		f.createPod("db", "db")
		before := f.alive(t.Context())
		f.operate(nil, Config{})
		f.create(f.terminator(30, time.Hour)) // 1.5 of 5 Pods

		pt := f.afterRound(1)
		after := f.alive(t.Context())
		var gone []v1alpha1.PodReference
		for uid, pod := range before {
			if _, ok := after[uid]; !ok {
				gone = append(gone, v1alpha1.PodReference{Name: pod.Name, UID: uid})
			}
		}
		slices.SortFunc(gone, func(a, b v1alpha1.PodReference) int { return strings.Compare(a.Name, b.Name) })
		if len(gone) != 2 {
			t.Fatalf("%d Pods are gone, want 2", len(gone))
		}
		ready := meta.FindStatusCondition(pt.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil {
			t.Fatal("the condition Ready is missing")
		}
		next := metav1.NewMicroTime(pt.Status.LastRun.Add(time.Hour))
		want := v1alpha1.PodTerminatorStatus{
			ObservedGeneration: 1,
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: "True", Reason: "RoundDone", Message: "ended 2 of 5 selected Pods",
				ObservedGeneration: 1, LastTransitionTime: ready.LastTransitionTime,
			}},
			Rounds: 1, LastRun: pt.Status.LastRun, NextRun: &next,
			TerminatedTotal: 2, LastTerminated: gone,
		}
		if diff := cmp.Diff(want, pt.Status); diff != "" {
			t.Errorf("the status (-want +got):\n%s", diff)
		}
		if ago := time.Since(pt.Status.LastRun.Time); ago < 0 || ago > time.Minute {
			t.Errorf("the round began at %s, %s ago", pt.Status.LastRun, ago)
		}
		if diff := cmp.Diff([]string{v1alpha1.Finalizer}, pt.Finalizers); diff != "" {
			t.Errorf("finalizers (-want +got):\n%s", diff)
		}
		if _, err := f.pods.Get(t.Context(), "db", metav1.GetOptions{}); err != nil {
			t.Errorf("a Pod that is not selected: %v", err)
		}
	})
}

func TestRoundsKeepMinAlive(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 6)
		// A Pod that is being deleted but cannot end yet is not alive.
		hold := `{"metadata":{"finalizers":["test.evenkeel.dev/hold"]}}`
		if _, err := f.pods.Patch(t.Context(), "web-0", types.MergePatchType, []byte(hold), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := f.pods.Delete(t.Context(), "web-0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		f.operate(nil, Config{})
		pt := f.terminator(50, time.Second)
		pt.Spec.MinAlive = 2
		f.create(pt)

		got := f.afterRound(4) // 5 alive: 3 are ended, minAlive allows no more
		if got.Status.TerminatedTotal != 3 {
			t.Errorf("after %d rounds %d Pods were ended, want 3", got.Status.Rounds, got.Status.TerminatedTotal)
		}
		if n := len(f.alive(t.Context())); n != 2 {
			t.Errorf("%d Pods are alive, want the 2 of minAlive", n)
		}
		release := `{"metadata":{"finalizers":null}}`
		if _, err := f.pods.Patch(t.Context(), "web-0", types.MergePatchType, []byte(release), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDryRunMarksAndDeletionUnmarks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 4)
		f.operate(nil, Config{})
		pt := f.terminator(50, time.Second)
		pt.Spec.DryRun = true
		pt.Finalizers = []string{"test.evenkeel.dev/first"}
		f.create(pt)

		f.afterRound(3) // the marks of earlier rounds are stale
		f.patch(types.MergePatchType, `{"spec":{"period":"1h"}}`)
		status := f.until("the new period is seen", func(pt *v1alpha1.PodTerminator) bool {
			return pt.Status.ObservedGeneration == pt.Generation && pt.Status.Plan == nil
		}).Status
		if n := len(f.alive(t.Context())); n != 4 {
			t.Errorf("%d Pods are alive after dry runs, want all 4", n)
		}
		if status.TerminatedTotal != 0 || len(status.LastTerminated) != 0 || len(status.WouldTerminate) != 2 {
			t.Errorf("status after dry runs: %+v, want 2 that would have been ended", status)
		}
		var would []string
		for _, p := range status.WouldTerminate {
			would = append(would, p.Name)
		}
		if diff := cmp.Diff(would, f.marked()); diff != "" {
			t.Errorf("marked Pods (-want +got):\n%s", diff)
		}

		// The mark of another PodTerminator must stay.
		other := `{"metadata":{"annotations":{"chaos.evenkeel.dev/victim-of":"other"}}}`
		if _, err := f.pods.Patch(t.Context(), would[0], types.MergePatchType, []byte(other), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		f.patch(types.JSONPatchType, `[{"op":"add","path":"/metadata/finalizers/-","value":"test.evenkeel.dev/last"}]`)
		f.delete()
		left := f.until("the operator's finalizer is gone", func(pt *v1alpha1.PodTerminator) bool {
			return pt == nil || !slices.Contains(pt.Finalizers, v1alpha1.Finalizer)
		})
		if left == nil {
			t.Fatal("the PodTerminator was deleted: the operator removed foreign finalizers")
		}
		if diff := cmp.Diff([]string{"test.evenkeel.dev/first", "test.evenkeel.dev/last"}, left.Finalizers); diff != "" {
			t.Errorf("remaining finalizers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{would[0]}, f.marked()); diff != "" {
			t.Errorf("marked Pods after the deletion (-want +got):\n%s", diff)
		}
		f.patch(types.MergePatchType, `{"metadata":{"finalizers":null}}`)
		f.until("the PodTerminator is gone", func(pt *v1alpha1.PodTerminator) bool { return pt == nil })
	})
}

func TestInvalidSelectorIsTerminal(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		selector string
		message  string
	}{
		"unknown operator": {
			selector: `{"matchExpressions":[{"key":"app","operator":"Like","values":["w*"]}]}`,
			message:  `spec.selector: "Like" is not a valid label selector operator`,
		},
		"every Pod": {
			selector: `{"matchLabels":{}}`, // valid for the schema
			message:  "spec.selector selects every Pod: name at least one label",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t place) {
				f := newFixture(t, 2)
				outcomes := newOutcomes()
				f.operate(nil, Config{Metrics: outcomes})
				f.createRaw(tt.selector)
				refused := f.until("the condition is false", func(pt *v1alpha1.PodTerminator) bool {
					return meta.IsStatusConditionFalse(pt.Status.Conditions, v1alpha1.ConditionReady)
				})
				ready := meta.FindStatusCondition(refused.Status.Conditions, v1alpha1.ConditionReady)
				if ready.Reason != "InvalidSelector" || ready.Message != tt.message {
					t.Errorf("the condition is %s: %q, want InvalidSelector: %q", ready.Reason, ready.Message, tt.message)
				}
				outcomes.wait(t.T, controller.OutcomeTerminal)
				if n := len(f.alive(t.Context())); n != 2 {
					t.Errorf("%d Pods are alive, want both", n)
				}
				f.patch(types.MergePatchType, `{"spec":{"selector":{"matchLabels":{"app":"web"},"matchExpressions":null}}}`)
				f.afterRound(1)
				if n := len(f.alive(t.Context())); n != 0 {
					t.Errorf("%d Pods are alive after the selector was corrected, want none", n)
				}
			})
		})
	}
}
