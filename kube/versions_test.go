package kube_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// A kind must be found in the requested version or in another one. It is missing only if no version is served.
func TestResourceInAnyVersion(t *testing.T) {
	t.Parallel()
	server, cluster := connect(t)
	group := metav1.APIGroup{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: "example.com"}
	for _, version := range []string{"v1beta1", "v2", "v1"} {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: "example.com/" + version, Version: version})
	}
	group.PreferredVersion = group.Versions[2]
	server.set("/apis/example.com", respondJSON(http.StatusOK, group))
	server.set("/apis/example.com/v1beta1", resources("example.com/v1beta1"))
	server.set("/apis/example.com/v2", resources("example.com/v2", metav1.APIResource{Name: "apps", Kind: "App", Namespaced: true}))
	server.set("/apis/example.com/v1", resources("example.com/v1",
		metav1.APIResource{Name: "apps", Kind: "App", Namespaced: true}, metav1.APIResource{Name: "olds", Kind: "Old"}))
	in := func(version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: version, Kind: kind}
	}
	for _, test := range []struct {
		kind  schema.GroupVersionKind
		want  string // the version; "": none
		paths []string
	}{
		{in("v2", "App"), "v2", []string{"/apis/example.com/v2"}},
		{in("v2", "App"), "v2", nil},
		{in("v1beta1", "App"), "v1", []string{"/apis/example.com/v1beta1", "/apis/example.com", "/apis/example.com/v1"}},
		{in("v1beta1", "App"), "v1", nil},
		{in("v2", "Old"), "v1", []string{"/apis/example.com/v2", "/apis/example.com"}},
		{in("v0", "Never"), "", []string{"/apis/example.com/v0", "/apis/example.com", "/apis/example.com/v1", "/apis/example.com/v1beta1", "/apis/example.com/v2"}},
		{schema.GroupVersionKind{Group: "nowhere.example.com", Version: "v1", Kind: "App"}, "", []string{"/apis/nowhere.example.com/v1", "/apis/nowhere.example.com"}},
		{schema.GroupVersionKind{Version: "v1", Kind: "Never"}, "", []string{"/api/v1"}},
	} {
		resource, err := cluster.ResourceInAnyVersion(t.Context(), test.kind)
		if resource.Version != test.want || (test.want == "") != errors.Is(err, kube.ErrNotServed) || test.want != "" && err != nil {
			t.Errorf("%s: %v, %v", test.kind, resource, err)
		}
		if paths := server.paths(); !slices.Equal(paths, test.paths) {
			t.Errorf("%s: asked for %q", test.kind, paths)
		}
	}
	// The kind's own version is preferred if it was requested before.
	server.set("/apis/example.com/v1beta1", resources("example.com/v1beta1", metav1.APIResource{Name: "apps", Kind: "App", Namespaced: true}))
	if _, err := cluster.Resource(t.Context(), in("v1beta1", "App")); err != nil {
		t.Fatal(err)
	}
	if resource, err := cluster.ResourceInAnyVersion(t.Context(), in("v1beta1", "App")); err != nil || resource.Version != "v1beta1" {
		t.Errorf("%v, %v", resource, err)
	}
	cluster.Forget(schema.GroupVersion{Group: "example.com", Version: "v1beta1"})
	server.set("/apis/example.com/v1beta1", resources("example.com/v1beta1"))
	// Forget removes the cached version too.
	cluster.Forget(schema.GroupVersion{Group: "example.com", Version: "v1"})
	server.set("/apis/example.com/v1", resources("example.com/v1"))
	if resource, err := cluster.ResourceInAnyVersion(t.Context(), in("v1beta1", "App")); err != nil || resource.Version != "v2" {
		t.Errorf("%v, %v", resource, err)
	}
	// A failed request must not be reported as a missing kind.
	server.set("/apis/example.com", status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable))
	if _, err := cluster.ResourceInAnyVersion(t.Context(), in("v0", "App")); err == nil || errors.Is(err, kube.ErrNotServed) {
		t.Errorf("the error is %v", err)
	}
}
