package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// TLS changes the versions and cipher suites, with and without client certificates. Without it, clients need TLS 1.3.
// The server has HTTP/1.1 only: one HTTP/2 connection could begin and reset any number of requests.
func TestSettingsOfTLS(t *testing.T) {
	t.Parallel()
	const suite = tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	only12 := func(c *tls.Config) {
		c.MinVersion, c.MaxVersion, c.CipherSuites = tls.VersionTLS12, tls.VersionTLS12, []uint16{suite}
		c.NextProtos = []string{"http/1.1"}
	}
	for name, test := range map[string]struct {
		settings     func(*tls.Config)
		highest      uint16 // version of the client
		want         uint16 // version of the connection, 0: refused
		wantedCipher uint16
	}{
		"default":               {highest: tls.VersionTLS13, want: tls.VersionTLS13},
		"default, old client":   {highest: tls.VersionTLS12},
		"TLS 1.2":               {settings: only12, highest: tls.VersionTLS13, want: tls.VersionTLS12, wantedCipher: suite},
		"from 1.2":              {settings: func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }, highest: tls.VersionTLS13, want: tls.VersionTLS13},
		"from 1.2, old client":  {settings: func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }, highest: tls.VersionTLS12, want: tls.VersionTLS12},
		"from 1.2, oldest":      {settings: func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }, highest: tls.VersionTLS11},
		"no connection at all":  {settings: func(c *tls.Config) { c.VerifyConnection = refuse }, highest: tls.VersionTLS12},
		"replaced as a whole":   {settings: func(c *tls.Config) { *c = tls.Config{MinVersion: tls.VersionTLS12} }, highest: tls.VersionTLS12, want: tls.VersionTLS12},
		"no version at the top": {settings: func(c *tls.Config) { c.MinVersion = 0 }, highest: tls.VersionTLS12, want: tls.VersionTLS12},
	} {
		for _, hasClientCA := range []bool{false, true} {
			t.Run(fmt.Sprint(name, hasClientCA), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					authority := newAuthority(t, 100*time.Hour)
					c := serveClientsWith(t, authority.Cert, func(config *Config) {
						config.TLS = test.settings
						if !hasClientCA {
							config.ClientCAFile = ""
						}
					})
					pair, err := authority.New(x509.ExtKeyUsageClientAuth, []string{"apiserver"}, time.Now(), time.Hour)
					if err != nil {
						t.Fatal(err)
					}
					client := c.client(&pair)
					transport := client.Transport.(*http.Transport) //nolint:forcetypeassert // see client
					transport.ForceAttemptHTTP2 = true
					transport.TLSClientConfig.MaxVersion, transport.TLSClientConfig.NextProtos = test.highest, []string{"h2", "http/1.1"}
					transport.TLSClientConfig.MinVersion = tls.VersionTLS10
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.com/"+hookName, nil)
					if err != nil {
						t.Fatal(err)
					}
					res, err := client.Do(req)
					if err != nil {
						if test.want != 0 {
							t.Error(err)
						}
						return
					}
					_ = res.Body.Close()
					if res.TLS.Version != test.want || test.wantedCipher != 0 && res.TLS.CipherSuite != test.wantedCipher || res.ProtoMajor != 1 {
						t.Errorf("%s, %s, %s", tls.VersionName(res.TLS.Version), tls.CipherSuiteName(res.TLS.CipherSuite), res.Proto)
					}
					if test.want != 0 && test.highest >= tls.VersionTLS12 {
						c.expect(client, accepted, accepted)
					}
				})
			})
		}
	}
}

func refuse(tls.ConnectionState) error { return io.ErrUnexpectedEOF }

// The server is ready with each version that the API server has, and with a certificate that TLS sets.
func TestReadyWithSettingsOfTLS(t *testing.T) {
	t.Parallel()
	pair, err := newAuthority(t, time.Hour).NewServer([]string{"example.com"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, settings := range map[string]func(*tls.Config){
		"GetCertificate": func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &own, nil }
		},
		"Certificates, TLS 1.2": func(c *tls.Config) {
			c.Certificates, c.MinVersion, c.MaxVersion = []tls.Certificate{own}, tls.VersionTLS12, tls.VersionTLS12
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := New(Config{Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), allowMaps)}, Listen: "127.0.0.1:0", TLS: settings})
			if err != nil {
				t.Fatal(err)
			}
			testrun.Start(t, s.Run)
			for s.Ready() != nil { // without a limit: otherwise the test ends with the time of go test
				<-time.After(time.Millisecond)
			}
		})
	}
}

