package status_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/status"
)

// condition returns the Shop's condition of a type.
func (w *world) condition(t *testing.T, conditionType string) metav1.Condition {
	t.Helper()
	if c := meta.FindStatusCondition(w.shop(t).Status.Conditions, conditionType); c != nil {
		return *c
	}
	return metav1.Condition{}
}

func ready(shop *Shop, value metav1.ConditionStatus, generation int64, since time.Time, message string) {
	status.Set(&shop.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: value, ObservedGeneration: generation, Reason: "Why", Message: message, LastTransitionTime: metav1.NewTime(since),
	})
}

// A run with an outdated state sets a status that the cluster already has since an earlier time, as after a lost
// response or a change of leadership.
func TestStaleCommitKeepsTransitionTime(t *testing.T) {
	t.Parallel()
	first, second := given().Time, given().Add(time.Hour)
	for name, objects := range map[string]func(w *world) (stale *Shop){
		"typed": func(w *world) *Shop { return w.shop(t) },
	} {
		w := newWorld(t)
		stale := objects(w)
		after := stale.copy()
		ready(after, metav1.ConditionTrue, 1, first, "")
		commit(t, w, stale, after)

		repeated := stale.copy()
		ready(repeated, metav1.ConditionTrue, 1, second, "")
		if _, err := status.Commit(t.Context(), w.client, stale, repeated); err != nil {
			t.Fatal(err)
		}
		if got := w.condition(t, "Ready"); !got.LastTransitionTime.Time.Equal(first) || got.Status != metav1.ConditionTrue {
			t.Errorf("%s: %+v, want the transition at %s", name, got, first)
		}

		// The run changes the message too, and the message is written.
		repeated = stale.copy()
		ready(repeated, metav1.ConditionTrue, 1, second, "said again")
		commit(t, w, stale, repeated)
		if got := w.condition(t, "Ready"); !got.LastTransitionTime.Time.Equal(first) || got.Message != "said again" {
			t.Errorf("%s: %+v, want the transition at %s", name, got, first)
		}
	}
}

// The same, for unstructured objects: their state in the cluster is fully known.
func TestStaleUnstructuredCommitKeepsTransitionTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stale := w.unstructured(t)
	for _, since := range []string{"2026-02-03T04:05:06Z", "2026-02-03T05:05:06Z"} {
		after := stale.DeepCopy()
		said := condition("Ready", "True")
		said["lastTransitionTime"] = since
		after.Object["status"].(map[string]any)["conditions"] = []any{condition("Theirs", "True"), said}
		if _, err := status.Commit(t.Context(), w.client, stale, after); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.condition(t, "Ready"); got.LastTransitionTime.UTC().Format(time.RFC3339) != "2026-02-03T04:05:06Z" {
		t.Errorf("%+v", got)
	}
}

// Another client has changed the condition's status since, so this commit changes it again. The transition time is now,
// not the one in the run's state.
func TestStaleCommitSetsTransitionTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stale := w.shop(t)
	w.say("Ready", "True")
	after := stale.copy()
	ready(after, metav1.ConditionFalse, 0, time.Time{}, "still not")
	began := time.Now().Add(-time.Second)
	commit(t, w, stale, after)
	if got := w.condition(t, "Ready"); got.Status != metav1.ConditionFalse || got.LastTransitionTime.Time.Before(began) {
		t.Errorf("%+v, want a transition now", got)
	}
}

// A run that changes only the message of an outdated state must not restore the old time of a transition that it has
// not seen.
func TestCommitOfMessageKeepsLaterTransitionTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stale := w.shop(t)
	later := given().Add(time.Hour)
	w.edit(func(s map[string]any) { // set to True and back to False
		s["conditions"].([]any)[1].(map[string]any)["lastTransitionTime"] = later.UTC().Format(time.RFC3339)
	})
	after := stale.copy()
	ready(after, metav1.ConditionFalse, 0, time.Time{}, "still not")
	commit(t, w, stale, after)
	if got := w.condition(t, "Ready"); got.Message != "still not" || !got.LastTransitionTime.Time.Equal(later) {
		t.Errorf("%+v, want the transition at %s", got, later)
	}
}

// A run for an earlier generation must not overwrite what a run for a later generation has written: conditions, their
// removal, and status.observedGeneration.
func TestCommitOfOlderGenerationKeepsLaterOne(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(*Shop){
		"another status":     func(s *Shop) { ready(s, metav1.ConditionTrue, 1, given().Time, "of generation 1") },
		"the same status":    func(s *Shop) { ready(s, metav1.ConditionFalse, 1, given().Time, "of generation 1") },
		"without generation": func(s *Shop) { ready(s, metav1.ConditionTrue, 0, given().Time, "of generation 1") },
		"removed":            func(s *Shop) { meta.RemoveStatusCondition(&s.Status.Conditions, "Ready") },
		"with fields and a new condition": func(s *Shop) {
			ready(s, metav1.ConditionTrue, 1, given().Time, "of generation 1")
			status.Set(&s.Status.Conditions, at(given(), status.True("New", 1, "New", "")))
			s.Status.Summary.First = "a"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.generation(1)
			stale := w.shop(t)
			after := stale.copy()
			run(after)
			after.Status.ObservedGeneration, after.Status.Replicas = 1, 7

			w.generation(2)
			w.edit(func(s map[string]any) {
				s["observedGeneration"] = int64(2)
				later := condition("Ready", "False")
				later["observedGeneration"], later["message"] = int64(2), "of generation 2"
				s["conditions"] = []any{condition("Theirs", "True"), later}
			})
			if _, err := status.Commit(t.Context(), w.client, stale, after); err != nil {
				t.Fatal(err)
			}
			now := w.shop(t)
			if got := meta.FindStatusCondition(now.Status.Conditions, "Ready"); got.Message != "of generation 2" || got.ObservedGeneration != 2 || got.Status != metav1.ConditionFalse {
				t.Errorf("the condition is %+v", got)
			}
			if now.Status.ObservedGeneration != 2 {
				t.Errorf("status.observedGeneration is %d", now.Status.ObservedGeneration)
			}
			if now.Status.Replicas != 7 {
				t.Errorf("the other fields of the run are lost: %+v", now.Status)
			}
		})
	}
}

// generation sets the Shop's generation.
func (w *world) generation(n int64) {
	w.Edit("shops", shopKey(), "others", func(obj map[string]any) bool {
		obj["metadata"].(map[string]any)["generation"] = n
		return true
	})
}

// An object that was restored from a backup has a status with later generations than its own. A run that has read that
// status writes its own generation, even if another client writes at the same time.
func TestCommitToRestoredObjectWritesItsGeneration(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.generation(1)
	w.edit(func(s map[string]any) {
		s["observedGeneration"] = int64(7)
		restored := condition("Ready", "False")
		restored["observedGeneration"] = int64(7)
		s["conditions"] = []any{restored}
	})
	before, after := w.shops(t)
	ready(after, metav1.ConditionTrue, 1, given().Time, "of generation 1")
	after.Status.ObservedGeneration = 1
	w.say("Theirs", "True")
	w.edit(func(s map[string]any) { s["conditions"].([]any)[0].(map[string]any)["status"] = "Unknown" })
	if _, err := status.Commit(t.Context(), w.client, before, after); err != nil {
		t.Fatal(err)
	}
	now := w.shop(t)
	if got := meta.FindStatusCondition(now.Status.Conditions, "Ready"); got.ObservedGeneration != 1 || now.Status.ObservedGeneration != 1 {
		t.Errorf("the status is about generation %d, and the condition about %d", now.Status.ObservedGeneration, got.ObservedGeneration)
	}
}
