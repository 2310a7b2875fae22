package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

type httpHandler = http.Handler

type okHandler struct{}

func (okHandler) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "figures 1\n")
}

func TestHTTPServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := apitest.NewListener()
		var j journal
		cache := &part{name: "cache", journal: &j, notReady: errors.New("Pods are forbidden")}
		broken := &part{name: "broken", journal: &j, run: func(context.Context) error { return errBroken }}
		config := Config{
			Runnables:     []Runnable{{Runner: cache, Group: Caches}, {Runner: broken, Group: Servers, OnFailure: Continue}},
			Listener:      listener,
			Handlers:      map[string]http.Handler{"GET /metrics": okHandler{}},
			Liveness:      map[string]func() error{"disk": func() error { return nil }},
			Readiness:     map[string]func() error{"queue": func() error { panic("broken check") }},
			IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler),
		}
		m, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		stop := testrun.Start(t, m.Run)
		transport := &http.Transport{DisableKeepAlives: true, DialContext: listener.Dial}
		get := func(path string) (int, string) {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}
		expect := func(path string, wantStatus int, parts ...string) {
			t.Helper()
			status, text := get(path)
			if status != wantStatus {
				t.Errorf("GET %s: status %d, want %d", path, status, wantStatus)
			}
			for _, part := range parts {
				if !strings.Contains(text, part) {
					t.Errorf("GET %s: %q lacks %q", path, text, part)
				}
			}
		}
		// The server runs before the caches are ready.
		time.Sleep(time.Second) // broken has failed, and cache runs
		if _, text := get("/readyz"); !strings.Contains(text, "broken ok (failed, and is not needed: broken)") {
			t.Errorf("GET /readyz: %s", text)
		}
		expect("/readyz", 503, "[-]cache failed: Pods are forbidden\n", "[-]queue failed: check queue panicked: broken check\n",
			"[+]http ok\n", "readyz check failed\n")
		expect("/readyz?exclude=cache&exclude=queue&exclude=none", 200, "ok\n")
		expect("/readyz?verbose&exclude=cache&exclude=queue&exclude=none", 200, "[+]cache excluded: ok\n", `no check "none"`, "readyz check passed\n")
		expect("/livez", 200, "ok\n")
		expect("/healthz", 200, "ok\n")
		expect("/livez?verbose", 200, "[+]disk ok\nlivez check passed\n")
		expect("/metrics", 200, "figures 1\n")
		expect("/other", 404)
		stop()
		if conn, err := listener.Dial(t.Context(), "", ""); err == nil {
			t.Error("the listener is still open after the end")
			_ = conn.Close()
		}
	})
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	m, err := New(Config{Listen: listener.Addr().String(), IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	expectError(t, m.Run(t.Context()), `runnable "http": listen on `, "address already in use")
}

func TestHTTPServerWithTLS(t *testing.T) {
	t.Parallel()
	cert, key, err := cert.GenerateSelfSignedCertKey("operator", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	servers := serve(t, Config{
		Listen: "127.0.0.1:0, localhost:0", certFile: writeFile(t, string(cert)), keyFile: writeFile(t, string(key)),
	})
	if len(servers) != 2 {
		t.Errorf("listens on %v, want two addresses", servers)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots}}
	for _, server := range servers {
		if status, _, _ := request(t, transport, "https://"+server.Address+"/readyz"); status != http.StatusOK {
			t.Errorf("GET /readyz: status %d", status)
		}
	}
}

func TestInvalidHTTPServer(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://test.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	for want, config := range map[string]Config{
		"AuthorizeWith, Pprof and Handlers need Listen": {AuthorizeWith: cluster},
		"Listen and ProbeListen have the address :1":    {Listen: ":2, :1", ProbeListen: ":1"},
		`"," has no address`:                            {Listen: ",", ProbeListen: ":1"},
		`" " has no address`:                            {ProbeListen: " "},
		"tokens to :1 without TLS":                      {Listen: "127.0.0.1:0, :1", AuthorizeWith: cluster},
		"tokens to 10.0.0.1:1 without":                  {Listen: "10.0.0.1:1, [::1]:1,localhost:1", AuthorizeWith: cluster},
		"read the certificate: open /a:":                {Listen: ":0", certFile: "/a", keyFile: "/b"},
	} {
		_, err := New(config)
		expectError(t, err, want)
	}
}

func TestNewReportsInvalidChecksInOrder(t *testing.T) {
	t.Parallel()
	checks := map[string]func() error{}
	var want []string
	for i := range 5 {
		checks[fmt.Sprint("c", i)] = nil
	}
	for _, field := range []string{"Liveness", "Readiness"} {
		for i := range 5 {
			want = append(want, fmt.Sprintf("%s[%q]", field, fmt.Sprint("c", i)))
		}
	}
	_, err := New(Config{Listen: "localhost:0", Liveness: checks, Readiness: checks})
	text := fmt.Sprint(err)
	for _, part := range want {
		_, after, found := strings.Cut(text, part)
		if !found {
			t.Fatalf("%s is missing or not in order: %v", part, err)
		}
		text = after
	}
}

func TestOwnHandlerReplacesHealthz(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"/healthz", "GET /healthz"} {
		config := Config{Listener: apitest.NewListener(), IgnoreSignals: true, Handlers: map[string]http.Handler{pattern: http.NotFoundHandler()}}
		if _, err := New(config); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}
