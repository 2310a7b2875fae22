package client_test

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apitest/requestlog"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// stream answers a watch with these events, and then waits until the client closes the connection.
func stream(events ...string) func(w http.ResponseWriter, r *http.Request, body []byte) bool {
	return func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		w.Header().Set("Content-Type", "application/json;stream=watch")
		_, _ = w.Write([]byte(strings.Join(events, "\n")))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return true
	}
}

const podEvent = `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"shop"},"spec":{"nodeName":"n1"}}}`

func watched[T kube.Object](t *testing.T, c *client.Client, selection kube.Selection, options ...client.ReadOption) {
	t.Helper()
	w, err := client.Watch[T](t.Context(), c, selection, options...)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Bookmark} {
		event := <-w.ResultChan()
		obj, ok := event.Object.(T)
		if event.Type != want || !ok {
			t.Fatalf("the event is %+v, want %s with a %s", event, want, reflect.TypeFor[T]())
		}
		if kind := obj.GetObjectKind().GroupVersionKind(); kind.Kind != "Pod" || kind.Version != "v1" {
			t.Errorf("%T: the kind is %s", obj, kind)
		}
	}
	event := <-w.ResultChan()
	if !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) || event.Type != watch.Error {
		t.Errorf("the event is %+v, want an error", event)
	}
	w.Stop()
	w.Stop() // a second Stop is safe
	for range w.ResultChan() {
		t.Error("an event after Stop")
	}
}

func TestWatchDecodesIntoCallersType(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = stream(podEvent,
		`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}`,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`)
	kind := corev1.SchemeGroupVersion.WithKind("Pod")
	watched[*corev1.Pod](t, c, kube.Selection{})
	watched[*unstructured.Unstructured](t, c, kube.Selection{Kind: kind})
	watched[*metav1.PartialObjectMetadata](t, c, kube.Selection{Kind: kind, Namespaces: []string{"shop"}}, client.NotOlderThan("5"))
	want := []string{"GET /api/v1/pods?watch=true", "GET /api/v1/pods?watch=true", "GET /api/v1/namespaces/shop/pods?resourceVersion=5&watch=true"}
	if got := server.log(); !reflect.DeepEqual(got, want) {
		t.Errorf("the requests are %q, want %q", got, want)
	}
}

// TestWatchEndsWithContext: the watch ends even if the caller does not read the events.
func TestWatchEndsWithContext(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = stream(podEvent, podEvent)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := client.Watch[*corev1.Pod](ctx, c, kube.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	<-w.ResultChan()
	cancel()
	for event := range w.ResultChan() {
		if event.Type == watch.Error {
			t.Errorf("the end of the caller's context came as an error: %+v", event)
		}
	}
	// goleak reports the goroutine of this watch if it does not end.
	ctx, cancel = context.WithCancel(t.Context())
	if _, err := client.Watch[*corev1.Pod](ctx, c, kube.Selection{}); err != nil {
		t.Error(err)
	}
	cancel()
}

func TestRejectedWatch(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		refuse(w, apierrors.NewForbidden(errtest.Pods(), "", errors.New("no")))
		return true
	}
	if _, err := client.Watch[*corev1.Pod](t.Context(), c, kube.Selection{}); retry.Classify(err) != retry.Forbidden || !strings.HasPrefix(err.Error(), "watch Pod: ") {
		t.Errorf("the error is %v", err)
	}
	server, c = newServer(t)
	server.handle = stream(`{"type":"ADDED","object":{"metadata":{"name":5}}}`)
	w, err := client.Watch[*corev1.Pod](t.Context(), c, kube.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if event := <-w.ResultChan(); event.Type != watch.Error {
		t.Errorf("the event is %+v, want an error", event)
	}
	w.Stop()
}

// TestRejectedWatchSetsRequestStatus: interceptors see the status of a rejected watch.
func TestRejectedWatchSetsRequestStatus(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		refuse(w, apierrors.NewForbidden(errtest.Pods(), "", errors.New("no")))
		return true
	}
	var recording requestlog.Recording
	c = with(t, c, func(config *client.Config) { config.Interceptors = []client.Interceptor{recording.Intercept} })
	if _, err := client.Watch[*corev1.Pod](t.Context(), c, kube.Selection{}); err == nil {
		t.Fatal("it was not refused")
	}
	if got := recording.Requests(); len(got) != 1 || got[0].Status != http.StatusForbidden {
		t.Errorf("recorded is %+v", got)
	}
}
