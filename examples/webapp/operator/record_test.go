package operator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
)

// The record must follow a change of the host alone: to another host, to none, and to a host again.
func TestWebappRecordFollowsHost(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		w.operateUntilReady("shop")
		for _, host := range []string{"store.example.com", "", "shop.example.com"} {
			w.change("shop", func(app *v1.WebApp) { app.Spec.Host = host })
			if app := w.untilReady("shop"); app.Status.Host != host {
				w.Errorf("the status has the host %q, want %q", app.Status.Host, host)
			}
			want := map[string]string{}
			if host != "" {
				want[host] = "shop." + w.namespace + ".svc"
			}
			if got := w.records.all(); !maps.Equal(got, want) {
				w.Errorf("records are %v, want %v", got, want)
			}
		}
	})
}

// The host changes and the WebApp is deleted while no operator runs: the existing record must be deleted, not the one
// for the new host.
func TestWebappDeletedWithoutOperator(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		_, stop := w.operate()
		w.create(w.app("shop"))
		w.untilReady("shop")
		stop()
		w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "store.example.com" })
		w.delete("shop")
		w.operate()
		w.untilGone("shop")
	})
}

// The provider fails while the record is moved: no record is lost, and the status contains the reason.
func TestWebappRecordMovesAfterOutageOfProvider(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		w.operateUntilReady("shop")
		w.records.fail(fmt.Errorf("the provider is down"))
		w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "store.example.com" })
		w.untilNotReady("shop", "the provider is down")
		if app, err := w.get("shop"); err != nil || app.Status.Host != "shop.example.com" {
			w.Errorf("the host whose record may exist is %q, %v", app.Status.Host, err)
		}
		w.records.fail(nil)
		w.untilReady("shop")
		w.check("shop", "shop:1", map[string]string{"GREETING": "hello"})
	})
}

// Another replica, with another state of the WebApp, creates a record while this one moves the WebApp's record. Its
// name must not be overwritten in the status, because the record would never be deleted.
func TestWebappKeepsRecordNameOfOtherReplica(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		w.operateUntilReady("shop")
		w.records.onDelete(func(string) {
			before, err := w.get("shop")
			if err != nil {
				w.Error(err)
				return
			}
			after := before.DeepCopy()
			after.Status.Host = "other.example.com"
			if _, err := client.Patch(w.Context(), w.client, before, client.MergeFrom(before, after).Locked(before), client.Subresource("status")); err != nil {
				w.Error(err)
			}
			if err := w.records.Ensure(w.Context(), Record{Host: "other.example.com", Target: "the other replica", Owner: string(w.uid)}); err != nil {
				w.Error(err)
			}
		})
		w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "store.example.com" })
		w.untilReady("shop")
		w.check("shop", "shop:1", map[string]string{"GREETING": "hello"})
	})
}

// A host moves from one WebApp to another, which requests it first: neither may overwrite or delete the other's record,
// in any order of their runs.
func TestWebappRecordMovesToAnotherWebapp(t *testing.T) {
	t.Parallel()
	everywhere(t, func(w *world) {
		w.operate()
		w.create(w.app("first"))
		first := w.untilReady("first")
		second := w.app("second")
		second.Spec.Host = "first.example.com"
		w.create(second)
		w.untilNotReady("second", "belongs to another WebApp")
		if app, err := w.get("second"); err != nil || !apimeta.IsStatusConditionTrue(app.Status.Conditions, "Stalled") {
			w.Errorf("not stalled, although one of the hosts must change: %+v, %v", app.Status.Conditions, err)
		}
		if got := w.records.owner("first.example.com"); got != string(first.UID) {
			w.Errorf("the record belongs to %q", got)
		}
		w.change("first", func(app *v1.WebApp) { app.Spec.Host = "" })
		w.untilReady("first")
		w.untilReady("second")
		if got := w.records.owner("first.example.com"); got != string(w.uid) {
			w.Errorf("the record belongs to %q", got)
		}
		w.delete("first")
		w.until("the first is gone", func() error {
			if _, err := w.get("first"); !errors.Is(err, client.ErrGone) {
				return fmt.Errorf("it exists: %w", err)
			}
			return nil
		})
		if got := w.records.owner("first.example.com"); got != string(w.uid) {
			w.Errorf("after the deletion of the first, the record belongs to %q", got)
		}
	})
}

