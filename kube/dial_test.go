package kube_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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
