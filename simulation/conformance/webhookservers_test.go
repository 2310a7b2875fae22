package conformance

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/evenkeel-go/evenkeel/simulation"
)

// webhookServers are the real server, which calls a handler over TLS, and a simulated cluster, which calls the same handler.
type webhookServers struct {
	real, memory *server
	url, bundle  string // of the listener; bundle is a JSON string
}

func newWebhookServers(t *testing.T, handler http.Handler) webhookServers {
	t.Helper()
	if local.Existing() {
		t.Skip("an existing cluster cannot call a webhook on this host")
	}
	listener := httptest.NewTLSServer(handler)
	t.Cleanup(listener.Close)
	bundle, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: listener.Certificate().Raw}))
	if err != nil {
		t.Fatal(err)
	}
	return webhookServers{real: realServer(t), memory: simulated(t, handler), url: listener.URL, bundle: string(bundle)}
}

// client returns the clientConfig of a webhook.
func (s webhookServers) client(path string) string {
	return fmt.Sprintf(`{"url":"%s/%s","caBundle":%s}`, s.url, path, s.bundle)
}

// simulated returns a simulated cluster with a handler of webhooks.
func simulated(t *testing.T, handler http.Handler) *server {
	t.Helper()
	cluster := simulation.New(t, simulation.Config{WithoutControllers: true})
	cluster.HandleWebhooks(handler)
	return &server{name: "memory", client: &http.Client{Transport: cluster.RESTConfig("conformance").Transport}, base: "http://simulation.invalid"}
}
