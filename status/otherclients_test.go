package status_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/status"
)

// A webhook rejects the patch with the status code of a failed test and without causes. No other client has written, so
// the error is not a conflict, and a retry is useless.
func TestCommitRejectedByWebhook(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stale    bool
		change   func(*Shop)
		requests []string
	}{
		"of the live state": {false, setReady, []string{patch, get, patch, get}},
		"of a stale state":  {true, setReady, []string{patch, get, patch, get}},
		"of a first field":  {false, func(s *Shop) { s.Status.Summary.First = "a" }, []string{patch, get, patch, get}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before, after := w.shops(t)
			test.change(after)
			if test.stale {
				w.say("Theirs", "False")
			}
			w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
				if req.Method == http.MethodGet {
					return do(), nil
				}
				return apitest.Failure(apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "admission webhook denied the request: closed on Sundays", 0, false)), nil
			})
			_, err := status.Commit(t.Context(), w.client, before, after)
			if !apierrors.IsInvalid(err) || errors.Is(err, client.ErrChanged) || retry.Classify(err) == retry.Conflict {
				t.Errorf("the error is %v, want what the webhook says", err)
			}
			if diff := cmp.Diff(test.requests, w.Requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
		})
	}
}

// A field that came with the response of the run's own write has changed again. The run has not set it, so Commit must
// not write it.
func TestCommitDoesNotRestoreFieldsRemovedByOtherClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.shop(t)
	w.edit(func(status map[string]any) { status["hosts"] = []any{"b"} })
	after := w.shop(t) // the response of a write
	after.Status.Replicas = 3
	w.edit(func(status map[string]any) { status["hosts"] = []any{"c"} })
	_, err := status.Commit(t.Context(), w.client, before, after)
	if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	w.expect(t, "0 [c] Theirs=True Ready=False", patch, get)

	// Fields that have not changed again do not prevent the commit, nor do zeros of missing fields.
	w.edit(func(status map[string]any) { delete(status, "replicas") })
	before = w.shop(t)
	w.edit(func(status map[string]any) { status["hosts"] = []any{"d"} })
	after = w.shop(t)
	after.Status.Replicas = 4
	after.Status.Summary.First = "a"
	w.say("Theirs", "False")
	w.edit(func(status map[string]any) { status["summary"] = map[string]any{"second": "b"} })
	commit(t, w, before, after)
	w.expect(t, "4 [d] Theirs=False Ready=False", patch, get, patch)
	if got := w.shop(t).Status.Summary; got.First != "a" || got.Second != "b" {
		t.Errorf("the summary is %v", got)
	}
}

// Conditions have fields that the Go type lacks: a later version of the type or another program has added them. They
// stay in the run's own condition and in those of other clients, with every type of patch.
func TestCommitKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*Shop)
		happens  func(*world) // a change by another client during the run
		takeOver bool
		requests []string
	}{
		"own condition": {change: setReady, requests: []string{patch}},
		"new condition": {
			change:   func(s *Shop) { status.Set(&s.Status.Conditions, status.True("New", 1, "New", "")) },
			requests: []string{patch},
		},
		"a condition, and a first field": {
			change:   func(s *Shop) { setReady(s); s.Status.Summary.First = "a" },
			requests: []string{get, patch},
		},
		"after other writes": {
			change:   func(s *Shop) { setReady(s); s.Status.Summary.First = "a" },
			happens:  func(w *world) { w.say("Other", "True") },
			requests: []string{get, patch},
		},
		"the list has moved": {
			change: setReady,
			happens: func(w *world) {
				w.edit(func(s map[string]any) {
					s["conditions"] = append([]any{condition("First", "True")}, s["conditions"].([]any)...)
				})
			},
			requests: []string{patch, get, patch},
		},
		"taken over": {
			change: setReady, takeOver: true,
			happens:  func(w *world) { w.say("Theirs", "False") },
			requests: []string{patch},
		},
		"taken over, new": {
			change: func(s *Shop) { status.Set(&s.Status.Conditions, status.True("New", 1, "New", "")) }, takeOver: true,
			happens:  func(w *world) { w.say("Other", "True") },
			requests: []string{get, patch},
		},
		"taken over, and a first field": {
			change: func(s *Shop) { setReady(s); s.Status.Summary.First = "a" }, takeOver: true,
			happens:  func(w *world) { w.say("Theirs", "False") },
			requests: []string{patch, get, patch},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.edit(func(status map[string]any) {
				for _, entry := range status["conditions"].([]any) {
					entry.(map[string]any)["severity"] = "Info"
				}
			})
			before, after := w.shops(t)
			if test.happens != nil {
				test.happens(w)
			}
			if test.takeOver {
				after = w.shop(t)
			}
			test.change(after)
			w.Requests()
			changed, err := status.Commit(t.Context(), w.client, before, after)
			if !changed || err != nil {
				t.Errorf("changed is %v, the error %v", changed, err)
			}
			if diff := cmp.Diff(test.requests, w.Requests()); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			live := w.shop(t)
			for _, changes := range after.Status.Conditions {
				if got := meta.FindStatusCondition(live.Status.Conditions, changes.Type); got == nil || got.Status != changes.Status || got.Reason != changes.Reason {
					t.Errorf("the condition is %+v, want %+v", got, changes)
				}
			}
			for _, entry := range w.Object("shops", shopKey()).Object["status"].(map[string]any)["conditions"].([]any) {
				entry := entry.(map[string]any)
				if name := entry["type"]; (name == "Theirs" || name == "Ready") && entry["severity"] != "Info" {
					t.Errorf("the entry %v has lost its severity", entry)
				}
			}
			// No other difference is left.
			if changed, err := status.Commit(t.Context(), w.client, live, live.copy()); changed || err != nil {
				t.Errorf("changed is %v, the error %v", changed, err)
			}
		})
	}
}

