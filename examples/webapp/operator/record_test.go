package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/status"
)

// The record follows the host, when nothing else changes too: to another one, to none, and again
// to one.
func TestWebappRecordFollowsTheHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.operate()
	w.create(w.app("shop"))
	w.untilReady("shop")
	for _, host := range []string{"store.example.com", "", "shop.example.com"} {
		w.change("shop", func(app *v1.WebApp) { app.Spec.Host = host })
		if app := w.untilReady("shop"); app.Status.Host != host {
			t.Errorf("the status has the host %q, want %q", app.Status.Host, host)
		}
		want := map[string]string{}
		if host != "" {
			want[host] = "shop." + w.namespace + ".svc"
		}
		if got := w.records.all(); !maps.Equal(got, want) {
			t.Errorf("records are %v, want %v", got, want)
		}
	}
}

// While no operator runs, the host changes and the WebApp is deleted: what is cleared away is the
// record that there is, not the one that was asked for.
func TestWebappDeletedWhileNobodyWorks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, stop := w.operate()
	w.create(w.app("shop"))
	w.untilReady("shop")
	stop()
	w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "store.example.com" })
	w.delete("shop")
	w.operate()
	w.untilGone("shop")
}

// The provider fails while the record is moved: nothing is forgotten, and the status says why.
func TestWebappRecordMovesWhenTheProviderIsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.operate()
	w.create(w.app("shop"))
	w.untilReady("shop")
	w.records.fail(fmt.Errorf("the provider is down"))
	w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "store.example.com" })
	w.untilItSays("shop", "the provider is down")
	if app, err := w.get("shop"); err != nil || app.Status.Host != "shop.example.com" {
		t.Errorf("the host whose record may exist is %q, %v", app.Status.Host, err)
	}
	w.records.fail(nil)
	w.untilReady("shop")
	w.check("shop", "shop:1", map[string]string{"GREETING": "hello"})
}

// Another replica, with another state of the WebApp, makes a record while this one moves the
// WebApp's. Its name must not be overwritten in the status: nobody would clear the record away.
func TestWebappForgetsNoRecordOfAnotherReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.operate()
	w.create(w.app("shop"))
	w.untilReady("shop")
	w.records.onDelete(func(string) {
		before, err := w.get("shop")
		if err != nil {
			t.Error(err)
			return
		}
		after := before.DeepCopy()
		after.Status.Host = "other.example.com"
		if _, err := client.Patch(t.Context(), w.client, before, client.MergeFrom(before, after).Locked(before), client.Subresource("status")); err != nil {
			t.Error(err)
		}
		if err := w.records.Ensure(t.Context(), "other.example.com", "the other replica"); err != nil {
			t.Error(err)
		}
	})
	w.change("shop", func(app *v1.WebApp) { app.Spec.Host = "store.example.com" })
	w.untilReady("shop")
	w.check("shop", "shop:1", map[string]string{"GREETING": "hello"})
}

// truthfulTransport looks at what operators say in statuses, in all tests: that a WebApp is ready
// as its spec asks for now must have been found out about that spec.
type truthfulTransport struct {
	world *world
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (tt truthfulTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := tt.next.RoundTrip(r)
	if err != nil || r.Method != http.MethodPatch || !strings.HasSuffix(r.URL.Path, "/status") || response.StatusCode != http.StatusOK {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return response, nil //nolint:nilerr // whoever reads the body will see that it is cut
	}
	app := &v1.WebApp{}
	if err := json.Unmarshal(body, app); err != nil {
		tt.world.Errorf("the answer to %s %s: %v", r.Method, r.URL.Path, err)
	}
	ready, _ := status.Get(app.Status.Conditions, v1.ConditionReady)
	if ready.Status == metav1.ConditionTrue && ready.ObservedGeneration != app.Generation &&
		app.Status.ObservedGeneration == app.Generation && app.DeletionTimestamp == nil {
		tt.world.Errorf("a status says that generation %d is ready, and found that out about generation %d", app.Generation, ready.ObservedGeneration)
	}
	// Whoever waits for the condition, as kubectl does, takes it as said about the present spec.
	if host := app.Spec.Host; ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == app.Generation && host != "" && app.DeletionTimestamp == nil {
		if _, made := tt.world.records.all()[host]; !made {
			tt.world.Errorf("a status says that generation %d is ready, and there is no record of %s", app.Generation, host)
		}
	}
	return response, nil
}
