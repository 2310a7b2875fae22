package kube_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestSubresourceKinds(t *testing.T) {
	t.Parallel()
	widgets := apitest.WithStatus(apiserver.Custom(schema.GroupVersionKind{Group: "shop.example.com", Version: "v1", Kind: "Widget"}, "widgets"))
	o := &observer{}
	ctx := kube.ObserveCalls(t.Context(), o)
	cluster := connectTo(t, apitest.New(widgets, configMaps()).Config("test"))
	unasked := kube.Resource{GroupVersionResource: widgets.GroupVersion().WithResource("widgets"), Kind: "Widget"}
	if _, known := cluster.SubresourceKind(unasked, "status"); known {
		t.Error("a kind is known before it was requested")
	}
	resource, err := cluster.Resource(ctx, widgets.GroupVersionKind)
	if err != nil {
		t.Fatal(err)
	}
	asked := o.began
	if kind, known := cluster.SubresourceKind(resource, "status"); !known || kind != widgets.GroupVersionKind {
		t.Errorf("the kind of the status is %s, known: %t", kind, known)
	}
	if _, known := cluster.SubresourceKind(resource, "scale"); known {
		t.Error("it is known to have a scale")
	}
	cluster.Forget(widgets.GroupVersion())
	if _, known := cluster.SubresourceKind(resource, "status"); known {
		t.Error("a kind is known after Forget")
	}
	if o.began != asked {
		t.Errorf("%d requests were made, want none", o.began-asked)
	}
}

// The kind of a subresource may be in another group than the object.
func TestSubresourcesOfAnotherGroup(t *testing.T) {
	t.Parallel()
	const list = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","namespaced":true},` +
		`{"name":"deployments/scale","kind":"Scale","group":"autoscaling","version":"v1","namespaced":true},{"name":"deployments/proxy","kind":"Proxy"}]}`
	cluster := connectTo(t, &rest.Config{Host: "http://server", Transport: roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(list)),
		}, nil
	})})
	resource, err := cluster.Resource(t.Context(), schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if err != nil {
		t.Fatal(err)
	}
	if kind, known := cluster.SubresourceKind(resource, "scale"); !known || kind != (schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}) {
		t.Errorf("the kind of the scale is %s, known: %t", kind, known)
	}
	if _, known := cluster.SubresourceKind(resource, "proxy/a/path"); !known {
		t.Error("a path behind a subresource hides it")
	}
}