// New refuses settings that would have no effect, or with which the API server could not call the hooks.
func TestNewRejectsSettingsOfTLS(t *testing.T) {
	t.Parallel()
	pair, err := newAuthority(t, time.Hour).NewServer([]string{"a"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := writePair(t, t.TempDir(), pair)
	getCertificate := func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, os.ErrNotExist }
	}
	for name, test := range map[string]struct {
		settings func(*tls.Config)
		change   func(*Config)
		want     string
	}{
		"none":                 {},
		"nothing set":          {settings: func(*tls.Config) {}},
		"HTTP/1.1":             {settings: func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }},
		"cipher suites of 1.3": {settings: func(c *tls.Config) { c.CipherSuites = []uint16{tls.TLS_AES_128_GCM_SHA256} }, want: "set MinVersion to tls.VersionTLS12"},
		"MaxVersion below 1.3": {settings: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, want: "TLS sets MaxVersion to less than MinVersion"},
		"MaxVersion below 1.2": {settings: func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, want: "TLS sets MaxVersion to less"},
		"HTTP/2":               {settings: func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }, want: "HTTP/1.1 only"},
		"ClientAuth":           {settings: func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }, want: "use ClientCAFile"},
		"GetConfigForClient": {settings: func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		}, want: "use ClientCAFile"}, //nolint:nilnil // see tls.Config
		"two certificates":      {settings: getCertificate, want: "TLS sets a certificate, and"},
		"managed certificates":  {settings: getCertificate, change: func(c *Config) { c.CertFile, c.KeyFile, c.Certificates = "", "", &Certificates{} }, want: "TLS sets a certificate, and"},
		"a certificate of TLS":  {settings: getCertificate, change: func(c *Config) { c.CertFile, c.KeyFile = "", "" }},
		"no certificate":        {settings: func(*tls.Config) {}, change: func(c *Config) { c.CertFile, c.KeyFile = "", "" }, want: "CertFile and KeyFile, or Certificates, are required"},
		"half a certificate":    {settings: getCertificate, change: func(c *Config) { c.CertFile = "" }, want: "TLS sets a certificate, and"},
		"settings, no address":  {settings: func(*tls.Config) {}, change: func(c *Config) { c.Listen, c.CertFile, c.KeyFile = "", "", "" }, want: "TLS, ClientCAFile or Certificates is set without Listen"},
		"several mistakes":      {settings: func(c *tls.Config) { c.NextProtos, c.ClientAuth = []string{"h2"}, tls.RequestClientCert }, want: "use ClientCAFile"},
		"several mistakes, too": {settings: func(c *tls.Config) { c.NextProtos, c.ClientAuth = []string{"h2"}, tls.RequestClientCert }, want: "HTTP/1.1 only"},
	} {
		config := Config{Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), allowMaps)}, Listen: ":0", CertFile: certFile, KeyFile: keyFile, TLS: test.settings}
		if test.change != nil {
			test.change(&config)
		}
		_, err := New(config)
		if got := fmt.Sprint(err); err != nil != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %q", name, got, test.want)
		}
	}
}

// text returns a handler that responds with a text and the name of a variable in its pattern.
func text(content string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, err := io.ReadAll(req.Body); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		_, _ = io.WriteString(w, content+req.PathValue("name"))
	})
}

// Further handlers are served beside the hooks. Hooks keep their paths, below each prefix, and middleware is for hooks.
func TestFurtherHandlers(t *testing.T) {
	t.Parallel()
	reviewed := 0
	s, err := New(Config{
		Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), allowMaps)},
		Handlers: map[string]http.Handler{"GET /version": text("1.2"), "/files/{name}": text("file "), "POST /sub/": text("below")},
		Middleware: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				reviewed++
				next.ServeHTTP(w, req)
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", maxBodyBytes+1)
	reviews := 0
	for _, test := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/version", "", 200, "1.2"},
		{"HEAD", "/version", "", 200, ""},
		{"POST", "/version", "", 404, "no hook has this name"},
		{"GET", "/files/a", "", 200, "file a"},
		{"POST", "/files/a", large, 413, "too large"},
		{"POST", "/sub/x/y", "", 200, "below"},
		{"POST", "/sub", "", 307, ""},
		{"GET", "/", "", 404, "no hook has this name"},
		{"POST", "/other.example.com", "{}", 404, "no hook has this name"},
		{"POST", "/" + hookName, "{}", 400, "the review is"},
		{"GET", "/" + hookName, "", 405, "a review is sent with POST"},
		{"POST", "/sub/" + hookName, "{}", 400, "the review is"},
		{"POST", "/files/" + hookName, "{}", 400, "the review is"},
	} {
		req := httptest.NewRequestWithContext(t.Context(), test.method, test.path, strings.NewReader(test.body))
		req.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, req)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s %s: %d %q, want %d %q", test.method, test.path, w.Code, w.Body, test.code, test.want)
		}
		if test.code == 400 || test.code == 404 || test.code == 405 {
			reviews++
		}
	}
	if reviewed != reviews {
		t.Errorf("the middleware got %d requests, want %d", reviewed, reviews)
	}
}

// A handler for everything else never gets a review of a hook, and gets reviews of hooks that are not served.
func TestHandlerForAllOtherPaths(t *testing.T) {
	t.Parallel()
	s, err := New(Config{Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), allowMaps)}, Handlers: map[string]http.Handler{"/": text("rest")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, response, text := ask(t, s, mapReview(mapObject)); response == nil || !response.Allowed {
		t.Error(text)
	}
	if code, body := post(t, s, "/other.example.com", []byte("{}")); code != 200 || string(body) != "rest" {
		t.Errorf("another path: %d %s", code, body)
	}
}

func TestNewRejectsHandlers(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Cluster: connect(t), Hooks: []Hook{Validating(mapsOptions(), allowMaps)}, Handlers: map[string]http.Handler{
		"/" + hookName: text(""), "GET example.com/sub/" + hookName: text(""), "/nil": nil, "{": text(""), "/a/{x}": text(""), "/{x}/a": text(""),
	}})
	for _, want := range []string{
		`Handlers["/` + hookName + `"]: the path is that of a hook`, `Handlers["GET example.com/sub/` + hookName + `"]: the path is that of a hook`,
		`Handlers["/nil"]: the handler is nil`, `Handlers["{"]: `, `Handlers["/{x}/a"]: `,
	} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// Client certificates are required for reviews, and not for further handlers.
func TestFurtherHandlersNeedNoClientCertificate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serveClientsWith(t, newAuthority(t, 100*time.Hour).Cert, func(config *Config) {
			config.Handlers = map[string]http.Handler{"/version": text("1.2")}
		})
		client := c.client(nil)
		c.expect(client, required, accepted)
		if got := c.ask(client, "version", nil); got != accepted {
			t.Errorf("a further handler: %s", got)
		}
	})
}
