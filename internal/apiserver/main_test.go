package apiserver

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const configMapsPath = "/api/v1/namespaces/shop/configmaps"

// widgets is a custom kind with a status.
func widgets() *Kind {
	k := Custom(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, "widgets")
	k.Status = true
	return k
}

// newServer returns a server whose namespaces exist.
func newServer(tb testing.TB, change ...func(*Config)) *Server {
	tb.Helper()
	config := Config{Kinds: []*Kind{ConfigMaps(), Secrets(), Namespaces(), Leases(), widgets()}, NamespacesExist: true, Seed: 1}
	for _, c := range change {
		c(&config)
	}
	s, err := New(config)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// send makes a request with a JSON body and returns the code and the body of the response.
func send(tb testing.TB, s *Server, method, path, body string, headers ...string) (int, string) {
	tb.Helper()
	req, err := http.NewRequestWithContext(tb.Context(), method, "http://apiserver.invalid"+path, strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Transport().RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// mustSend is send for a request that succeeds.
func mustSend(tb testing.TB, s *Server, method, path, body string, headers ...string) string {
	tb.Helper()
	code, text := send(tb, s, method, path, body, headers...)
	if code >= 300 {
		tb.Fatalf("%s %s: %d %s", method, path, code, text)
	}
	return text
}
