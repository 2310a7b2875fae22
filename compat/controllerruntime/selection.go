package controllerruntime

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/evenkeel-go/evenkeel/kube"
)

// selectionOf returns what controller-runtime's cache would list with lw: the kind, the namespace and the selectors.
// cache.Options determine them, but only lw has them. selectionOf lets lw list, and reads them from the request, which
// recorder answers.
func (f *informerFactory) selectionOf(lw toolscache.ListerWatcher, obj runtime.Object) (kube.Selection, error) {
	var requested url.URL
	ctx := context.WithValue(context.Background(), requestedURL{}, &requested)
	// The list is empty. Its error is that of the answer, which has no kind, unless no request was made.
	_, err := toolscache.ToListerWatcherWithContext(lw).ListWithContext(ctx, metav1.ListOptions{})
	if requested.Path == "" {
		return kube.Selection{}, fmt.Errorf("find what an informer of %T selects: %w", obj, err)
	}
	query := requested.Query()
	selection := kube.Selection{LabelSelector: query.Get("labelSelector"), FieldSelector: query.Get("fieldSelector")}
	steps := strings.Split(requested.Path, "/")
	if n := len(steps); n > 3 && steps[n-3] == "namespaces" {
		selection.Namespaces = []string{steps[n-2]}
		steps = append(steps[:n-3], steps[n-1])
	}
	if selection.Kind, err = f.kindOf(obj, steps); err != nil {
		return kube.Selection{}, fmt.Errorf("find the kind of a %T: %w", obj, err)
	}
	return selection, nil
}

// kindOf returns the kind of obj. A Go type may be registered for several kinds: if obj does not name one, it is that
// of the listed resource, with which path ends, without a namespace.
func (f *informerFactory) kindOf(obj runtime.Object, path []string) (schema.GroupVersionKind, error) {
	kind, err := apiutil.GVKForObject(obj, f.scheme)
	if err == nil || len(path) < 4 {
		return kind, err
	}
	n := len(path)
	resource := schema.GroupVersionResource{Version: path[n-2], Resource: path[n-1]}
	if path[n-4] == "apis" {
		resource.Group = path[n-3]
	}
	return f.mapper.KindFor(resource)
}

// requestedURL is the key of the *url.URL in a context that recorder sets.
type requestedURL struct{}

// recorder answers each request with an empty object, and records its URL.
type recorder struct{}

// RoundTrip implements http.RoundTripper.
func (recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	if requested, ok := req.Context().Value(requestedURL{}).(*url.URL); ok {
		*requested = *req.URL
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": []string{runtime.ContentTypeJSON}},
		Body:   io.NopCloser(strings.NewReader("{}")),
	}, nil
}
