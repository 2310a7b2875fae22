package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
)

var errNeeded = errors.New("it is needed")

// conditionOrDryRun is an option that both DeleteLive and ScaleLive accept.
type conditionOrDryRun = interface {
	client.WriteOption
	client.DeleteOption
}

// acts returns the destructive functions by name.
func acts() map[string]func(t *testing.T, c *client.Client, check func(*appsv1.StatefulSet) error, options ...conditionOrDryRun) error {
	return map[string]func(*testing.T, *client.Client, func(*appsv1.StatefulSet) error, ...conditionOrDryRun) error{
		"delete": func(t *testing.T, c *client.Client, check func(*appsv1.StatefulSet) error, options ...conditionOrDryRun) error {
			t.Helper()
			return client.DeleteLive(t.Context(), c, database(), check, deleteOptions(options)...)
		},
		"scale": func(t *testing.T, c *client.Client, check func(*appsv1.StatefulSet) error, options ...conditionOrDryRun) error {
			t.Helper()
			return client.ScaleLive(t.Context(), c, database(), 0, check, options...)
		},
	}
}

func deleteOptions(options []conditionOrDryRun) (converted []client.DeleteOption) {
	for _, option := range options {
		converted = append(converted, option)
	}
	return converted
}

// done reports whether the database was deleted or scaled down.
func done(t *testing.T, server *apiServer) bool {
	t.Helper()
	return !server.has(databasePath) || server.replicas(t) != 3
}

func TestContract14_DestructiveRequestsAffectOnlyTheSameObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before  func(*unstructured.Unstructured) // a change after the cache was filled
		between func(*unstructured.Unstructured) // a change after the live read
		check   func(*appsv1.StatefulSet) error
		options []conditionOrDryRun
		want    error
		is      func(error) bool
	}{
		"nothing has happened":     {before: same, between: same},
		"the cache was stale":      {before: touch, between: same},
		"unchanged, and it is not": {before: touch, between: same, options: []conditionOrDryRun{client.IfUnchanged()}, want: client.ErrChanged, is: apierrors.IsConflict},
		"unchanged, and it is":     {before: same, between: same, options: []conditionOrDryRun{client.IfUnchanged()}},
		"replaced before":          {before: replace, between: same, want: client.ErrReplaced, is: apierrors.IsConflict},
		"gone before":              {before: nil, between: same, want: client.ErrGone, is: apierrors.IsNotFound},
		"changed in between":       {before: same, between: touch, want: client.ErrChanged, is: apierrors.IsConflict},
		"replaced in between":      {before: same, between: replace, want: client.ErrChanged, is: apierrors.IsConflict},
		"gone in between":          {before: same, between: nil, want: client.ErrGone, is: apierrors.IsNotFound},
		"the check says no": {
			before: same, between: same,
			check: func(*appsv1.StatefulSet) error { return errNeeded }, want: errNeeded,
		},
		"the check sees what is live": {
			before: func(obj *unstructured.Unstructured) {
				obj.SetAnnotations(map[string]string{"needed": "yes"})
				touch(obj)
			},
			check: func(live *appsv1.StatefulSet) error {
				if live.Annotations["needed"] == "yes" {
					return errNeeded
				}
				return nil
			},
			between: same, want: errNeeded,
		},
		"the check changes its object": {
			before: touch, between: same,
			check: func(live *appsv1.StatefulSet) error { *live = appsv1.StatefulSet{}; return nil },
		},
		"the check cannot hide a change": {
			before: same, between: touch,
			check: func(live *appsv1.StatefulSet) error { live.ResourceVersion = "8"; return nil },
			want:  client.ErrChanged, is: apierrors.IsConflict,
		},
	} {
		for act, do := range acts() {
			t.Run(act+"/"+name, func(t *testing.T) {
				t.Parallel()
				server, c := newServer(t)
				server.edit(databasePath, test.before)
				first := true
				server.afterGet = func() {
					if first && server.has(databasePath) {
						server.edit(databasePath, test.between)
					}
					first = false
				}
				err := do(t, c, test.check, test.options...)
				if !errors.Is(err, test.want) {
					t.Fatalf("the error is %v, want %v", err, test.want)
				}
				if server.has(databasePath) || test.want == nil {
					if got, want := done(t, server), test.want == nil; got != want {
						t.Errorf("it was done: %t, want %t; requests: %q", got, want, server.log())
					}
				}
				if test.is != nil && !test.is(err) {
					t.Errorf("%v: apimachinery does not know it", err)
				}
				if err != nil && !strings.Contains(err.Error(), "StatefulSet shop/db") {
					t.Errorf("the error does not say what it is about: %v", err)
				}
			})
		}
	}
}

