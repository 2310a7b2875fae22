package manager

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

// httpServer is a server in the log.
type httpServer struct {
	Msg, Address string
	TLS          bool
}

// serve runs a manager until the test ends, and returns its servers when it is ready.
func serve(t *testing.T, config Config) []httpServer {
	t.Helper()
	logs := &testlog.Buffer{}
	config.IgnoreSignals, config.Logger = true, slog.New(slog.NewJSONHandler(logs, nil))
	m, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, m.Run)
	for m.Ready() != nil { // without a limit: otherwise the test ends with the time of go test
		runtime.Gosched()
	}
	var servers []httpServer
	for line := range strings.Lines(logs.String()) {
		var server httpServer
		if err := json.Unmarshal([]byte(line), &server); err != nil {
			t.Fatal(err)
		}
		if server.Msg == "HTTP server started" {
			servers = append(servers, server)
		}
	}
	return servers
}

// request sends a request, and returns the status of the response, the content and the certificate of the server.
func request(t *testing.T, transport *http.Transport, url string) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err.Error(), ""
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	name := ""
	if res.TLS != nil {
		name = res.TLS.PeerCertificates[0].Subject.CommonName
	}
	return res.StatusCode, string(content), name
}

// With ProbeListen, one server has the probes over HTTP, and the other one everything else with TLS. Neither has a path
// of the other one.
func TestProbesOnServerOfTheirOwn(t *testing.T) {
	t.Parallel()
	certificate, key, err := cert.GenerateSelfSignedCertKey("operator", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := writeFile(t, string(certificate)), writeFile(t, string(key))
	cluster, err := kube.Connect(&rest.Config{Host: "http://test.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change  func(*Config)
		server  string // the name in its certificate
		metrics int
	}{
		"certificate of the process": {func(*Config) {}, "localhost", 200},
		"certificate in files":       {func(c *Config) { c.certFile, c.keyFile = certFile, keyFile }, "operator@", 200},
		"authorization":              {func(c *Config) { c.AuthorizeWith = cluster }, "localhost", 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				probes, rest := apitest.NewListener(), apitest.NewListener()
				config := Config{
					Listener: rest, ProbeListen: ",", probes: probes, IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler), Pprof: true,
					Handlers:  map[string]http.Handler{"GET /metrics": okHandler{}, "/healthz": okHandler{}},
					Liveness:  map[string]func() error{"disk": func() error { return nil }},
					Readiness: map[string]func() error{"queue": func() error { return errBroken }},
				}
				test.change(&config)
				m, err := New(config)
				if err != nil {
					t.Fatal(err)
				}
				stop := testrun.Start(t, m.Run)
				synctest.Wait()
				plain := &http.Transport{DisableKeepAlives: true, DialContext: probes.Dial}
				secure := &http.Transport{DisableKeepAlives: true, DialContext: rest.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test
				for path, want := range map[string]int{
					"/livez": 200, "/healthz": 200, "/readyz": 503, "/readyz?exclude=queue": 200, "/metrics": 404, "/debug": 404, "/debug/pprof/heap": 404, "/": 404,
				} {
					if status, text, _ := request(t, plain, "http://localhost"+path); status != want || strings.Contains(text, "figures") {
						t.Errorf("GET %s of the probes: %d %s, want %d", path, status, text, want)
					}
				}
				for path, want := range map[string]int{"/livez": 404, "/readyz": 404, "/metrics": test.metrics, "/healthz": test.metrics} {
					if status, text, server := request(t, secure, "https://localhost"+path); status != want || !strings.HasPrefix(server, test.server) {
						t.Errorf("GET %s: %d %s with the certificate of %q, want %d", path, status, text, server, want)
					}
				}
				plain.DialContext = rest.Dial
				if status, text, _ := request(t, plain, "http://localhost/metrics"); status != 400 {
					t.Errorf("GET /metrics without TLS: %d %s, want 400", status, text)
				}
				if _, text, _ := request(t, &http.Transport{DisableKeepAlives: true, DialContext: probes.Dial, TLSClientConfig: secure.TLSClientConfig}, "https://localhost/livez"); !strings.Contains(text, "does not look like a TLS handshake") {
					t.Errorf("TLS with the probes: %s", text)
				}
				if err := m.Ready(); err == nil || strings.Contains(err.Error(), "probes") {
					t.Errorf("ready: %v", err)
				}
				expectError(t, m.Remove(t.Context(), "probes"), `it has no runnable "probes"`)
				stop()
				// Both ends of a pipe wait for each other if they close TLS at the same time: at most for 5 s (crypto/tls).
				time.Sleep(10 * time.Second)
			})
		})
	}
}