// A WebApp that lost its record to another one, and has not seen that yet, must not delete it, neither when the host
// changes nor when the WebApp is deleted.
func TestWebappKeepsRecordOfOtherWebapp(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(w *world){
		"host changed": func(w *world) {
			w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "store.example.com" })
			w.untilReady("shop")
		},
		"deleted": func(w *world) {
			w.delete("shop")
			w.until("it is gone", func() error {
				_, err := w.get("shop")
				if !errors.Is(err, client.ErrGone) {
					return fmt.Errorf("it exists: %w", err)
				}
				return nil
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(w *world) {
				_, stop := w.operate()
				w.create(w.app("shop"))
				w.untilReady("shop")
				stop()
				w.records.setOwner("shop.example.com", "another")
				w.operate()
				act(w)
				if got := w.records.owner("shop.example.com"); got != "another" {
					w.Errorf("the record belongs to %q", got)
				}
			})
		})
	}
}

// setOwner changes the owner of a record.
func (r *records) setOwner(host, owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[host] = owner
}

// The API behind HTTPRecords receives the owner. Its 409 is distinguished from other errors.
func TestHTTPRecordsHaveOwners(t *testing.T) {
	t.Parallel()
	code, seen := http.StatusOK, ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Method + " " + r.URL.RequestURI()
		w.WriteHeader(code)
	}))
	defer server.Close()
	records := HTTPRecords{URL: server.URL, Client: server.Client()}
	defer server.Client().CloseIdleConnections()
	record := Record{Host: "a.example.com", Target: "a.shop.svc", Owner: "u 1"}
	for _, test := range []struct {
		code            int
		ensured, failed bool // whether Ensure, and Delete, fail
	}{
		{http.StatusOK, false, false}, {http.StatusConflict, true, false}, {http.StatusNotFound, true, false}, {http.StatusInternalServerError, true, true},
	} {
		code = test.code
		err := records.Ensure(t.Context(), record)
		if _, taken := errors.AsType[*TakenError](err); (err != nil) != test.ensured || taken != (code == http.StatusConflict) || seen != "PUT /a.example.com?owner=u+1" {
			t.Errorf("%d: %s: %v", code, seen, err)
		}
		if err := records.Delete(t.Context(), record); (err != nil) != test.failed || seen != "DELETE /a.example.com?owner=u+1" {
			t.Errorf("%d: %s: %v", code, seen, err)
		}
	}
}

// statusChecks checks the statuses that operators write in all tests: a ready condition must refer to the observed
// generation.
type statusChecks struct {
	world *world
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (tt statusChecks) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := tt.next.RoundTrip(r)
	if err != nil || r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/status") || response.StatusCode != http.StatusOK {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return response, nil //nolint:nilerr // the reader of the body gets the error
	}
	app := &v1.WebApp{}
	if err := json.Unmarshal(body, app); err != nil {
		tt.world.Errorf("the response to %s %s: %v", r.Method, r.URL.Path, err)
	}
	ready := cmp.Or(apimeta.FindStatusCondition(app.Status.Conditions, v1.ConditionReady), &metav1.Condition{})
	if ready.Status == metav1.ConditionTrue && ready.ObservedGeneration != app.Generation &&
		app.Status.ObservedGeneration == app.Generation && app.DeletionTimestamp == nil {
		tt.world.Errorf("the status is ready for generation %d, but was observed for generation %d", app.Generation, ready.ObservedGeneration)
	}
	// A client that waits for the condition, as kubectl does, applies it to the current spec.
	if host := app.Spec.Host; ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == app.Generation && host != "" && app.DeletionTimestamp == nil {
		if owner := tt.world.records.owner(host); owner != string(app.UID) {
			tt.world.Errorf("the status of generation %d of %s is ready, but the record of %s belongs to %q", app.Generation, app.UID, host, owner)
		}
	}
	return response, nil
}
