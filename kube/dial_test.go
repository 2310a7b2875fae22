package kube_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Reads through the buffer must return the sent bytes of any length, and a Dial of the config must be used.
func TestConnectionsReadThroughABuffer(t *testing.T) {
	t.Parallel()
	body := strings.Repeat("0123456789abcdef", 20_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	errOwn := errors.New("the caller's own dial")
	for name, test := range map[string]struct {
		dial func(context.Context, string, string) (net.Conn, error)
		want error
	}{
		"by default":       {nil, nil},
		"the caller's own": {func(context.Context, string, string) (net.Conn, error) { return nil, errOwn }, errOwn},
	} {
		cluster, err := kube.Connect(&rest.Config{Host: server.URL, Dial: test.dial})
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := cluster.HTTPClient().Do(request)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if err != nil {
			continue
		}
		got, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(got) != body {
			t.Errorf("%s: read %d bytes of %d, %v", name, len(got), len(body), err)
		}
		cluster.HTTPClient().CloseIdleConnections()
		if cluster.RESTConfig().Dial != nil {
			t.Errorf("%s: the config has a Dial, with which each client made of it would have its own connections", name)
		}
	}
}

// CloseIdleConnections of the HTTP client closes the connections, also with wrapped transports and HTTP/2.
func TestCloseIdleConnections(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	closed := make(chan struct{}, 1)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	config := &rest.Config{Host: server.URL, BearerToken: "token", TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}}
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return struct{ http.RoundTripper }{rt} })
	cluster, err := kube.Connect(config)
	if err != nil {
		t.Fatal(err)
	}
	response, err := cluster.HTTPClient().Get(server.URL) //nolint:noctx // a local server
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.ProtoMajor != 2 {
		t.Errorf("the response came by %s, want HTTP/2", response.Proto)
	}
	// The connection is idle shortly after the end of the response: a connection that stays open ends with the test's time.
	for {
		cluster.HTTPClient().CloseIdleConnections()
		select {
		case <-closed:
			return
		default:
			runtime.Gosched()
		}
	}
}
