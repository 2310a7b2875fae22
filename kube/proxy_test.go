package kube_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// The API server is reached only through a proxy that itself has TLS. Reads, and writes of a leader, which have their own
// connections, use it.
func TestHTTPSProxy(t *testing.T) {
	t.Parallel()
	api := httptest.NewTLSServer(http.HandlerFunc(echo))
	t.Cleanup(api.Close)
	var tunnels atomic.Int64
	proxy := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != "api.test:443" {
			http.Error(w, r.Method+" "+r.Host, http.StatusForbidden)
			return
		}
		tunnels.Add(1)
		to, err := net.Dial("tcp", api.Listener.Addr().String()) //nolint:noctx // a local server
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(http.StatusOK)
		from, sent, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		// The client may have sent its first bytes before the server has given the connection away.
		go func() { _, _ = io.Copy(to, sent); _ = to.Close() }() // ends with the client's connection
		_, _ = io.Copy(from, to)
		_ = from.Close()
	}))
	t.Cleanup(proxy.Close)
	// Both servers have the certificate of httptest.
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw})
	kubeconfig := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: one, cluster: {server: "https://api.test", tls-server-name: example.com, certificate-authority-data: %s, proxy-url: %q}}]
contexts: [{name: one, context: {cluster: one}}]
`, base64.StdEncoding.EncodeToString(roots), proxy.URL)
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	client := clusterOf(t, config).HTTPClient()
	_, leading := lead(t)
	for want, ctx := range map[string]context.Context{"GET HTTP/1.1 x": t.Context(), "POST HTTP/1.1 x": leading} {
		method, _, _ := strings.Cut(want, " ")
		req, err := http.NewRequestWithContext(ctx, method, "https://api.test/api/v1/namespaces/a/configmaps", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := send(client, req); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if n := tunnels.Load(); n != 2 {
		t.Errorf("%d connections through the proxy, want 2: the leader's writes have their own", n)
	}
	client.CloseIdleConnections()
}
