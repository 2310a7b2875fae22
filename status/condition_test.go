package status_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// earlier and given are times of transitions.
func earlier() metav1.Time { return metav1.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }
func given() metav1.Time   { return metav1.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC) }

func at(t metav1.Time, c metav1.Condition) metav1.Condition {
	c.LastTransitionTime = t
	return c
}

func TestSet(t *testing.T) {
	t.Parallel()
	ready := status.True("Ready", 1, "Deployed", "all is up")
	other := at(earlier(), status.True("Synced", 1, "Synced", ""))
	for name, test := range map[string]struct {
		before      []metav1.Condition
		set         metav1.Condition
		transition  metav1.Time // zero: now
		changed     bool
		wantMessage string
		position    int
	}{
		"new":                       {before: []metav1.Condition{other}, set: ready, changed: true, position: 1},
		"new, with a time":          {set: at(given(), ready), transition: given(), changed: true},
		"the same":                  {before: []metav1.Condition{at(earlier(), ready), other}, set: ready, transition: earlier()},
		"the same, at another time": {before: []metav1.Condition{at(earlier(), ready)}, set: at(given(), ready), transition: earlier()},
		"another message": {
			before: []metav1.Condition{at(earlier(), status.True("Ready", 1, "Deployed", "old")), other}, set: ready,
			transition: earlier(), changed: true,
		},
		"another generation": {
			before: []metav1.Condition{at(earlier(), status.True("Ready", 7, "Deployed", "all is up"))}, set: ready,
			transition: earlier(), changed: true,
		},
		"another status": {
			before: []metav1.Condition{at(earlier(), status.False("Ready", 1, "Deploying", "")), other}, set: ready, changed: true,
		},
		"another status, with a time": {
			before: []metav1.Condition{other, at(earlier(), metav1.Condition{Type: "Ready", Status: metav1.ConditionUnknown, ObservedGeneration: 1, Reason: "Deploying"})}, set: at(given(), ready),
			transition: given(), changed: true, position: 1,
		},
		"the same, and no time is known": {before: []metav1.Condition{ready}, set: ready, changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(1500 * time.Millisecond)
				conditions := append([]metav1.Condition(nil), test.before...)
				if changed := status.Set(&conditions, test.set); changed != test.changed {
					t.Errorf("changed is %v, want %v", changed, test.changed)
				}
				want := append([]metav1.Condition(nil), test.before...)
				if test.position == len(want) {
					want = append(want, metav1.Condition{})
				}
				want[test.position] = test.set
				want[test.position].LastTransitionTime = test.transition
				if test.transition.IsZero() {
					want[test.position].LastTransitionTime = metav1.Now().Rfc3339Copy()
				}
				if diff := cmp.Diff(want, conditions); diff != "" {
					t.Errorf("conditions (-want +got):\n%s", diff)
				}
				if status.Set(&conditions, test.set) {
					t.Error("set twice, it has changed something")
				}
			})
		})
	}
}

func TestSetCorrectsInvalidFields(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"":                         "Unknown",
		"Deployed":                 "Deployed",
		"progress_1":               "progress_1",
		"Quota:cpu,memory":         "Quota:cpu,memory",
		"no such bucket":           "NoSuchBucket",
		"404 not found":            "NotFound",
		"Waiting for: dns":         "WaitingFor:Dns",
		"ends with,:":              "EndsWith",
		"größe":                    "GrE",
		"7":                        "Unknown",
		"-":                        "Unknown",
		strings.Repeat("A", 1024):  strings.Repeat("A", 1024),
		strings.Repeat("Ab", 1024): strings.Repeat("Ab", 512),
	} {
		var conditions []metav1.Condition
		status.Set(&conditions, metav1.Condition{Type: "Ready", Reason: reason})
		if got := conditions[0].Reason; got != want {
			t.Errorf("the reason %q became %q, want %q", reason, got, want)
		}
		if got := conditions[0].Status; got != metav1.ConditionUnknown {
			t.Errorf("no status became %q", got)
		}
	}
	var conditions []metav1.Condition
	status.Set(&conditions, status.True("Ready", -1, "Deployed", strings.Repeat("ä", 20000)+"\xff"))
	got := conditions[0]
	if len(got.Message) > 32768 || len(got.Message) < 32760 || !strings.HasSuffix(got.Message, "ä...") || got.ObservedGeneration != 0 {
		t.Errorf("the message has %d bytes and ends with %q, the generation is %d", len(got.Message), got.Message[len(got.Message)-8:], got.ObservedGeneration)
	}
}

func TestEdit(t *testing.T) {
	t.Parallel()
	obj := &unstructured.Unstructured{}
	for range 2 {
		if err := status.Edit(obj, func(conditions *[]metav1.Condition) {
			status.Set(conditions, at(given(), status.True("Ready", 3, "Deployed", "")))
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "True", "observedGeneration": int64(3), "reason": "Deployed", "message": "",
		"lastTransitionTime": "2026-02-03T04:05:06Z",
	}}}}
	if diff := cmp.Diff(want, obj.Object); diff != "" {
		t.Errorf("the object (-want +got):\n%s", diff)
	}
	for _, content := range []map[string]any{{"status": "fine"}, {"status": map[string]any{"conditions": "none"}}} {
		obj := &unstructured.Unstructured{Object: content}
		if err := status.Edit(obj, func(*[]metav1.Condition) {}); err == nil {
			t.Errorf("%v was edited", content)
		}
	}
}
