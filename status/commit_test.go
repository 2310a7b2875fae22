package status_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/retry"
	"github.com/evenkeel-go/evenkeel/status"
)

const (
	get   = "GET /apis/shop.example.com/v1/namespaces/town/shops/books"
	patch = "PATCH /apis/shop.example.com/v1/namespaces/town/shops/books/status"
)

// setReady makes the status changes of the runs in these tests.
func setReady(shop *Shop) {
	status.Set(&shop.Status.Conditions, at(given(), status.True("Ready", 1, "Deployed", "")))
}

func TestCommitWithoutDifferencesMakesNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	after.Spec.Replicas = 7 // not part of the status
	after.Labels = map[string]string{"a": "b"}
	slices.Reverse(after.Status.Conditions)
	for range 2 {
		changed, err := status.Commit(t.Context(), w.client, before, after)
		if changed || err != nil {
			t.Errorf("changed is %v, the error %v", changed, err)
		}
		after.Status = before.copy().Status
	}
	u := w.unstructured(t)
	same := u.DeepCopy()
	same.Object["status"].(map[string]any)["replicas"] = 0 // an int; decoded JSON has int64
	if changed, err := status.Commit(t.Context(), w.client, u, same); changed || err != nil {
		t.Errorf("unstructured: changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False")
}

func TestCommitWritesDifferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	op := func(op, path string, value any) any {
		return map[string]any{"op": op, "path": path, "value": value}
	}
	var before *Shop
	for _, step := range []struct {
		name   string
		change func(*Shop)
		patch  func() any
		status string
	}{
		{
			"fields", func(s *Shop) { s.Status.Replicas, s.Status.Hosts = 2, nil },
			func() any {
				return []any{op("test", "/metadata/uid", string(before.UID)), op("remove", "/status/hosts", nil), op("add", "/status/replicas", float64(2))}
			},
			"2 [] Theirs=True Ready=False",
		},
		{
			"a condition", setReady,
			func() any {
				return []any{
					op("test", "/metadata/uid", string(before.UID)), op("test", "/status/conditions/1/type", "Ready"),
					op("test", "/status/conditions/1/observedGeneration", nil), op("test", "/status/conditions/1/status", "False"),
					op("add", "/status/conditions/1/lastTransitionTime", "2026-02-03T04:05:06Z"), op("add", "/status/conditions/1/message", ""),
					op("add", "/status/conditions/1/observedGeneration", float64(1)), op("add", "/status/conditions/1/reason", "Deployed"),
					op("add", "/status/conditions/1/status", "True"),
				}
			},
			"2 [] Theirs=True Ready=True",
		},
		{
			"a new condition", func(s *Shop) {
				status.Set(&s.Status.Conditions, at(given(), status.False("New", 0, "New", "")))
				s.Status.Replicas = 3
			},
			func() any {
				added := map[string]any{"lastTransitionTime": "2026-02-03T04:05:06Z", "message": "", "reason": "New", "status": "False", "type": "New"}
				return []any{
					op("replace", "/metadata/resourceVersion", before.ResourceVersion), op("test", "/metadata/uid", string(before.UID)),
					op("add", "/status/replicas", float64(3)), op("add", "/status/conditions/-", added),
				}
			},
			"3 [] Theirs=True Ready=True New=False",
		},
		{
			"conditions removed", func(s *Shop) {
				meta.RemoveStatusCondition(&s.Status.Conditions, "New")
				meta.RemoveStatusCondition(&s.Status.Conditions, "Theirs")
			},
			func() any {
				return []any{
					op("test", "/metadata/uid", string(before.UID)),
					op("test", "/status/conditions/0/type", "Theirs"),
					op("test", "/status/conditions/0/observedGeneration", nil), op("test", "/status/conditions/0/status", "True"),
					op("test", "/status/conditions/2/type", "New"),
					op("test", "/status/conditions/2/observedGeneration", nil), op("test", "/status/conditions/2/status", "False"),
					op("remove", "/status/conditions/2", nil), op("remove", "/status/conditions/0", nil),
				}
			},
			"3 [] Ready=True",
		},
		{
			"the first of an object", func(s *Shop) { s.Status.Conditions = nil; s.Status.Summary.First = "a" },
			func() any {
				return map[string]any{
					"metadata": map[string]any{"uid": string(before.UID), "resourceVersion": before.ResourceVersion},
					"status":   map[string]any{"conditions": nil, "summary": map[string]any{"first": "a"}},
				}
			},
			"3 []",
		},
		{
			"within an object", func(s *Shop) { s.Status.Summary.Second = "b/c" },
			func() any {
				return []any{op("test", "/metadata/uid", string(before.UID)), op("add", "/status/summary/second", "b/c")}
			},
			"3 []",
		},
	} {
		before = w.shop(t)
		after := before.copy()
		step.change(after)
		commit(t, w, before, after)
		if diff := cmp.Diff(step.patch(), w.lastSent(t)); diff != "" {
			t.Errorf("%s: the patch (-want +got):\n%s", step.name, diff)
		}
		w.expect(t, step.status, patch)
	}

	u := w.unstructured(t)
	edited := u.DeepCopy()
	edited.Object["status"].(map[string]any)["conditions"] = []map[string]any{condition("Ready", "True")} // not the types of decoded JSON
	if changed, err := status.Commit(t.Context(), w.client, u, edited); !changed || err != nil {
		t.Errorf("unstructured: changed is %v, the error %v", changed, err)
	}
	w.expect(t, "3 [] Ready=True", patch)
}

