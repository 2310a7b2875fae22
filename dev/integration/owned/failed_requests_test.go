package owned

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/readiness"
	"github.com/evenkeel-go/evenkeel/status"
)

// refusing returns a set with a client that rejects requests of a verb while on is true.
func (e env) refusing(on *bool, verb client.Verb) *owned.Set {
	e.Helper()
	c := must(e.c.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				if *on {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, r.Key.Name, errors.New("not now"))
				}
				return next(ctx, r)
			}
		}, verb)}
	}))(e)
	return e.set(func(config *owned.Config) { config.Client = c })
}

// An owner is not ready while a child cannot be deleted, and Apply returns the error.
func TestApplyWithFailedPruneIsNotReady(t *testing.T) {
	e := newEnv(t)
	refuse := true
	set, app := e.refusing(&refuse, client.VerbDelete), e.app("web")
	e.apply(set, app, owned.Of(e.configMap("kept"), e.configMap("old"))...)
	report, err := set.Apply(t.Context(), app, owned.Of(e.configMap("kept"))...)
	e.want(report.Results, "ConfigMap kept: unchanged", "ConfigMap old: failed")
	if !apierrors.IsForbidden(err) || report.Ready() || !strings.Contains(report.Pending(), "old") {
		t.Errorf("ready: %t, pending: %q, error: %v", report.Ready(), report.Pending(), err)
	}
	var conditions []metav1.Condition
	if status.Summarize(&conditions, 1, report.States()...); meta.IsStatusConditionTrue(conditions, "Ready") {
		t.Errorf("the owner is ready: %+v", conditions)
	}
	refuse = false
	if report = e.apply(set, app, owned.Of(e.configMap("kept"))...); !report.Ready() || report.States()[0].Status != readiness.Current {
		t.Errorf("after that: %s", report.Pending())
	}
}

// If a list fails, its children are not reported as deleted.
func TestDeleteWithFailedListIsNotAllDeleted(t *testing.T) {
	e := newEnv(t)
	app := e.app("web")
	e.apply(e.set(), app, append(owned.Of(e.configMap("base")), owned.Wave(1, e.configMap("top"))...)...)
	deleted := false
	blind := must(e.c.With(func(c *client.Config) {
		c.Interceptors = []client.Interceptor{client.On(func(next client.RoundTrip) client.RoundTrip {
			return func(ctx context.Context, r *client.Request) error {
				deleted = deleted || r.Verb == client.VerbDelete
				if deleted && r.Verb == client.VerbList {
					return errors.New("the list failed")
				}
				return next(ctx, r)
			}
		}, client.VerbDelete, client.VerbList)}
	}))(t)
	report, err := e.set(func(config *owned.Config) { config.Client = blind }).Delete(t.Context(), app)
	e.want(report.Results, "ConfigMap top: failed", "ConfigMap base: waiting")
	if err == nil || report.Remaining() == "" || !strings.Contains(report.Remaining(), "the list failed") {
		t.Errorf("all deleted: %t, remaining: %q, error: %v", report.Remaining() == "", report.Remaining(), err)
	}
	if report = must(e.set().Delete(t.Context(), app))(t); report.Remaining() != "" {
		t.Error(report.Remaining())
	}
}
