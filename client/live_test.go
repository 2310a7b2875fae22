package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestGetLiveReadsObjectsOfAnyType(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	for _, path := range []string{databasePath, nodePath, widgetPath} {
		server.edit(path, touch) // the caller's copy is outdated
	}
	stale := database()
	got, err := client.GetLive(t.Context(), c, stale)
	if err != nil {
		t.Fatal(err)
	}
	want := database()
	want.ResourceVersion = "8"
	got.TypeMeta = want.TypeMeta // irrelevant: not all decoders set it
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("typed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(database(), stale); diff != "" {
		t.Errorf("the caller's was changed (-want +got):\n%s", diff)
	}

	gotWidget, err := client.GetLive(t.Context(), c, widget())
	if err != nil {
		t.Fatal(err)
	}
	wantWidget := widget()
	wantWidget.SetResourceVersion("8")
	if diff := cmp.Diff(wantWidget, gotWidget); diff != "" {
		t.Errorf("unstructured (-want +got):\n%s", diff)
	}

	known := &metav1.PartialObjectMetadata{TypeMeta: database().TypeMeta, ObjectMeta: database().ObjectMeta}
	gotMeta, err := client.GetLive(t.Context(), c, known)
	if err != nil {
		t.Fatal(err)
	}
	wantMeta := known.DeepCopy()
	wantMeta.ResourceVersion = "8"
	if diff := cmp.Diff(wantMeta, gotMeta); diff != "" {
		t.Errorf("metadata only (-want +got):\n%s", diff)
	}

	gotNode, err := client.GetLive[kube.Object](t.Context(), c, node())
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := gotNode.(*corev1.Node); !ok || n.ResourceVersion != "8" {
		t.Errorf("as an interface, without a namespace: got %#v", gotNode)
	}
}

func TestContract14_LiveReportsGoneReplacedAndChanged(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		happened func(*unstructured.Unstructured)
		options  []client.ReadOption
		want     error
		is       func(error) bool
		says     string
	}{
		"nothing":            {happened: func(*unstructured.Unstructured) {}},
		"nothing, unchanged": {happened: func(*unstructured.Unstructured) {}, options: []client.ReadOption{client.IfUnchanged()}},
		"changed":            {happened: touch},
		"changed, and must not be": {
			touch,
			[]client.ReadOption{client.IfUnchanged()},
			client.ErrChanged, apierrors.IsConflict, "the resourceVersion is 8, it was 7",
		},
		"replaced": {replace, nil, client.ErrReplaced, apierrors.IsConflict, "the uid is u2, it was u1"},
		"replaced, unchanged": {
			replace,
			[]client.ReadOption{client.IfUnchanged()},
			client.ErrReplaced, apierrors.IsConflict, "the uid is u2, it was u1",
		},
		"gone": {nil, nil, client.ErrGone, apierrors.IsNotFound, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, c := newServer(t)
			server.edit(databasePath, test.happened)
			got, err := client.GetLive(t.Context(), c, database(), test.options...)
			if !errors.Is(err, test.want) {
				t.Fatalf("the error is %v, want %v", err, test.want)
			}
			if test.want == nil {
				return
			}
			if got != nil {
				t.Errorf("with the error came %v, want nothing", got)
			}
			if !test.is(err) {
				t.Errorf("%v: apimachinery does not know it", err)
			}
			for _, part := range []string{"read StatefulSet shop/db: ", test.says} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error lacks %q: %v", part, err)
				}
			}
		})
	}
}

func TestUnservedKindIsNotReportedAsGone(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	if _, err := client.GetLive(t.Context(), c, widget()); err != nil {
		t.Fatal(err)
	}
	server.mu.Lock()
	server.unserved = true
	server.mu.Unlock()
	_, err := client.GetLive(t.Context(), c, widget())
	if !errors.Is(err, kube.ErrNotServed) || errors.Is(err, client.ErrGone) {
		t.Errorf("the error is %v, want that the kind is not served, and nothing about the object", err)
	}
	server.mu.Lock()
	before := server.asked
	server.unserved = false // it is installed again
	server.mu.Unlock()
	if _, err := client.GetLive(t.Context(), c, widget()); err != nil {
		t.Error(err)
	}
	server.mu.Lock()
	if server.asked == before {
		t.Error("the cluster was not asked again how it serves the kind")
	}
	server.mu.Unlock()
	other := widget()
	other.SetKind("Gadget")
	if _, err := client.GetLive(t.Context(), c, other); !errors.Is(err, kube.ErrNotServed) {
		t.Errorf("a kind that never was: %v", err)
	}
}

func TestGetLiveRejectsUnidentifiedObjects(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	with := func(change func(*metav1.ObjectMeta)) kube.Object {
		obj := database()
		change(&obj.ObjectMeta)
		return obj
	}
	for name, test := range map[string]struct {
		obj     kube.Object
		options []client.ReadOption
		want    string
	}{
		"nil":           {nil, nil, "the object is nil"},
		"a nil pointer": {(*corev1.Pod)(nil), nil, "the object is nil"},
		"no name":       {with(func(m *metav1.ObjectMeta) { m.Name = "" }), nil, "has no name"},
		"no namespace":  {with(func(m *metav1.ObjectMeta) { m.Namespace = "" }), nil, "has no namespace"},
		"no uid":        {with(func(m *metav1.ObjectMeta) { m.UID = "" }), nil, "has no uid"},
		"no version": {
			with(func(m *metav1.ObjectMeta) { m.ResourceVersion = "" }),
			[]client.ReadOption{client.IfUnchanged()},
			"has no resourceVersion",
		},
		"no kind": {&metav1.PartialObjectMetadata{ObjectMeta: meta("shop", "db")}, nil, "set its apiVersion and kind"},
	} {
		_, err := client.GetLive(t.Context(), c, test.obj, test.options...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, test.want)
		}
	}
	if _, err := client.GetLive(t.Context(), nil, database()); err == nil || !strings.Contains(err.Error(), "the client is nil") {
		t.Errorf("without a client: %v", err)
	}
	server.expectNoRequests(t)
}

func TestGetLiveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	_, c := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.GetLive(ctx, c, database()); !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrGone) {
		t.Errorf("the error is %v, want that of the context", err)
	}
}
