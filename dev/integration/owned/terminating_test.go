package owned

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// stuck applies a child with finalizers, and deletes it.
func (e env) stuck(set *owned.Set, app kube.Object, name string, finalizers ...string) {
	e.Helper()
	e.apply(set, app, owned.Of(e.configMap(name))...)
	before := e.get(e.key(name))
	after := before.DeepCopy()
	after.Finalizers = finalizers
	must(client.Patch(e.Context(), e.c, before, client.MergeFrom(before, after)))(e)
	e.Cleanup(func() { e.free(name) })
	if err := client.Delete(e.Context(), e.c, before); err != nil {
		e.Fatal(err)
	}
}

// free removes the finalizers so that the namespace can be deleted; the test's context may have ended.
func (e env) free(name string) {
	e.Helper()
	ctx := context.WithoutCancel(e.Context())
	now, err := client.Get[*corev1.ConfigMap](ctx, e.c, e.key(name))
	if errors.Is(err, client.ErrGone) {
		return
	}
	after := must(now, err)(e).DeepCopy()
	after.Finalizers = nil
	must(client.Patch(ctx, e.c, now, client.MergeFrom(now, after)))(e)
}

// A terminating child is reported with its finalizers, and is neither applied nor deleted again. Its finalizers are not
// removed.
func TestStuckChildrenAreReported(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.stuck(set, app, "held", "example.com/volume")
	child := e.configMap("held", "colour", "blue")
	seen := newCalls()
	ctx := kube.ObserveCalls(t.Context(), seen)
	report := must(set.Apply(ctx, app, owned.Of(child)...))(t)
	e.want(report.Results, "ConfigMap held: terminating")
	if !strings.Contains(report.Pending(), "it is being deleted since ") || !strings.Contains(report.Pending(), "held by finalizers example.com/volume") {
		t.Errorf("pending %q", report.Pending())
	}
	report = must(set.Apply(ctx, app))(t)
	e.want(report.Results, "ConfigMap held: terminating")
	if left := undesired(report); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
	report = must(set.Delete(ctx, app))(t)
	if report.Remaining() == "" || !strings.Contains(report.Remaining(), "example.com/volume") {
		t.Errorf("remaining %q", report.Remaining())
	}
	for _, call := range seen.Take() {
		if !strings.HasPrefix(call, "list ") {
			t.Errorf("request %q", call)
		}
	}
}

// Delete reports which of the deleted children still exist.
func TestDeleteReportsRemainingChildren(t *testing.T) {
	e := newEnv(t)
	set, app := e.set(), e.app("web")
	e.apply(set, app, owned.Of(e.configMap("free"), e.configMap("held"))...)
	before := e.get(e.key("held"))
	after := before.DeepCopy()
	after.Finalizers = []string{"example.com/volume"}
	must(client.Patch(t.Context(), e.c, before, client.MergeFrom(before, after)))(t)
	t.Cleanup(func() { e.free("held") })
	report := must(set.Delete(t.Context(), app))(t)
	e.want(report.Results, "ConfigMap held: terminating", "ConfigMap free: deleted")
	if report.Remaining() == "" || !strings.Contains(report.Remaining(), "example.com/volume") {
		t.Errorf("remaining %q", report.Remaining())
	}
	e.free("held")
	if report := must(set.Delete(t.Context(), app))(t); report.Remaining() != "" {
		t.Error(report.Remaining())
	}
}

