package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// openProxy returns an open proxy in front of a handler, and a client that trusts it.
func openProxy(t *testing.T, handler http.HandlerFunc) (*proxy, *http.Client) {
	t.Helper()
	backend := httptest.NewUnstartedServer(handler)
	backend.EnableHTTP2 = true
	backend.StartTLS()
	t.Cleanup(backend.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: backend.Certificate().Raw})
	p, err := newProxy(&rest.Config{Host: backend.URL, BearerToken: "administrator", TLSClientConfig: rest.TLSClientConfig{CAData: authority}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(p.authority)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig.RootCAs = roots
	t.Cleanup(transport.CloseIdleConnections)
	return p, &http.Client{Transport: transport}
}

func TestProxyCountsRequestsAndBytes(t *testing.T) {
	t.Parallel()
	p, client := openProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Authorization"); got != "Bearer administrator" {
			t.Errorf("the API server gets the credentials %q", got)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusConflict)
		}
		_, _ = w.Write(append(body, '!'))
	})
	const path = "/api/v1/namespaces/a/configmaps/b"
	for _, test := range []struct{ method, body string }{{"GET", ""}, {"PUT", "12345"}, {"PUT", "123"}} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "https://"+p.address+path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer operator")
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(text) != test.body+"!" || response.ProtoMajor != 2 {
			t.Errorf("%s: %q, %v, HTTP/%d; want %q over HTTP/2", test.method, text, err, response.ProtoMajor, test.body+"!")
		}
	}
	if diff := cmp.Diff(map[string]int{"get configmaps": 1, "update configmaps": 2}, p.requests); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"409 update configmaps": 2}, p.failures); diff != "" {
		t.Error(diff)
	}
	if sent, received := p.sent.Load(), p.received.Load(); sent != 8 || received != 11 {
		t.Errorf("%d bytes sent and %d received, want 8 and 11", sent, received)
	}
}

func TestClosedProxyCutsWatchesAndRefusesConnections(t *testing.T) { //nolint:paralleltest // another test could listen on the closed port
	ended := make(chan struct{})
	p, client := openProxy(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(ended)
	})
	get := func() (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.address+"/api/v1/pods?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(request)
	}
	response, err := get()
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	first := make([]byte, len("event"))
	if _, err := io.ReadFull(response.Body, first); err != nil {
		t.Fatal(err) // the event must not wait for the end of the response
	}
	if p.quietFor() == 0 {
		t.Error("a watch counts as a request in progress")
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(response.Body); err == nil {
		t.Error("the watch ended without an error")
	}
	<-ended
	if second, err := get(); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			_ = second.Body.Close()
		}
		t.Errorf("a request to the closed proxy: %v, want that the connection is refused", err)
	}
	address := p.address
	if err := p.open(t.Context()); err != nil || p.address != address {
		t.Errorf("open again: %v, address %s, want %s", err, p.address, address)
	}
}
