package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// replicas returns a configuration of the database.
func replicas(n int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: &n},
	}
}

// fieldsOf returns managedFields in which managers have applied the replicas.
func fieldsOf(managers ...string) (entries []metav1.ManagedFieldsEntry) {
	for _, manager := range managers {
		entries = append(entries, metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`),
		})
	}
	return entries
}

// TestApplyOutcome: Apply reads the object before the request, and compares the response with it. The database has 3
// replicas and the resourceVersion 7.
func TestApplyOutcome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options  []client.WriteOption
		managers []string                         // before
		response func(object *appsv1.StatefulSet) // changes the object that is returned
		want     client.ObjectOutcome
		changed  []client.FieldChange
	}{
		"the same version": {want: client.Unchanged},
		"another value": {
			response: func(object *appsv1.StatefulSet) { object.ResourceVersion, *object.Spec.Replicas = "8", 5 },
			want:     client.Updated, changed: []client.FieldChange{{Path: "spec.replicas", Before: int64(3), After: int64(5)}},
		},
		"another client has written another field in between": {
			managers: []string{"shop"},
			response: func(object *appsv1.StatefulSet) { object.ResourceVersion, object.Spec.MinReadySeconds = "9", 10 },
			want:     client.Unchanged,
		},
		"only the owner of the field": {
			managers: []string{"other"},
			response: func(object *appsv1.StatefulSet) {
				object.ResourceVersion, object.ManagedFields = "8", fieldsOf("other", "shop")
			},
			want: client.Updated,
		},
		"a dry run that changes nothing": {options: []client.WriteOption{client.DryRun()}, want: client.Unchanged},
		"a dry run that changes a value": {
			options: []client.WriteOption{client.DryRun()}, managers: []string{"shop"},
			response: func(object *appsv1.StatefulSet) { *object.Spec.Replicas = 5 },
			want:     client.Updated, changed: []client.FieldChange{{Path: "spec.replicas", Before: int64(3), After: int64(5)}},
		},
		"a dry run that changes only the owner of the field": {
			options: []client.WriteOption{client.DryRun()}, managers: []string{"other"},
			response: func(object *appsv1.StatefulSet) { object.ManagedFields = fieldsOf("other", "shop") },
			want:     client.Updated,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			before := database()
			before.ManagedFields = fieldsOf(test.managers...)
			server.put(databasePath, before)
			c = intercepted(c, func(_ context.Context, r *client.Request) error {
				after := before.DeepCopy()
				if test.response != nil {
					test.response(after)
				}
				r.Status, *r.Response.(*appsv1.StatefulSet) = http.StatusOK, *after
				return nil
			}, client.VerbApply)
			applied, err := client.Apply(t.Context(), c, replicas(3), test.options...)
			if diff := cmp.Diff(test.changed, applied.Changed); diff != "" || err != nil || applied.Outcome != test.want {
				t.Errorf("the outcome is %q, %v, want %q; changed (-want +got):\n%s", applied.Outcome, err, test.want, diff)
			}
		})
	}
}

// TestApplyOutcomeBehindInformer: the informer does not show the first apply yet, but the client knows its response.
func TestApplyOutcomeBehindInformer(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	c = with(t, intercepted(c, func(_ context.Context, r *client.Request) error {
		after := database()
		after.ResourceVersion, *after.Spec.Replicas = "8", 5
		r.Status, *r.Response.(*appsv1.StatefulSet) = http.StatusOK, *after
		return nil
	}, client.VerbApply), func(config *client.Config) { config.Informers = shows(shownSet{set: database()}) })
	for _, want := range []client.ObjectOutcome{client.Updated, client.Unchanged} {
		if applied, err := client.Apply(t.Context(), c, replicas(5)); err != nil || applied.Outcome != want {
			t.Errorf("the outcome is %q, %v, want %q", applied.Outcome, err, want)
		}
	}
}

// TestForcedApplyWithoutChangeKeepsStates: two field owners that apply the same values by force make one request each.
func TestForcedApplyWithoutChangeKeepsStates(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	requests := 0
	c = intercepted(c, func(_ context.Context, r *client.Request) error {
		requests++
		r.Status, *r.Response.(*appsv1.StatefulSet) = http.StatusOK, *database()
		return nil
	}, client.VerbApply)
	c = with(t, c, func(config *client.Config) { config.Informers = shows(shownSet{set: database()}) })
	for range 3 {
		for _, owner := range []string{"one", "two"} {
			applied, err := client.Apply(t.Context(), c, replicas(3), client.FieldOwner(owner), client.Force())
			if err != nil || applied.Outcome != client.Unchanged {
				t.Errorf("%s: %s, %v", owner, applied.Outcome, err)
			}
		}
	}
	if requests != 2 {
		t.Errorf("%d requests were made, want one for each field owner", requests)
	}
}

// TestConcurrentApplyMakesRequest: the response of the first apply may still be an error.
func TestConcurrentApplyMakesRequest(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	requests := 0
	var intercepting *client.Client
	intercepting = with(t, intercepted(c, func(ctx context.Context, r *client.Request) error {
		if requests++; requests == 1 {
			if _, err := client.Apply(ctx, intercepting, replicas(5)); err != nil {
				return err
			}
		}
		after := database()
		after.ResourceVersion, after.Spec.Replicas = "8", new(int32(5))
		r.Status, *r.Response.(*appsv1.StatefulSet) = http.StatusOK, *after
		return nil
	}, client.VerbApply), func(config *client.Config) {
		config.Informers = shows(shownSet{set: database(), applied: &fieldsOf("shop")[0]})
	})
	applied, err := client.Apply(t.Context(), intercepting, replicas(5))
	if err != nil || applied.Outcome != client.Updated || requests != 2 {
		t.Errorf("%s, %v after %d requests", applied.Outcome, err, requests)
	}
}

// shownMetadata is an informer of metadata that shows one StatefulSet, and the label that "shop" has applied.
type shownMetadata struct {
	cache.Informer
	metadata *metav1.PartialObjectMetadata
}

func (shownMetadata) ReadsFrom(string) bool { return true }
func (shownMetadata) Name() string          { return "metadata" }
func (shownMetadata) Kind() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("StatefulSet")
}

func (shownMetadata) NewObject() (kube.Object, bool) { return &metav1.PartialObjectMetadata{}, false }

func (shownMetadata) Covers(string, labels.Selector) bool {
	return true
}

func (s shownMetadata) Metadata() cache.Reader { return s }

func (s shownMetadata) Object(kube.Key) (kube.Object, *metav1.ManagedFieldsEntry, bool, error) {
	return s.metadata.DeepCopy(), &metav1.ManagedFieldsEntry{
		Manager: "shop", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps/v1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:tier":{}}}}`),
	}, true, nil
}

