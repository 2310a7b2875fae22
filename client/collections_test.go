package client_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// TestMissingCollectionIsNotServed: the response of an aggregated API server that has dropped a kind must not count as
// an empty list. Otherwise a controller would delete all dependents of the missing objects.
func TestMissingCollectionIsNotServed(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		refuse(w, apierrors.NewNotFound(errtest.Pods(), ""))
		return true
	}
	_, listed := client.All[*corev1.Pod](t.Context(), c, kube.Selection{})
	_, watched := client.Watch[*corev1.Pod](t.Context(), c, kube.Selection{})
	for name, err := range map[string]error{
		"list": listed, "watch": watched, "deletecollection": client.DeleteAllOf[*corev1.Pod](t.Context(), c, kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}),
	} {
		if !errors.Is(err, kube.ErrNotServed) || errors.Is(err, client.ErrGone) || client.IgnoreNotFound(err) == nil {
			t.Errorf("%s: the error is %v, a %s", name, err, retry.Classify(err))
		}
	}
}

// TestDecodeErrorNamesObject: a list may have thousands of objects and only one that cannot be decoded.
func TestDecodeErrorNamesObject(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	const odd = `{"metadata":{"namespace":"shop","name":"odd"},"spec":{"nodeName":7}}`
	server.handle = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		body := `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"shop","name":"fine"}},` + odd + `]}`
		if r.URL.Query().Has("watch") {
			body = `{"type":"ADDED","object":` + odd + `}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body)) // the test fails below if the client has closed the connection
		return true
	}
	_, err := client.All[*corev1.Pod](t.Context(), c, kube.Selection{})
	if err == nil || !strings.Contains(err.Error(), "list Pod: decode Pod shop/odd: json: cannot unmarshal number") {
		t.Errorf("the error is %v", err)
	}
	stream, err := client.Watch[*corev1.Pod](t.Context(), c, kube.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Stop()
	event := <-stream.ResultChan()
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !strings.Contains(err.Error(), "Pod shop/odd: json: cannot unmarshal number") {
		t.Errorf("the event is %v", event)
	}
}

// TestListEndsWhenEveryPageExpires: the server always offers a token to continue.
func TestListEndsWhenEveryPageExpires(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	asked := 0 // by sequential requests
	server.handle = func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		asked++
		if asked == 1 {
			respond(w, http.StatusOK, metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{Continue: "a"}})
			return true
		}
		expired := apierrors.NewResourceExpired("forgotten")
		expired.ErrStatus.Continue = strings.Repeat("a", asked%50)
		refuse(w, expired)
		return true
	}
	var err error
	for _, err = range client.List[*corev1.Pod](t.Context(), c, kube.Selection{}) {
		if asked > 10 {
			t.Fatal("it never ends")
		}
	}
	if !apierrors.IsResourceExpired(err) || asked != 3 {
		t.Errorf("after %d requests: %v", asked, err)
	}
}

// TestMetadataFromServersWithoutPartialObjects: some aggregated API servers return only whole objects.
func TestMetadataFromServersWithoutPartialObjects(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		accepts := strings.Split(r.Header.Get("Accept"), ",")
		if !strings.Contains(accepts[0], ";as=PartialObjectMetadata") || accepts[len(accepts)-1] != "application/json" {
			http.Error(w, "not acceptable", http.StatusNotAcceptable)
			return true
		}
		if r.URL.Path == "/api/v1/pods" {
			respond(w, http.StatusOK, corev1.PodList{Items: []corev1.Pod{{ObjectMeta: meta("shop", "db-0"), Spec: corev1.PodSpec{NodeName: "n1"}}}})
			return true
		}
		respond(w, http.StatusOK, corev1.Pod{ObjectMeta: meta("shop", "db-0"), Spec: corev1.PodSpec{NodeName: "n1"}})
		return true
	}
	exists, err := client.Exists[*corev1.Pod](t.Context(), c, kube.Key{Namespace: "shop", Name: "db-0"})
	if !exists || err != nil {
		t.Errorf("it exists: %t, %v", exists, err)
	}
	names, err := client.Keys[*corev1.Pod](t.Context(), c, kube.Selection{})
	if len(names) != 1 || err != nil {
		t.Errorf("the names are %v, %v", names, err)
	}
}

// TestDeleteAllOfRejectsEmptySelector: an empty selector may have been computed from an empty value.
func TestDeleteAllOfRejectsEmptySelector(t *testing.T) {
	t.Parallel()
	server, c := newServer(t)
	server.handle = echo
	for name, selection := range map[string]kube.Selection{
		"no selector": {}, "a blank selector": {LabelSelector: " "}, "labels of an empty map": {LabelSelector: labels.Set(nil).String()},
	} {
		selection.Namespaces = []string{"shop"}
		err := client.DeleteAllOf[*corev1.Pod](t.Context(), c, selection)
		if err == nil || !strings.Contains(err.Error(), "so it selects all objects") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	server.expectNoRequests(t)
	all := kube.Selection{Namespaces: []string{"shop", "bank", "shop"}, FieldSelector: "metadata.name!="}
	if err := client.DeleteAllOf[*corev1.Pod](t.Context(), c, all); err != nil {
		t.Error(err)
	}
	const options = `{"kind":"DeleteOptions","apiVersion":"v1"}`
	want := []string{
		"DELETE /api/v1/namespaces/shop/pods?fieldSelector=metadata.name%21%3D " + options, "DELETE /api/v1/namespaces/bank/pods?fieldSelector=metadata.name%21%3D " + options,
	}
	if got := server.log(); !cmp.Equal(got, want) {
		t.Errorf("the requests are %q, want %q", got, want)
	}
}
