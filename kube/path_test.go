package kube_test

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

type refusing struct{ sent []string }

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	r.sent = append(r.sent, req.URL.Path)
	return nil, errors.New("refused")
}

// No request of any client of a Cluster leaves the process with ".." or a control character in its path.
func TestInvalidPathsAreNotSent(t *testing.T) {
	t.Parallel()
	base := &refusing{}
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1", Transport: base})
	if err != nil {
		t.Fatal(err)
	}
	core, err := cluster.RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a\nb", "\x00", "\r\n"} {
		if err := core.Get().Namespace("shop").Resource("pods").Name(name).Do(t.Context()).Error(); err == nil || !strings.Contains(err.Error(), "control characters") {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for _, path := range []string{"/api/v1/namespaces/../secrets", "/api/v1/namespaces/shop/pods/..", "/api/v1/./pods", "/version\n"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, (&url.URL{Scheme: "http", Host: "127.0.0.1:1", Path: path}).String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := cluster.HTTPClient().Do(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "the path of the request") {
			t.Errorf("path %q: %v", path, err)
		}
	}
	for _, kind := range []schema.GroupVersionKind{
		{Group: "..", Version: "v1", Kind: "A"}, {Group: "a/..", Version: "v1", Kind: "A"}, {Version: "..", Kind: "A"}, {Group: "apps", Version: "a\nb", Kind: "A"},
	} {
		if _, err := cluster.Resource(t.Context(), kind); err == nil || strings.Contains(err.Error(), "refused") {
			t.Errorf("kind %q: %v", kind, err)
		}
		if _, err := cluster.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err == nil || kind.Group != "" && kind.Group != "apps" && strings.Contains(err.Error(), "refused") {
			t.Errorf("mapping of kind %q: %v", kind, err)
		}
	}
	for _, path := range base.sent {
		if strings.Contains(path, "..") || strings.ContainsAny(path, "\n\r\x00") || path == "/v1" {
			t.Errorf("the request for %q was sent", path)
		}
	}
}
