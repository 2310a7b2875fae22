package middleware_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/fakeserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

func webKey() kube.Key { return kube.Key{Namespace: "shop", Name: "web"} }

// The requests that tests count.
const (
	getWeb    = "GET /api/v1/namespaces/shop/services/web"
	patchWeb  = "PATCH /api/v1/namespaces/shop/services/web"
	statusWeb = "PATCH /api/v1/namespaces/shop/services/web/status"
)

// newServer returns a server with one Service, whose status has standard conditions, and a
// client of it.
func newServer(t *testing.T) (*fakeserver.Server, *client.Client) {
	t.Helper()
	server, c, err := makeServer()
	if err != nil {
		t.Fatal(err)
	}
	return server, c
}

// makeServer is newServer for examples too.
func makeServer() (*fakeserver.Server, *client.Client, error) {
	server := fakeserver.New(fakeserver.Kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Service"), Resource: "services", Status: true})
	cluster, err := kube.Connect(server.Config("test"))
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Config{Cluster: cluster, Interceptors: []client.Interceptor{patchesOf(server)}})
	if err != nil {
		return nil, nil, err
	}
	edit(server, func(map[string]any) {})
	return server, c, nil
}

// patchesOf does what the server cannot: JSON patches. They become updates of what they were made
// for.
func patchesOf(server *fakeserver.Server) client.Interceptor {
	return func(next client.RoundTrip) client.RoundTrip {
		return func(ctx context.Context, r *client.Request) error {
			if r.PatchType != types.JSONPatchType {
				return next(ctx, r)
			}
			obj := server.Object(r.Resource.Resource, r.Key)
			if obj == nil {
				return next(ctx, r)
			}
			patch, err := jsonpatch.DecodePatch(r.Body)
			if err != nil {
				return err
			}
			encoded, err := json.Marshal(obj.Object)
			if err != nil {
				return err
			}
			patched, err := patch.Apply(encoded)
			if err != nil {
				return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", r.Resource.GroupResource(), r.Key.Name, err.Error(), 0, false)
			}
			changed := &unstructured.Unstructured{}
			if err := changed.UnmarshalJSON(patched); err != nil {
				return err
			}
			r.Verb, r.PatchType, r.Body, r.Object = client.VerbUpdate, "", nil, changed
			return next(ctx, r)
		}
	}
}

// edit changes the Service by another hand.
func edit(server *fakeserver.Server, change func(obj map[string]any)) {
	server.Edit("services", webKey(), "others", func(obj map[string]any) bool {
		change(obj)
		return true
	})
}

// web reads the Service, as an informer would have it.
func web(t *testing.T, server *fakeserver.Server, c *client.Client) *corev1.Service {
	t.Helper()
	service, err := client.Get[*corev1.Service](t.Context(), c, webKey())
	if err != nil {
		t.Fatal(err)
	}
	service.ManagedFields = nil
	server.Requests()
	return service
}