// TestApplyOfMetadataUsesInformerOfMetadata: the metadata is all that is applied, so the informer shows that nothing
// would change.
func TestApplyOfMetadataUsesInformerOfMetadata(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	label := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Labels: map[string]string{"tier": "back"}}}
	label.SetGroupVersionKind(shownMetadata{}.Kind())
	shown := label.DeepCopy()
	shown.UID, shown.ResourceVersion = "u1", "7"
	c = with(t, c, func(config *client.Config) {
		config.FieldOwner, config.Informers = "shop", shows(shownMetadata{metadata: shown})
	})
	applied, err := client.Apply(t.Context(), c, label)
	if err != nil || applied.Outcome != client.Unchanged || server.log() != nil {
		t.Errorf("%s, %v; the requests are %q", applied.Outcome, err, server.log())
	}
}

// TestApplyIfAbsentRecognizesExistingObject: a conflict may also be about another object.
func TestApplyIfAbsentRecognizesExistingObject(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	sets, why := appsv1.Resource("statefulsets"), errors.New("changed")
	for name, test := range map[string]struct {
		err    error
		exists bool
	}{
		"another resourceVersion":     {apierrors.NewConflict(sets, "db", why), true},
		"it exists":                   {apierrors.NewAlreadyExists(sets, "db"), true},
		"fields of another manager":   {apierrors.NewApplyConflict([]metav1.StatusCause{{Type: metav1.CauseTypeFieldManagerConflict}}, "conflict"), true},
		"a quota that has changed":    {apierrors.NewConflict(corev1.Resource("resourcequotas"), "db", why), false},
		"a broken connection":         {why, false},
		"another name of the kind":    {apierrors.NewConflict(sets, "other", why), false},
		"the name in another kind":    {apierrors.NewConflict(appsv1.Resource("deployments"), "db", why), false},
		"a conflict without a reason": {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonConflict}}, false},
	} {
		c := intercepted(c, func(context.Context, *client.Request) error { return test.err }, client.VerbApply)
		_, err := client.Apply(t.Context(), c, replicas(3), client.IfAbsent())
		if errors.Is(err, client.ErrExists) != test.exists || apierrors.IsAlreadyExists(err) != test.exists || err == nil {
			t.Errorf("%s: the error is %v, want ErrExists: %t", name, err, test.exists)
		}
	}
}

// TestApplySendsUID: with a uid, Apply changes no other object of the name.
func TestApplySendsUID(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	lost := errors.New("the connection is broken")
	invalid := apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "db", nil)
	invalid.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"}}
	configuration := replicas(3)
	configuration.UID, configuration.ResourceVersion = "u1", "7"
	for name, test := range map[string]struct{ err, want error }{
		"another object":      {invalid, client.ErrReplaced},
		"a broken connection": {lost, lost},
	} {
		body := ""
		c := intercepted(c, func(_ context.Context, r *client.Request) error {
			body = string(r.Body)
			return test.err
		}, client.VerbApply)
		_, err := client.Apply(t.Context(), c, configuration, client.IfUnchanged())
		if !errors.Is(err, test.want) || !strings.Contains(body, `"uid":"u1"`) || !strings.Contains(body, `"resourceVersion":"7"`) {
			t.Errorf("%s: the error is %v, want %v; the request is %s", name, err, test.want, body)
		}
	}
}
