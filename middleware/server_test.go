package middleware_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/kube"
)

func webKey() kube.Key { return kube.Key{Namespace: "shop", Name: "web"} }

// Requests that the tests count.
const (
	getWeb    = "GET /api/v1/namespaces/shop/services/web"
	patchWeb  = "PATCH /api/v1/namespaces/shop/services/web"
	statusWeb = "PATCH /api/v1/namespaces/shop/services/web/status"
)

// newServer returns a server with one Service that has standard conditions in its status, and a client of the server.
func newServer(t *testing.T) (*apitest.Server, *client.Client) {
	t.Helper()
	server, c, err := makeServer()
	if err != nil {
		t.Fatal(err)
	}
	return server, c
}

// makeServer is like newServer, but returns errors, for examples.
func makeServer() (*apitest.Server, *client.Client, error) {
	// Services stand for a kind with conditions and generations. The real server counts no generations of Services.
	services := apiserver.Builtin[corev1.Service](corev1.SchemeGroupVersion.WithKind("Service"), "services", corev1.AddToScheme)
	services.Status, services.Generation = true, true
	server := apitest.New(services)
	cluster, err := kube.Connect(server.Config("test"))
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(client.Config{Cluster: cluster})
	if err != nil {
		return nil, nil, err
	}
	edit(server, func(map[string]any) {})
	return server, c, nil
}

// edit changes the Service as another client.
func edit(server *apitest.Server, change func(obj map[string]any)) {
	server.Edit("services", webKey(), "others", func(obj map[string]any) bool {
		change(obj)
		return true
	})
}

// web reads the Service in the form that an informer would have.
func web(t *testing.T, server *apitest.Server, c *client.Client) *corev1.Service {
	t.Helper()
	service, err := client.Get[*corev1.Service](t.Context(), c, webKey())
	if err != nil {
		t.Fatal(err)
	}
	service.ManagedFields = nil
	server.Requests()
	return service
}