func same(*unstructured.Unstructured) {}

func TestDestructiveRequestsAreNotRetried(t *testing.T) {
	t.Parallel()
	for act, do := range acts() {
		server, c := newServer(t)
		server.afterGet = func() { server.edit(databasePath, touch) }
		if err := do(t, c, nil); !errors.Is(err, client.ErrChanged) {
			t.Errorf("%s: the error is %v, want a change", act, err)
		}
		if got := server.verbs(); len(got) != 2 {
			t.Errorf("%s: the requests are %q, want one to read and one to write", act, got)
		}
	}
}

func TestDestructiveRequests(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	for _, err := range []error{
		client.ScaleLive(t.Context(), c, database(), 2, nil),
		client.ScaleLive(t.Context(), c, database(), 0, nil, client.DryRun()),
		client.DeleteLive(t.Context(), c, database(), nil, client.DryRun(), client.Propagation(metav1.DeletePropagationForeground)),
		client.DeleteLive(t.Context(), c, &corev1.Pod{ObjectMeta: meta("shop", "db-0")}, nil, client.GracePeriod(time.Minute)),
		client.DeleteLive(t.Context(), c, node(), nil),
		client.DeleteLive(t.Context(), c, widget(), nil),
		client.DeleteLive(t.Context(), c, &metav1.PartialObjectMetadata{TypeMeta: database().TypeMeta, ObjectMeta: database().ObjectMeta}, nil),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	const (
		scaled  = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"db","namespace":"shop","resourceVersion":"7","uid":"u1"},"spec":`
		options = `{"kind":"DeleteOptions","apiVersion":"v1",`
		exactly = `"preconditions":{"uid":"u1","resourceVersion":"7"}`
	)
	want := []string{
		"GET " + databasePath, "PUT " + databasePath + "/scale " + scaled + `{"replicas":2}}`,
		"GET " + databasePath, "PUT " + databasePath + "/scale?dryRun=All " + scaled + `{"replicas":0}}`,
		"GET " + databasePath, "DELETE " + databasePath + " " + options + exactly + `,"propagationPolicy":"Foreground","dryRun":["All"]}`,
		"GET " + podPath, "DELETE " + podPath + " " + options + `"gracePeriodSeconds":60,` + exactly + `}`,
		"GET " + nodePath, "DELETE " + nodePath + " " + options + exactly + `}`,
		"GET " + widgetPath, "DELETE " + widgetPath + " " + options + exactly + `}`,
		"GET " + databasePath, "DELETE " + databasePath + " " + options + exactly + `}`,
	}
	if diff := cmp.Diff(want, server.log()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestScaleLiveReportsKindWithoutScale(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	err := client.ScaleLive(t.Context(), c, widget(), 0, nil)
	if err == nil || errors.Is(err, client.ErrGone) || !strings.Contains(err.Error(), "Widget shop/w to 0 replicas: its kind has no scale subresource") {
		t.Errorf("the error is %v, want that Widgets cannot be scaled", err)
	}
}

func TestDestructiveFunctionsRejectInvalidArguments(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	unknown := database()
	unknown.UID = ""
	for want, err := range map[string]error{
		"has no uid":                     client.DeleteLive(t.Context(), c, unknown, nil),
		"it has no uid":                  client.ScaleLive(t.Context(), c, unknown, 0, nil),
		"scale to -1 replicas":           client.ScaleLive(t.Context(), c, database(), -1, nil),
		"option GracePeriod: it is 1.5s": client.DeleteLive(t.Context(), c, database(), nil, client.GracePeriod(1500*time.Millisecond)),
		"option GracePeriod: it is -1s":  client.DeleteLive(t.Context(), c, database(), nil, client.GracePeriod(-time.Second)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	server.expectNoRequests(t)
}