// Only the named finalizers are removed, only after their time, and every removal is reported, logged and
// recorded as an Event.
func TestForceRemoveFinalizers(t *testing.T) {
	e := newEnv(t)
	app, recorder, logged := e.app("web"), &recorder{}, &testlog.Buffer{}
	set := e.set(func(c *owned.Config) { c.ForceRemoveFinalizers = map[string]time.Duration{"example.com/volume": 0} })
	e.stuck(set, app, "held", "example.com/first", "example.com/volume", "example.com/last")
	report := e.apply(set, app)
	if got := report.Remaining(); strings.Contains(got, "force-removed") {
		t.Errorf("released before its time: %q", got)
	}
	if report.RunAgain <= 0 || report.RunAgain > 10*time.Minute {
		t.Errorf("run again after %s", report.RunAgain)
	}

	set = e.set(func(c *owned.Config) {
		c.ForceRemoveFinalizers = map[string]time.Duration{"example.com/volume": time.Nanosecond, "example.com/last": time.Hour}
		c.Events = recorder
	})
	e.c.Cluster().SetLogger(slog.New(slog.NewTextHandler(logged, nil)))
	plan := must(set.Plan(t.Context(), app))(t)
	if got := plan.Remaining(); !strings.HasSuffix(got, "force-removed finalizers example.com/volume") || logged.Len() > 0 {
		t.Errorf("the plan releases %q, logged %q", got, logged)
	}
	report = e.apply(set, app)
	if got := report.Remaining(); !strings.HasSuffix(got, "force-removed finalizers example.com/volume") {
		t.Errorf("released %q", got)
	}
	if got := e.get(e.key("held")).Finalizers; !slices.Equal(got, []string{"example.com/first", "example.com/last"}) {
		t.Errorf("the finalizers are %q", got)
	}
	if report.RunAgain <= 50*time.Minute || report.RunAgain > time.Hour {
		t.Errorf("run again after %s, for the finalizer that is removed after an hour", report.RunAgain)
	}
	if !strings.Contains(logged.String(), "level=WARN") || !strings.Contains(logged.String(), "example.com/volume") {
		t.Errorf("logged %q", logged)
	}
	if notes := recorder.notes(); len(notes) != 1 || !strings.Contains(notes[0], "Warning FinalizersForceRemoved web: ConfigMap "+e.key("held").String()) {
		t.Errorf("events %q", notes)
	}
	report = e.apply(set, app)
	if wrote(report) || len(recorder.notes()) != 1 {
		t.Errorf("again: %+v, events %q", report, recorder.notes())
	}
}

// If the finalizers change between the read and the removal, the result is a conflict that is retried at once, not an
// invalid request, which would not be retried.
func TestForceRemoveFinalizersDuringOtherWrite(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	e.stuck(e.set(), app, "held", "example.com/first", volume)
	between := func(next client.RoundTrip) client.RoundTrip {
		return func(ctx context.Context, r *client.Request) error {
			volumePatch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["`+volume+`"]}}`))
			if _, err := client.Patch(ctx, e.c, e.configMap("held"), volumePatch); err != nil {
				return err
			}
			return next(ctx, r)
		}
	}
	c := must(e.c.With(func(config *client.Config) {
		config.Interceptors = []client.Interceptor{client.On(between, client.VerbPatch)}
	}))(t)
	set := e.set(func(config *owned.Config) {
		config.Client, config.ForceRemoveFinalizers = c, map[string]time.Duration{volume: time.Nanosecond}
	})
	_, err := set.Apply(t.Context(), app)
	if !errors.Is(err, client.ErrChanged) || !apierrors.IsConflict(err) || !strings.Contains(err.Error(), volume) {
		t.Errorf("the error is %v", err)
	}
	e.want(e.apply(e.set(func(config *owned.Config) {
		config.ForceRemoveFinalizers = map[string]time.Duration{volume: time.Nanosecond}
	}), app).Results, "ConfigMap held: terminating")
	if e.get(e.key("held")) != nil {
		t.Error("it was not released by the next run")
	}
}

// If an object cannot be read before its finalizers are removed, Apply returns the error and removes none.
func TestForceRemoveFinalizersWithoutRead(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	e.stuck(e.set(), app, "held", volume)
	errDown := errors.New("the API server is down")
	fail := func(client.RoundTrip) client.RoundTrip {
		return func(context.Context, *client.Request) error { return errDown }
	}
	c := must(e.c.With(func(config *client.Config) {
		config.Interceptors = []client.Interceptor{client.On(fail, client.VerbGet)}
	}))(t)
	_, err := e.set(func(config *owned.Config) {
		config.Client, config.ForceRemoveFinalizers = c, map[string]time.Duration{volume: time.Nanosecond}
	}).Apply(t.Context(), app)
	if !errors.Is(err, errDown) {
		t.Errorf("the error is %v", err)
	}
	if got := e.get(e.key("held")).Finalizers; !slices.Equal(got, []string{volume}) {
		t.Errorf("the finalizers are %q", got)
	}
}
