package status_test

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/status"
)

// begin writes a status to a Shop, with a condition that has a field unknown to the Go type.
func (e env) begin(name string) *Shop {
	e.Helper()
	shop := e.create(name)
	const first = `{"status": {"conditions": [{"type": "Theirs", "status": "True", "reason": "Why", "message": "",
		"lastTransitionTime": "2026-01-02T03:04:05.678Z", "severity": "Info"}]}}`
	shop, err := client.Patch(e.Context(), e.Client, shop, client.RawPatch(types.MergePatchType, []byte(first)), client.Subresource("status"))
	if err != nil {
		e.Fatal(err)
	}
	return shop
}

// The API server accepts every patch of Commit, and fields that are unknown to the Go type stay.
func TestCommitKeepsUnknownFields(t *testing.T) {
	e := newEnv(t)
	for name, test := range map[string]struct {
		change func(*Shop)
		calls  []string
	}{
		"new-condition": {
			func(s *Shop) { status.SetReady(&s.Status.Conditions, 1, "Open", "") },
			[]string{"patch shops/status"},
		},
		"condition-of-theirs": {
			func(s *Shop) { status.Set(&s.Status.Conditions, status.False("Theirs", 0, "Why", "")) },
			[]string{"patch shops/status"},
		},
		"first-object-and-condition": {
			func(s *Shop) { status.SetReady(&s.Status.Conditions, 1, "Open", ""); s.round("a", 1) },
			[]string{"get shops", "patch shops/status"},
		},
	} {
		before := e.begin(name)
		observer := newCalls()
		ctx := kube.ObserveCalls(t.Context(), observer)
		after := before.copy()
		test.change(after)
		if changed, err := status.Commit(ctx, e.Client, before, after); !changed || err != nil {
			t.Errorf("%s: changed is %v, the error %v", name, changed, err)
		}
		if got := observer.Take(); !slices.Equal(got, test.calls) {
			t.Errorf("%s: calls %q, want %q", name, got, test.calls)
		}
		live, err := client.Get[*unstructured.Unstructured](t.Context(), e.Client, kube.KeyOf(before), client.OfKind(gv().WithKind("Shop")))
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := unstructured.NestedSlice(live.Object, "status", "conditions")
		if err != nil || list[0].(map[string]any)["severity"] != "Info" || len(list) != len(after.Status.Conditions) {
			t.Errorf("%s: the error is %v, the conditions are %v", name, err, list)
		}
		if got := e.live(name); got.Status.Conditions[0].Status != after.Status.Conditions[0].Status || got.Status.Rounds["a"] != after.Status.Rounds["a"] {
			t.Errorf("%s: the status is %+v", name, got.Status)
		}
		// The patch can test the exact list, although Go would format its time differently.
		stale := e.live(name)
		if _, _, err := client.EditMetadata(t.Context(), e.Client, stale, func(labels, _ map[string]string) { labels["a"] = "b" }); err != nil {
			t.Fatal(err)
		}
		after = stale.copy()
		status.Set(&after.Status.Conditions, status.True("Newest", 1, "New", ""))
		if changed, err := status.Commit(ctx, e.Client, stale, after); !changed || err != nil || !meta.IsStatusConditionTrue(e.live(name).Status.Conditions, "Newest") {
			t.Errorf("%s: changed is %v, the error %v", name, changed, err)
		}
		if got, want := observer.Take(), []string{"patch shops/status", "get shops", "patch shops/status"}; !slices.Equal(got, want) {
			t.Errorf("%s: calls %q, want %q", name, got, want)
		}
	}
}

func TestCommitLockedOnServer(t *testing.T) {
	e := newEnv(t)
	before := e.begin("books")
	note := func(before *Shop, change func(*Shop)) (*Shop, bool, error) {
		after := before.copy()
		change(after)
		changed, err := status.CommitLocked(t.Context(), e.Client, before, after)
		return after, changed, err
	}
	noted, changed, err := note(before, func(s *Shop) { s.Status.ObservedGeneration = 7 })
	if live := e.live("books"); !changed || err != nil || live.Status.ObservedGeneration != 7 || live.ResourceVersion != noted.ResourceVersion {
		t.Errorf("changed is %v, the error %v; the Shop is %+v, and live %+v", changed, err, noted, live)
	}
	// The run continues with the returned state.
	after := noted.copy()
	status.Set(&after.Status.Conditions, status.True("Ready", 1, "Open", ""))
	if changed, err := status.CommitLocked(t.Context(), e.Client, noted, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	for name, change := range map[string]func(*Shop){
		"a field":     func(s *Shop) { s.Status.ObservedGeneration = 8 },
		"a condition": func(s *Shop) { s.Status.Conditions[0].Reason = "Because" },
		"no list":     func(s *Shop) { s.Status.Conditions = nil },
		"both":        func(s *Shop) { s.Status.Conditions[0].Reason = "Because"; s.round("a", 1) },
	} {
		if stale, changed, err := note(before, change); changed || !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) || stale.ResourceVersion != before.ResourceVersion {
			t.Errorf("%s of a stale copy: changed is %v, the error %v", name, changed, err)
		}
	}
	live := e.live("books")
	if live.Status.ObservedGeneration != 7 || len(live.Status.Conditions) != 2 || live.ResourceVersion != after.ResourceVersion {
		t.Errorf("the Shop is %+v, want %+v", live, after)
	}
	if err := client.Delete(t.Context(), e.Client, live); err != nil {
		t.Fatal(err)
	}
	change := func(s *Shop) { s.Status.Conditions = []metav1.Condition{}; s.Status.ObservedGeneration = 9 }
	if _, _, err := note(live, change); !errors.Is(err, client.ErrGone) {
		t.Errorf("gone: the error is %v", err)
	}
	e.begin("books")
	if _, _, err := note(live, change); !errors.Is(err, client.ErrReplaced) {
		t.Errorf("replaced: the error is %v", err)
	}
}

// The run writes the object, continues with the returned object, and then removes conditions that the returned object
// still had.
func TestCommitRemovesConditionsAfterWriteOfRun(t *testing.T) {
	e := newEnv(t)
	before := e.begin("books")
	ready := before.copy()
	status.SetReconciling(&ready.Status.Conditions, 7, "Opening", "")
	if _, err := status.Commit(t.Context(), e.Client, before, ready); err != nil {
		t.Fatal(err)
	}
	before = e.live("books")
	after, _, err := client.EditMetadata(t.Context(), e.Client, before, func(labels, _ map[string]string) { labels["a"] = "b" })
	if err != nil {
		t.Fatal(err)
	}
	after = after.copy()
	status.SetReady(&after.Status.Conditions, 0, "Open", "") // this removes Reconciling, and sets no generation
	observer := newCalls()
	changed, err := status.Commit(kube.ObserveCalls(t.Context(), observer), e.Client, before, after)
	if got, want := observer.Take(), []string{"get shops", "patch shops/status"}; !changed || err != nil || !slices.Equal(got, want) {
		t.Errorf("changed is %v, the error %v, the calls are %q", changed, err, got)
	}
	live := e.live("books")
	if got := cmp.Or(meta.FindStatusCondition(live.Status.Conditions, "Ready"), &metav1.Condition{}); len(live.Status.Conditions) != 2 || got.Status != metav1.ConditionTrue || got.ObservedGeneration != 0 {
		t.Errorf("the status is %+v", live.Status)
	}
}