// A merge patch cannot distinguish null from a missing field: removing a null is not a change.
func TestCommitRemovesNull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.unstructured(t)
	before.Object["status"].(map[string]any)["summary"] = map[string]any{"first": nil}
	after := before.DeepCopy()
	unstructured.RemoveNestedField(after.Object, "status", "summary", "first")
	if changed, err := status.Commit(t.Context(), w.client, before, after); changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False")
}

// Kiosk has a field named Status that is not encoded as status.
type Kiosk struct {
	Shop
	Status string     `json:"state"`
	Truth  ShopStatus `json:"status"`
}

func TestCommitIgnoresOtherFieldNamedStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	encoded, err := json.Marshal(w.shop(t))
	if err != nil {
		t.Fatal(err)
	}
	before, after := &Kiosk{}, &Kiosk{}
	for _, kiosk := range []*Kiosk{before, after} {
		if err := json.Unmarshal(encoded, kiosk); err != nil {
			t.Fatal(err)
		}
		kiosk.SetGroupVersionKind(shopVersion().WithKind("Shop"))
	}
	after.Truth.Replicas = 3
	if changed, err := status.Commit(t.Context(), w.client, before, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "3 [a] Theirs=True Ready=False", patch)
}

// Another client changes the object before each patch, but not the conditions: a new condition is still added.
func TestCommitAddsConditionDuringOtherWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	beat := 0
	w.disturb = func() {
		beat++
		w.Edit("shops", shopKey(), "others", func(obj map[string]any) bool {
			obj["metadata"].(map[string]any)["labels"] = map[string]any{"beat": fmt.Sprint(beat)}
			return true
		})
	}
	before, after := w.shops(t)
	status.Set(&after.Status.Conditions, status.True("New", 1, "New", ""))
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=True Ready=False New=True", patch, get, patch)

	// For an unstructured object, the commit uses the complete live state.
	u := w.unstructured(t)
	edited := u.DeepCopy()
	if err := status.Edit(edited, func(c *[]metav1.Condition) { status.Set(c, status.True("Newer", 1, "New", "")) }); err != nil {
		t.Fatal(err)
	}
	if changed, err := status.Commit(t.Context(), w.client, u, edited); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False New=True Newer=True", patch)
}

// Edit must not change conditions that the callback has not changed, as they are in the list. Otherwise a commit would
// overwrite conditions of other clients with outdated values.
func TestEditKeepsOtherConditions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.edit(func(status map[string]any) {
		for _, entry := range status["conditions"].([]any) {
			maps.Copy(entry.(map[string]any), map[string]any{
				"lastTransitionTime": "2026-01-02T03:04:05.678Z", "severity": "Info", "observedGeneration": int64(1),
			})
		}
	})
	u := w.unstructured(t)
	edited := u.DeepCopy()
	if err := status.Edit(edited, func(c *[]metav1.Condition) {
		status.Set(c, status.True("Ready", 0, "Deployed", ""))
		status.Set(c, status.True("New", 1, "New", ""))
	}); err != nil {
		t.Fatal(err)
	}
	w.say("Theirs", "False") // after the run has read the object
	if changed, err := status.Commit(t.Context(), w.client, u, edited); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=False Ready=True New=True", patch, get, patch)
	list := w.Object("shops", shopKey()).Object["status"].(map[string]any)["conditions"].([]any)
	ready := list[1].(map[string]any)
	if _, observed := ready["observedGeneration"]; observed || ready["severity"] != "Info" || list[0].(map[string]any)["severity"] != "Info" {
		t.Errorf("the conditions are %v", list)
	}
	// An edit without changes does not change the object.
	same := u.DeepCopy()
	if err := status.Edit(same, func(c *[]metav1.Condition) { status.Set(c, status.False("Ready", 1, "Why", "")) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(u.Object, same.Object); diff != "" {
		t.Errorf("the object (-want +got):\n%s", diff)
	}
}

// Another replica adds the same condition at the same time: it must exist only once.
func TestCommitAddsConditionOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shop(t), w.shop(t)
	status.Set(&after.Status.Conditions, status.True("New", 1, "New", ""))
	w.disturb = func() { w.say("New", "False") }
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=True Ready=False New=True", patch, get, patch)

	w.disturb = func() { w.say("Newer", "False") }
	u := w.unstructured(t) // its whole list is known
	edited := u.DeepCopy()
	if err := status.Edit(edited, func(c *[]metav1.Condition) { status.Set(c, status.True("Newer", 1, "New", "")) }); err != nil {
		t.Fatal(err)
	}
	if changed, err := status.Commit(t.Context(), w.client, u, edited); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False New=True Newer=True", patch, get, patch)
}