func commit(t *testing.T, w *world, before, after *Shop) {
	t.Helper()
	seen := after.copy()
	if changed, err := status.Commit(t.Context(), w.client, before, after); !changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	if diff := cmp.Diff(seen, after, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the caller's object was changed (-before +after):\n%s", diff)
	}
}

// If the state in the cluster is known, writes of other clients to other fields cause no retry.
func TestCommitIgnoresOtherWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	after.Status.Replicas = 3
	setReady(after)
	w.say("Theirs", "False")
	w.say("Other", "True")
	commit(t, w, before, after)
	w.expect(t, "3 [a] Theirs=False Ready=True Other=True", patch)
}

func TestCommitKeepsConditionsOfOtherClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// The run adds a condition while other clients add another one.
	before, after := w.shops(t)
	setReady(after)
	status.Set(&after.Status.Conditions, status.True("New", 1, "New", ""))
	after.Status.Replicas = 3
	w.say("Theirs", "False")
	w.say("Other", "True")
	commit(t, w, before, after)
	w.expect(t, "3 [a] Theirs=False Ready=True Other=True New=True", patch, get, patch)

	// The list differs from the one that the run has seen, so the test of the JSON patch fails.
	before, after = w.shops(t)
	meta.RemoveStatusCondition(&after.Status.Conditions, "New")
	meta.RemoveStatusCondition(&after.Status.Conditions, "Ready")
	w.edit(func(status map[string]any) {
		status["conditions"] = append([]any{condition("First", "True")}, status["conditions"].([]any)...)
	})
	commit(t, w, before, after)
	w.expect(t, "3 [a] First=True Theirs=False Other=True", patch, get, patch)
}

// Another client, such as another replica, has already written the same status: no patch is sent.
func TestCommitSkipsExistingChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	status.Set(&after.Status.Conditions, at(earlier(), status.True("New", 0, "Why", "")))
	w.say("New", "True")
	changed, err := status.Commit(t.Context(), w.client, before, after)
	if changed || err != nil {
		t.Errorf("changed is %v, the error %v", changed, err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False New=True", patch, get)
}

// A handler that writes to the object takes over the response. The resourceVersion of the response is required then.
func TestCommitAfterWriteOfRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.shop(t)
	w.say("Theirs", "False")
	after := w.shop(t) // the response of a write
	setReady(after)
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=False Ready=True", patch)

	// Another write of other clients before the commit does not matter.
	before = w.shop(t)
	w.say("Theirs", "True")
	after = w.shop(t)
	setReady(after)
	after.Status.Conditions[1].Reason = "Again"
	w.say("Other", "True")
	commit(t, w, before, after)
	w.expect(t, "0 [a] Theirs=True Ready=True Other=True", patch, get, patch)

	// A field that came with the response and has changed again would be overwritten with its old value.
	before = w.shop(t)
	w.say("Theirs", "False")
	after = w.shop(t)
	after.Status.Conditions[1].Reason = "And again"
	w.say("Theirs", "Unknown")
	_, err := status.Commit(t.Context(), w.client, before, after)
	if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) || retry.Classify(err) != retry.Conflict {
		t.Errorf("the error is %v (class %s), want a conflict", err, retry.Classify(err))
	}
	w.expect(t, "0 [a] Theirs=Unknown Ready=True Other=True", patch, get)
}

