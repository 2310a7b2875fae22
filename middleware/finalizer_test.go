package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/finalizer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/middleware"
	"github.com/evenkeel-go/evenkeel/status"
)

const (
	cleanup = "shop.example.com/cleanup"
	foreign = "bank.example.com/audit"
)

// cleaning has a Finalizer with one step, and records calls and requests in order.
type cleaning struct {
	server  *apitest.Server
	client  *client.Client
	did     []string
	result  error // the result of the step
	options middleware.FinalizerOptions[*corev1.Service]
}

func newCleaning(t *testing.T) *cleaning {
	t.Helper()
	server, c := newServer(t)
	return &cleaning{server: server, client: c}
}

// finalizer returns a Finalizer with one step, which records that it ran.
func (c *cleaning) finalizer(t *testing.T, api *client.Client) *finalizer.Finalizer[*corev1.Service] {
	t.Helper()
	f, err := finalizer.New(finalizer.Config[*corev1.Service]{
		Client: api, Name: cleanup,
		Steps: []finalizer.Step[*corev1.Service]{{Name: "dns", Run: func(_ context.Context, service *corev1.Service) error {
			c.did = append(c.did, "step")
			status.Set(&service.Status.Conditions, status.True("CleanedUp", 1, "Yes", ""))
			return c.result
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// run makes one run for the live object.
func (c *cleaning) run(t *testing.T, service *corev1.Service) error {
	t.Helper()
	handler := controller.Chain(func(_ context.Context, service *corev1.Service) error {
		c.did = append(c.did, fmt.Sprint("handled with ", c.server.Object("services", webKey()).GetFinalizers()))
		setReady(service)
		return nil
	}, middleware.Status(c.client, serviceOptions{}), middleware.Finalizer(c.finalizer(t, c.client), c.options))
	return handler(t.Context(), service)
}

func (c *cleaning) expect(t *testing.T, did []string, requests []string) {
	t.Helper()
	if !slices.Equal(c.did, did) {
		t.Errorf("it did %q, want %q", c.did, did)
	}
	if got := c.server.Requests(); !slices.Equal(got, requests) {
		t.Errorf("it made requests\n%q, want\n%q", got, requests)
	}
	c.did = nil
}

// remove deletes the Service at the given time.
func (c *cleaning) remove(t *testing.T) {
	t.Helper()
	if err := client.Delete(t.Context(), c.client, web(t, c.server, c.client)); err != nil {
		t.Fatal(err)
	}
	c.server.Requests()
}

func TestFinalizerLifecycle(t *testing.T) {
	t.Parallel()
	c := newCleaning(t)
	run := func() {
		t.Helper()
		if err := c.run(t, web(t, c.server, c.client)); err != nil {
			t.Fatal(err)
		}
	}
	// The entry is added before the handler starts, and the status then needs only one patch.
	run()
	c.expect(t, []string{"handled with [" + cleanup + "]"}, []string{patchWeb, statusWeb})
	run()
	c.expect(t, []string{"handled with [" + cleanup + "]"}, nil)

	c.remove(t)
	c.result = controller.RequeueAfter(time.Minute, "the record is being removed")
	err := c.run(t, web(t, c.server, c.client))
	if controller.OutcomeOf(err) != controller.OutcomeRequeue || !strings.Contains(err.Error(), `step "dns"`) {
		t.Errorf("the result is %v, want the step's", err)
	}
	c.expect(t, []string{"step"}, []string{getWeb, statusWeb})

	c.result = nil
	deleted := web(t, c.server, c.client)
	if err := c.run(t, deleted.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	c.expect(t, []string{"step"}, []string{getWeb, patchWeb})
	if obj := c.server.Object("services", webKey()); obj != nil {
		t.Errorf("the object is still there: %v", obj)
	}
	// A stale cache still contains the object. In the second case, another object with its name exists.
	for _, what := range []string{"gone", "replaced"} {
		if err := c.run(t, deleted.DeepCopy()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		c.expect(t, nil, []string{getWeb})
		edit(c.server, func(map[string]any) {})
	}
}

// The Handler must not create anything outside of the cluster for an object that is gone or being deleted.
func TestFinalizerSkipsHandlerOfDeletedObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happens  func(*cleaning)
		requests []string
	}{
		"gone":     {func(c *cleaning) { c.remove(t) }, []string{patchWeb}},
		"replaced": {func(c *cleaning) { c.remove(t); edit(c.server, func(map[string]any) {}) }, []string{patchWeb, getWeb}},
		"deleting": {func(c *cleaning) {
			edit(c.server, func(obj map[string]any) { obj["metadata"].(map[string]any)["finalizers"] = []any{foreign} })
			c.remove(t)
		}, []string{patchWeb, getWeb}},
		// The object has the finalizer, but the cache does not show it.
		"deleting, with the entry": {func(c *cleaning) {
			edit(c.server, func(obj map[string]any) { obj["metadata"].(map[string]any)["finalizers"] = []any{cleanup} })
			c.remove(t)
		}, []string{patchWeb, getWeb}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCleaning(t)
			stale := web(t, c.server, c.client)
			test.happens(c)
			if err := c.run(t, stale); err != nil {
				t.Errorf("the result is %v", err)
			}
			c.expect(t, nil, test.requests)
		})
	}
	c := newCleaning(t)
	stale := web(t, c.server, c.client)
	stale.UID = ""
	if err := c.run(t, stale); err == nil {
		t.Error("a finalizer that cannot be added is no error")
	}
	c.expect(t, nil, nil)
}

// recorder is an EventRecorder that records Events as text.
type recorder []string

func (r *recorder) Event(regarding corev1.ObjectReference, eventType, reason, _, note string) {
	*r = append(*r, fmt.Sprint(regarding.Kind, " ", regarding.Namespace, "/", regarding.Name, " ", eventType, " ", reason, " ", note))
}

func TestFinalizerReportsBlockedDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCleaning(t)
		var events recorder
		var reports []finalizer.Report
		c.options.Events = &events
		c.options.Blocked = func(_ context.Context, _ *corev1.Service, r finalizer.Report) { reports = append(reports, r) }
		edit(c.server, func(obj map[string]any) { obj["metadata"].(map[string]any)["finalizers"] = []any{foreign, cleanup} })
		c.remove(t)
		since := time.Now().UTC().Truncate(time.Second)

		c.result = errBroken
		time.Sleep(time.Minute)
		if err := c.run(t, web(t, c.server, c.client)); !errors.Is(err, errBroken) {
			t.Errorf("the result is %v, want the step's", err)
		}
		if len(events)+len(reports) > 0 {
			t.Errorf("it was called blocked after a minute: %q", events)
		}
		time.Sleep(4 * time.Minute)
		if err := c.run(t, web(t, c.server, c.client)); !errors.Is(err, errBroken) {
			t.Errorf("the result is %v, want the step's", err)
		}
		text := "Service shop/web Warning DeletionBlocked It is being deleted since " + since.Format(time.RFC3339) + ", and waits for the finalizer"
		if want := text + "s " + foreign + ", " + cleanup + `; the teardown is at step "dns"`; len(events) != 1 || events[0] != want {
			t.Errorf("the events are\n%q, want\n%q", events, want)
		}
		if len(reports) != 1 || reports[0].Step != "dns" || time.Since(reports[0].Since) < 5*time.Minute {
			t.Errorf("the reports are %+v", reports)
		}

		// The Finalizer's own steps are done. The deletion is still reported while other finalizers block it.
		c.result = nil
		if err := c.run(t, web(t, c.server, c.client)); err != nil {
			t.Errorf("the result is %v", err)
		}
		if want := text + " " + foreign; len(events) != 2 || events[1] != want {
			t.Errorf("the events are\n%q, want\n%q", events, want)
		}
	})
}

// If the Finalizer's own steps are done in time, the run requeues the object for the time at which the deletion counts
// as blocked.
func TestFinalizerRequeuesUntilBlockedAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCleaning(t)
		var events recorder
		c.options.Events, c.options.BlockedAfter = &events, 10*time.Minute
		edit(c.server, func(obj map[string]any) { obj["metadata"].(map[string]any)["finalizers"] = []any{foreign, cleanup} })
		c.remove(t)
		time.Sleep(time.Minute)
		err := c.run(t, web(t, c.server, c.client))
		var requeue *controller.RequeueError
		if !errors.As(err, &requeue) || requeue.After < 9*time.Minute || requeue.After > 9*time.Minute+time.Second {
			t.Fatalf("the result is %v, want a run in 9 min", err)
		}
		// The second read is for the commit of the status: removing the finalizer has changed the resourceVersion, and
		// the step adds a new condition.
		c.expect(t, []string{"step"}, []string{getWeb, patchWeb, getWeb, statusWeb})
		time.Sleep(requeue.After)
		if err := c.run(t, web(t, c.server, c.client)); err != nil || len(events) != 1 {
			t.Errorf("the result is %v, the events are %q", err, events)
		}
		c.expect(t, nil, nil)

		// Neither Blocked nor Events is set: the run does not requeue the object.
		c.options.Events = (*event.Recorder)(nil)
		c.options.Deleted = func(context.Context, *corev1.Service) error { return errBroken }
		if err := c.run(t, web(t, c.server, c.client)); !errors.Is(err, errBroken) {
			t.Errorf("the result is %v, want that of Deleted", err)
		}
		if len(events) != 1 {
			t.Errorf("the events are %q", events)
		}

		// The recorder of the Cluster is the default.
		apiobject.ObserversOf(c.client.Cluster()).SetEvents(&events)
		if err := c.run(t, web(t, c.server, c.client)); !errors.Is(err, errBroken) || len(events) != 2 {
			t.Errorf("the result is %v, the events are %q", err, events)
		}
	})
}
