package status_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/status"
)

// A run has written to the object and then removed conditions: the taken-over state does not contain them, but the
// cluster does.
func TestCommitRemovesConditionsAfterWriteOfRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Shop)
		want   string
	}{
		"the last one":   {func(s *Shop) { meta.RemoveStatusCondition(&s.Status.Conditions, "Ready") }, "0 [a] Theirs=True"},
		"all":            {func(s *Shop) { s.Status.Conditions = nil }, "0 [a]"},
		"beside another": {func(s *Shop) { meta.RemoveStatusCondition(&s.Status.Conditions, "Ready"); s.Status.Replicas = 2 }, "2 [a] Theirs=True"},
	} {
		for commits, commit := range map[string]func(*testing.T, *world, *Shop, *Shop) (bool, error){
			"Commit": func(t *testing.T, w *world, before, after *Shop) (bool, error) {
				t.Helper()
				return status.Commit(t.Context(), w.client, before, after)
			},
			"CommitLocked": func(t *testing.T, w *world, before, after *Shop) (bool, error) {
				t.Helper()
				return status.CommitLocked(t.Context(), w.client, before, after)
			},
		} {
			t.Run(commits+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				before := w.shop(t)
				w.label("own", "write")
				after := w.shop(t) // the response of a write
				test.change(after)
				if changed, err := commit(t, w, before, after); !changed || err != nil {
					t.Errorf("changed is %v, the error %v", changed, err)
				}
				w.expect(t, test.want, get, patch)
			})
		}
	}
}

// A taken-over state is the live state, so it contains no later changes of other clients.
func TestCommitRemovesConditionFromTakenOverState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.shop(t)
	w.say("Ready", "Unknown")
	after := w.shop(t)
	meta.RemoveStatusCondition(&after.Status.Conditions, "Ready")
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=True", get, patch)

	// A later change of another client is a conflict.
	before = w.shop(t)
	w.say("Theirs", "Unknown")
	after = w.shop(t)
	meta.RemoveStatusCondition(&after.Status.Conditions, "Theirs")
	w.say("Theirs", "False")
	if _, err := status.Commit(t.Context(), w.client, before, after); !errors.Is(err, client.ErrChanged) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	w.expect(t, "0 [a] Theirs=False", get)
}

// The same for a field of a condition.
func TestCommitRemovesConditionFieldAfterWriteOfRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.edit(func(status map[string]any) {
		status["conditions"].([]any)[1].(map[string]any)["observedGeneration"] = int64(7)
	})
	before := w.shop(t)
	w.label("own", "write")
	after := w.shop(t)
	after.Status.Conditions[1].ObservedGeneration = 0
	commit(t, w, before, after)
	if got := w.shop(t).Status.Conditions[1].ObservedGeneration; got != 0 {
		t.Errorf("the observedGeneration is %d", got)
	}
}

// After a commit during the run, an unstructured object contains what the run has set, not what the API server made
// of it: for example a field that was pruned. So its list differs from the cluster without a write of another client.
func TestCommitWithPrunedField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.unstructured(t)
	before.Object["status"].(map[string]any)["conditions"].([]any)[1].(map[string]any)["pruned"] = "long ago"
	after := before.DeepCopy()
	if err := status.Edit(after, func(c *[]metav1.Condition) { status.Set(c, status.True("New", 1, "New", "")) }); err != nil {
		t.Fatal(err)
	}
	if changed, err := status.Commit(t.Context(), w.client, before, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False New=True", patch, get, patch)
}

// Another client, or an earlier run with a lost response, has already set the same status: the transition time stays.
func TestCommitKeepsTransitionTimeAfterLostResponse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	status.Set(&after.Status.Conditions, status.True("New", 1, "New", ""))
	lost := true
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		response := do()
		if lost && req.Method == http.MethodPatch {
			lost = false
			_ = response.Body.Close()
			return nil, errors.New("the answer was lost")
		}
		return response, nil
	})
	if _, err := status.Commit(t.Context(), w.client, before, after); err == nil {
		t.Fatal("no answer was lost")
	}
	w.expect(t, "0 [a] Theirs=True Ready=False New=True", patch)
	// The next run starts a minute later with an outdated cache.
	second := before.copy()
	status.Set(&second.Status.Conditions, status.True("New", 1, "New", ""))
	since := second.Status.Conditions[2].LastTransitionTime
	second.Status.Conditions[2].LastTransitionTime = metav1.NewTime(since.Add(time.Minute))
	if changed, err := status.Commit(t.Context(), w.client, before, second); changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False New=True", patch, get)
}
