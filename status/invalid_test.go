package status_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/status"
)

// A list with one untyped entry is still a list of conditions, and is not written as a whole.
func TestCommitWithUntypedEntryInList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.edit(func(status map[string]any) {
		status["conditions"] = append(status["conditions"].([]any), map[string]any{"note": "no type"})
	})
	before := w.unstructured(t)
	after := before.DeepCopy()
	after.Object["status"].(map[string]any)["conditions"].([]any)[1].(map[string]any)["status"] = "True"
	w.say("Theirs", "False")
	if changed, err := status.Commit(t.Context(), w.client, before, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=False Ready=True =", patch)
}

// Other clients have written two conditions of one type, and one without a type. As long as these do not change,
// Commit writes the others.
func TestCommitWithInvalidConditionsOfOtherClients(t *testing.T) {
	t.Parallel()
	sloppy := func(t *testing.T) (*world, *Shop) {
		t.Helper()
		w := newWorld(t)
		w.edit(func(status map[string]any) {
			status["conditions"] = append([]any{condition("Theirs", "False"), condition("", "True")},
				status["conditions"].([]any)...)
		})
		return w, w.shop(t)
	}
	w, before := sloppy(t)
	after := before.copy()
	setReady(after)
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=False =True Theirs=True Ready=True", patch)

	w, before = sloppy(t)
	after = before.copy()
	meta.RemoveStatusCondition(&after.Status.Conditions, "Ready")
	after.Status.Summary.First = "a" // this change requires to write the whole list
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=False =True Theirs=True", get, patch)

	for name, test := range map[string]struct {
		change func(*Shop)
		want   string
	}{
		"one of two": {
			func(s *Shop) { status.Set(&s.Status.Conditions, status.True("Theirs", 1, "Mine", "")) },
			`two of type "Theirs"`,
		},
		"both":           {func(s *Shop) { meta.RemoveStatusCondition(&s.Status.Conditions, "Theirs") }, `two of type "Theirs"`},
		"without a type": {func(s *Shop) { s.Status.Conditions[1].Reason = "Mine" }, "has no type"},
	} {
		w, before := sloppy(t)
		after := before.copy()
		test.change(after)
		if changed, err := status.Commit(t.Context(), w.client, before, after); changed || err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: changed is %v, the error %v, want one that says %s", name, changed, err, test.want)
		}
		w.expect(t, "0 [a] Theirs=False =True Theirs=True Ready=False")
	}
}

// Edit does not change other entries, even if two have the same type.
func TestEditKeepsDuplicateConditions(t *testing.T) {
	t.Parallel()
	first, second := condition("Theirs", "False"), condition("Theirs", "True")
	first["severity"] = "Info"
	obj := &unstructured.Unstructured{
		Object: map[string]any{"status": map[string]any{"conditions": []any{first, second}}},
	}
	if err := status.Edit(obj, func(c *[]metav1.Condition) {
		status.Set(c, status.True("Ready", 1, "Open", ""))
	}); err != nil {
		t.Fatal(err)
	}
	list, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if err != nil || len(list) != 3 {
		t.Fatalf("the conditions are %v, the error is %v", list, err)
	}
	if diff := cmp.Diff([]any{any(first), any(second)}, list[:2]); diff != "" {
		t.Errorf("the conditions of others (-want +got):\n%s", diff)
	}
}

// A status that is null counts as missing.
func TestEditNullStatus(t *testing.T) {
	t.Parallel()
	obj := &unstructured.Unstructured{Object: map[string]any{"status": nil}}
	if err := status.Edit(obj, func(c *[]metav1.Condition) { status.SetReady(c, 1, "Open", "") }); err != nil {
		t.Fatal(err)
	}
	if list, _, err := unstructured.NestedSlice(obj.Object, "status", "conditions"); err != nil || len(list) != 1 {
		t.Errorf("the conditions are %v, the error is %v", list, err)
	}
}

// No patch is possible for a live status that is not an object. That is not a conflict, which would be retried
// forever.
func TestCommitToStatusThatIsNotAnObject(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	setReady(after)
	w.Edit("shops", shopKey(), "others", func(obj map[string]any) bool {
		obj["status"] = "closed"
		return true
	})
	_, err := status.Commit(t.Context(), w.client, before, after)
	if err == nil || errors.Is(err, client.ErrChanged) || apierrors.IsConflict(err) ||
		!strings.Contains(err.Error(), "its status is a string") {
		t.Errorf("the error is %v, want one that says what the status is", err)
	}
	if got := w.Requests(); len(got) != 2 {
		t.Errorf("requests: %q", got)
	}
}

