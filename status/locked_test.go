package status_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/status"
)

// CommitLocked either writes the change before the run continues, or writes nothing.
func TestCommitLocked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*Shop)
		happens  func(*world)
		err      error // nil: the change is written
		requests []string
		want     string
	}{
		"nothing":         {change: func(*Shop) {}, want: "0 [a] Theirs=True Ready=False"},
		"a field":         {change: func(s *Shop) { s.Status.Replicas = 3 }, requests: []string{patch}, want: "3 [a] Theirs=True Ready=False"},
		"a condition":     {change: setReady, requests: []string{patch}, want: "0 [a] Theirs=True Ready=True"},
		"a first field":   {change: func(s *Shop) { s.Status.Summary.First = "a" }, requests: []string{patch}, want: "0 [a] Theirs=True Ready=False"},
		"a first of both": {change: func(s *Shop) { setReady(s); s.Status.Summary.First = "a" }, requests: []string{get, patch}, want: "0 [a] Theirs=True Ready=True"},
		"a field, stale": {
			change: func(s *Shop) { s.Status.Replicas = 3 }, happens: func(w *world) { w.say("Theirs", "False") },
			err: client.ErrChanged, requests: []string{patch}, want: "0 [a] Theirs=False Ready=False",
		},
		"a first of both, stale": {
			change: func(s *Shop) { setReady(s); s.Status.Summary.First = "a" }, happens: func(w *world) { w.say("Theirs", "False") },
			err: client.ErrChanged, requests: []string{get}, want: "0 [a] Theirs=False Ready=False",
		},
		"a condition that has moved": {
			change: setReady, happens: func(w *world) {
				w.edit(func(s map[string]any) { s["conditions"] = s["conditions"].([]any)[1:] })
			},
			err: client.ErrChanged, requests: []string{patch, get}, want: "0 [a] Ready=False",
		},
		"gone": {
			change:  setReady,
			happens: func(w *world) { w.Edit("shops", shopKey(), "others", func(map[string]any) bool { return false }) },
			err:     client.ErrGone, requests: []string{patch},
		},
		"replaced": {
			change: setReady,
			happens: func(w *world) {
				w.Edit("shops", shopKey(), "others", func(map[string]any) bool { return false })
				w.edit(func(map[string]any) {})
			},
			err: client.ErrReplaced, requests: []string{patch, get}, want: "0 []",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before, after := w.shops(t)
			test.change(after)
			if test.happens != nil {
				test.happens(w)
			}
			changed, err := status.CommitLocked(t.Context(), w.client, before, after)
			if !errors.Is(err, test.err) || test.err == nil && err != nil || changed != (test.err == nil && name != "nothing") {
				t.Errorf("changed is %v, the error %v, want %v", changed, err, test.err)
			}
			if diff := cmp.Diff(test.requests, w.Requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if test.want == "" {
				return
			}
			live := w.shop(t)
			if got := brief(live.Status); got != test.want {
				t.Errorf("the status is %s, want %s", got, test.want)
			}
			if test.err == nil && after.ResourceVersion != live.ResourceVersion || test.err != nil && after.ResourceVersion != before.ResourceVersion {
				t.Errorf("the resourceVersion is %s, it was %s, and is %s in the cluster", after.ResourceVersion, before.ResourceVersion, live.ResourceVersion)
			}
		})
	}
}

// A run takes over the response of its own write and then calls CommitLocked. Its copy is the live state, so all
// differences are changes of the run.
func TestCommitLockedAfterWriteOfRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.shop(t)
	w.edit(func(status map[string]any) { status["hosts"] = []any{"b"} })
	w.say("Ready", "Unknown")
	after := w.shop(t) // the response of a write
	after.Status.Hosts = []string{"c"}
	after.Status.Summary.First = "a"
	setReady(after)
	if changed, err := status.CommitLocked(t.Context(), w.client, before, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [c] Theirs=True Ready=True", patch, get, patch)
}

func TestCommitLockedUnchangedAfterWriteWithCondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.shop(t)
	w.say("New", "True")
	after := w.shop(t) // the response of the run's own write
	changed, err := status.CommitLocked(t.Context(), w.client, before, after)
	if changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False New=True", get)
	if live := w.shop(t); after.ResourceVersion != live.ResourceVersion {
		t.Errorf("the resourceVersion is %s, and %s in the cluster", after.ResourceVersion, live.ResourceVersion)
	}
}
