package status_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
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
			status["conditions"] = append([]any{condition("Theirs", "False"), condition("", "True")}, status["conditions"].([]any)...)
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
	status.Remove(&after.Status.Conditions, "Ready")
	after.Status.Summary.First = "a" // this change requires to write the whole list
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=False =True Theirs=True", get, patch)

	for name, test := range map[string]struct {
		change func(*Shop)
		want   string
	}{
		"one of two":     {func(s *Shop) { status.Set(&s.Status.Conditions, status.True("Theirs", 1, "Mine", "")) }, `two of type "Theirs"`},
		"both":           {func(s *Shop) { status.Remove(&s.Status.Conditions, "Theirs") }, `two of type "Theirs"`},
		"without a type": {func(s *Shop) { s.Status.Conditions[1].Reason = "Mine" }, "has no type"},
	} {
		w, before := sloppy(t)
		after := before.copy()
		test.change(after)
		if changed, err := status.Commit(t.Context(), w.client, before, after); changed || err == nil || !strings.Contains(err.Error(), test.want) {
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
	obj := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{first, second}}}}
	if err := status.Edit(obj, func(c *[]metav1.Condition) { status.Set(c, status.True("Ready", 1, "Open", "")) }); err != nil {
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
	before := w.shop(t)
	after := before.copy()
	setReady(after)
	w.Edit("shops", shopKey(), "others", func(obj map[string]any) bool {
		obj["status"] = "closed"
		return true
	})
	_, err := status.Commit(t.Context(), w.client, before, after)
	if err == nil || errors.Is(err, client.ErrChanged) || apierrors.IsConflict(err) || !strings.Contains(err.Error(), "its status is a string") {
		t.Errorf("the error is %v, want one that says what the status is", err)
	}
	if got := w.Requests(); len(got) != 2 {
		t.Errorf("requests: %q", got)
	}
}