// The probes have addresses of their own, with and without the other server.
func TestProbeListen(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{"": "false false", "127.0.0.1:0": "false false true", "127.0.0.1:0,localhost:0": "false false true true"} {
		t.Run(listen, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, server := range serve(t, Config{
				Listen: listen, ProbeListen: "127.0.0.1:0, localhost:0",
				Liveness: map[string]func() error{"disk": func() error { return nil }},
			}) {
				got = append(got, fmt.Sprint(server.TLS))
				if server.TLS {
					continue
				}
				if status, text, _ := request(t, &http.Transport{DisableKeepAlives: true}, "http://"+server.Address+"/livez"); status != 200 {
					t.Errorf("GET /livez: %d %s", status, text)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("the servers have TLS: %v, want %s", got, want)
			}
		})
	}
}

// A probe server that cannot listen ends the program, as the other one does.
func TestAddressOfProbesInUse(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	m, err := New(Config{Listen: "127.0.0.1:0", ProbeListen: listener.Addr().String(), IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	expectError(t, m.Run(t.Context()), `runnable "probes": listen on `, "address already in use")
}

// New accepts a combination of the settings of servers exactly if each has an effect, and if no token is sent without
// TLS to another host.
func TestCombinationsOfServers(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://test.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("operator", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := writeFile(t, string(certificate)), writeFile(t, string(key))
	local, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = local.Close() }()
	everywhere, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = everywhere.Close() }()
	withTLS := tls.NewListener(everywhere, &tls.Config{MinVersion: tls.VersionTLS13})
	listeners := map[net.Listener]bool{nil: false, apitest.NewListener(): false, local: false, everywhere: true, withTLS: false} // whether others reach it without TLS
	listens := map[string]bool{"": false, "127.0.0.1:1": false, "127.0.0.1:1, localhost:2,[::1]:3": false, ":1": true, "127.0.0.1:1, 10.0.0.1:2": true}
	failed := map[string]int{}
	for listener, exposed := range listeners {
		for listen, alsoExposed := range listens {
			for mask := range 1 << 6 {
				set := func(bit int) bool { return mask&(1<<bit) != 0 }
				config := Config{Listener: listener, Listen: listen, Pprof: set(0)}
				if set(1) {
					config.ProbeListen = "127.0.0.1:9,:10"
				}
				if set(2) {
					config.certFile, config.keyFile = certFile, keyFile
				}
				if set(3) {
					config.AuthorizeWith = cluster
				}
				if set(4) {
					config.Handlers = map[string]http.Handler{"/metrics": okHandler{}}
				}
				if set(5) {
					config.Liveness = map[string]func() error{"disk": func() error { return nil }}
				}
				var want []string
				expect := func(isMistake bool, text string) {
					if isMistake {
						want = append(want, text)
					}
				}
				isServed := listen != "" || listener != nil
				expect(listen != "" && listener != nil, "Listen and Listener are both set")
				expect(!isServed && (set(0) || set(3) || set(4)), "AuthorizeWith, Pprof and Handlers need")
				expect(!isServed && !set(1) && set(5), "Liveness and Readiness need")
				expect(set(3) && !set(1) && !set(2) && (exposed || alsoExposed), "without TLS")
				_, err := New(config)
				if (err == nil) != (len(want) == 0) {
					t.Errorf("%T %q, settings %06b: %v, want %q", listener, listen, mask, err, want)
				}
				for _, text := range want {
					failed[text]++
					if !strings.Contains(fmt.Sprint(err), text) {
						t.Errorf("%T %q, settings %06b: %v lacks %q", listener, listen, mask, err, text)
					}
				}
			}
		}
	}
	if len(failed) != 4 {
		t.Errorf("the mistakes that were tested are %v", failed)
	}
}