// The API server rejects the whole status if one condition is invalid. Handlers may set conditions without package
// status.
func TestCommitCorrectsInvalidConditions(t *testing.T) {
	t.Parallel()
	valid := metav1.Condition{Type: "Ready", Status: "True", Reason: "Open", LastTransitionTime: metav1.Unix(1e9, 0)}
	for name, test := range map[string]struct {
		change func(*metav1.Condition)
		want   func(*metav1.Condition)
		err    string // of a condition that is not written
	}{
		"valid": {
			func(c *metav1.Condition) { c.Type = "example.com/Ready_2.0-x" },
			func(c *metav1.Condition) { c.Type = "example.com/Ready_2.0-x" }, "",
		},
		"long message": {
			func(c *metav1.Condition) { c.Message = strings.Repeat("é", 23500) },
			func(c *metav1.Condition) { c.Message = strings.Repeat("é", 16382) + "..." }, "",
		},
		"words as a reason": {func(c *metav1.Condition) { c.Reason = "no such bucket" }, func(c *metav1.Condition) {
			c.Reason = "NoSuchBucket"
		}, ""},
		"no reason": {func(c *metav1.Condition) { c.Reason = "" }, func(c *metav1.Condition) {
			c.Reason = "Unknown"
		}, ""},
		"no status": {func(c *metav1.Condition) { c.Status = "" }, func(c *metav1.Condition) {
			c.Status = "Unknown"
		}, ""},
		"negative": {func(c *metav1.Condition) { c.ObservedGeneration = -1 }, func(*metav1.Condition) {}, ""},
		"no type": {func(c *metav1.Condition) { c.Type = "" }, nil, "status.conditions[2] was not written: " +
			"it has no type"},
		"type occurs twice": {func(c *metav1.Condition) { c.Type = "Theirs" }, nil, `there are two of type "Theirs"`},
		"invalid type": {
			func(c *metav1.Condition) { c.Type = "is ready " + strings.Repeat("x", 1e5) }, nil,
			`its type "is ready xxx`,
		},
		"long type": {
			func(c *metav1.Condition) { c.Type = strings.Repeat("x", 317) }, nil,
			"is not a qualified name",
		},
		"invalid domain": {
			func(c *metav1.Condition) { c.Type = "Example/Ready" }, nil,
			`its type "Example/Ready" is not a qualified name`,
		},
		"invalid status": {
			func(c *metav1.Condition) { c.Status = "Yes" }, nil,
			`Ready: its status "Yes" is not True, False or Unknown`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.edit(func(status map[string]any) {
				status["conditions"] = []any{condition("Theirs", "True"), condition("Other", "True")}
			})
			before, after := w.shops(t)
			changed := valid
			test.change(&changed)
			after.Status.Conditions = append(after.Status.Conditions, changed)
			after.Status.Replicas = 3
			written, err := status.Commit(t.Context(), w.client, before, after)
			if !written || (err == nil) != (test.err == "") || err != nil &&
				(!strings.Contains(err.Error(), test.err) || len(err.Error()) > 500 || !retryrules.Persistent(err)) {
				t.Errorf("written: %v, error: %.600v", written, err)
			}
			want := before.Status.Conditions
			if test.want != nil {
				c := valid
				test.want(&c)
				want = append(want, c)
			}
			live := w.shop(t)
			if diff := cmp.Diff(want, live.Status.Conditions); diff != "" || live.Status.Replicas != 3 {
				t.Errorf("%d replicas, conditions (-want +got):\n%s", live.Status.Replicas, diff)
			}
			// The next run sets the same, and writes nothing.
			again := live.copy()
			again.Status.Conditions = append(again.Status.Conditions[:2], changed)
			if written, _ := status.Commit(t.Context(), w.client, live, again); written {
				t.Error("the second commit has written")
			}
		})
	}
}

// A condition without a time keeps that of its last status.
func TestCommitSetsMissingTransitionTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	after.Status.Conditions = []metav1.Condition{
		{Type: "Theirs", Status: "True", Reason: "New"}, {Type: "Ready", Status: "True", Reason: "New"},
	}
	if _, err := status.Commit(t.Context(), w.client, before, after); err != nil {
		t.Fatal(err)
	}
	live := w.shop(t).Status.Conditions
	if kept := before.Status.Conditions[0].LastTransitionTime; !live[0].LastTransitionTime.Equal(&kept) ||
		!live[1].LastTransitionTime.After(kept.Time) {
		t.Errorf("the conditions are %v", live)
	}
}

// The conditions of an unstructured object may have other limits, except for the length of texts.
func TestCommitCorrectsTextsOfUnstructuredConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.unstructured(t)
	after := before.DeepCopy()
	after.Object["status"].(map[string]any)["conditions"] = []any{
		map[string]any{"type": "Theirs", "status": "Maybe"},
		map[string]any{"type": "Backup (daily)", "status": "True"},
		map[string]any{"type": "Ready", "status": "True", "reason": "so it is", "message": strings.Repeat("x", 47_000)},
	}
	if _, err := status.Commit(t.Context(), w.client, before, after); err != nil {
		t.Fatal(err)
	}
	list, _, _ := unstructured.NestedSlice(w.unstructured(t).Object, "status", "conditions")
	if diff := cmp.Diff([]any{
		map[string]any{"type": "Theirs", "status": "Maybe"},
		map[string]any{"type": "Ready", "status": "True", "reason": "SoItIs", "message": strings.Repeat("x", 32765) +
			"..."},
		map[string]any{"type": "Backup (daily)", "status": "True"},
	}, list); diff != "" {
		t.Errorf("the conditions (-want +got):\n%.2000s", diff)
	}
}