func TestCommitStopsAfterMaxAttempts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Shop)
	}{
		"tests": {change: setReady},
		"locks": {change: func(s *Shop) { status.Set(&s.Status.Conditions, status.True("New", 1, "New", "")) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before, after := w.shops(t)
			test.change(after)
			w.disturb = func() { w.edit(func(status map[string]any) { slices.Reverse(status["conditions"].([]any)) }) }
			_, err := status.Commit(t.Context(), w.client, before, after)
			if retry.Classify(err) != retry.Conflict || !errors.Is(err, client.ErrChanged) || !strings.Contains(err.Error(), "Shop town/books") {
				t.Errorf("the error is %v (class %s), want a conflict that names the Shop", err, retry.Classify(err))
			}
			w.expect(t, "0 [a] Ready=False Theirs=True", patch, get, patch, get, patch, get, patch, get, patch)
		})
	}
}

// A patch that the API server rejects because of its result is not a conflict.
func TestCommitDoesNotRetryInvalidStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	setReady(after)
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.Method == http.MethodGet {
			return do(), nil
		}
		return apitest.Failure(apierrors.NewInvalid(shopVersion().WithKind("Shop").GroupKind(), "books", field.ErrorList{
			field.Required(field.NewPath("status", "conditions").Index(1).Child("message"), ""),
		})), nil
	})
	_, err := status.Commit(t.Context(), w.client, before, after)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "status.conditions[1].message") {
		t.Errorf("the error is %v", err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False", patch)
}

func TestCommitIgnoresMissingObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		again    bool // an object with the same name was created
		change   func(*Shop)
		requests []string
	}{
		"gone, fields":         {change: func(s *Shop) { s.Status.Replicas = 9 }, requests: []string{patch}},
		"gone, conditions":     {change: setReady, requests: []string{patch}},
		"replaced, fields":     {again: true, change: func(s *Shop) { s.Status.Replicas = 9 }, requests: []string{patch, get}},
		"replaced, conditions": {again: true, change: setReady, requests: []string{patch, get}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			before, after := w.shops(t)
			test.change(after)
			w.Edit("shops", shopKey(), "others", func(map[string]any) bool { return false })
			if test.again {
				w.edit(func(status map[string]any) { status["conditions"] = []any{} })
			}
			changed, err := status.Commit(t.Context(), w.client, before, after)
			if changed || err != nil {
				t.Errorf("changed is %v, the error %v", changed, err)
			}
			if got := w.Requests(); !slices.Equal(got, test.requests) {
				t.Errorf("requests: %q, want %q", got, test.requests)
			}
			if test.again {
				w.expect(t, "0 []")
			}
		})
	}
}

func TestCommitValidatesArguments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.shop(t)
	changed := func(change func(*Shop)) *Shop {
		after := before.copy()
		setReady(after)
		change(after)
		return after
	}
	for want, objects := range map[string][2]*Shop{
		"not two states of one object":                {before, changed(func(s *Shop) { s.Name = "wine" })},
		string(before.UID) + ") and town/books (uid ": {before, changed(func(s *Shop) { s.UID = "another" })},
		"books has no uid or no resourceVersion":      {before, changed(func(s *Shop) { s.ResourceVersion = "" })},
		"rats has no uid or no resourceVersion": {
			&Shop{ObjectMeta: metav1.ObjectMeta{Name: "rats", ResourceVersion: "1"}},
			&Shop{ObjectMeta: metav1.ObjectMeta{Name: "rats", ResourceVersion: "1"}, Status: ShopStatus{Replicas: 1}},
		},
		"object is nil": {before, nil},
	} {
		_, err := status.Commit(t.Context(), w.client, objects[0], objects[1])
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	if _, err := status.Commit(t.Context(), nil, before, before); err == nil {
		t.Error("there was no client, and no error")
	}
	meta := &metav1.PartialObjectMetadata{ObjectMeta: before.ObjectMeta}
	if _, err := status.Commit(t.Context(), w.client, meta, meta.DeepCopy()); err == nil || !strings.Contains(err.Error(), "only metadata") {
		t.Errorf("metadata only: the error is %v", err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False")
}

func TestCommitTakesOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before, after := w.shops(t)
	setReady(after)
	if _, err := status.Commit(t.Context(), w.client, before, after, client.DryRun()); err != nil {
		t.Fatal(err)
	}
	w.expect(t, "0 [a] Theirs=True Ready=False", patch)
}
