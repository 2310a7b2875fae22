package manager

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/certificates/certtest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

// The settings apply with each certificate: of files, of TLS itself, and of the process. The default is TLS 1.3.
func TestSettingsOfTLS(t *testing.T) {
	t.Parallel()
	certificate, key, err := cert.GenerateSelfSignedCertKey("operator", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := writeFile(t, string(certificate)), writeFile(t, string(key))
	withClients := func(c *tls.Config, clients *x509.CertPool) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, clients
	}
	only12 := func(c *tls.Config, _ *x509.CertPool) {
		c.MinVersion, c.CipherSuites = tls.VersionTLS12, []uint16{tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}
	}
	for source, open := range map[string]func(c *Config, settings *tls.Config){
		"files":       func(c *Config, _ *tls.Config) { c.certFile, c.keyFile = certFile, keyFile },
		"TLS":         func(_ *Config, settings *tls.Config) { settings.Certificates = []tls.Certificate{pair} },
		"the process": func(c *Config, _ *tls.Config) { c.ProbeListen = "," },
		"a function": func(_ *Config, settings *tls.Config) {
			settings.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
		},
	} {
		for name, test := range map[string]struct {
			settings func(c *tls.Config, clients *x509.CertPool)
			client   *tls.Config
			sends    string // the authority of its certificate
			want     int    // 0: no connection
		}{
			"default":                        {want: 200},
			"default, client of 1.2":         {client: &tls.Config{MaxVersion: tls.VersionTLS12}},
			"1.2":                            {settings: only12, client: &tls.Config{MaxVersion: tls.VersionTLS12}, want: 200},
			"1.2, another cipher suite":      {settings: only12, client: &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}}},
			"client certificate":             {settings: withClients, sends: "known", want: 200},
			"no client certificate":          {settings: withClients},
			"client of an unknown authority": {settings: withClients, sends: "unknown"},
		} {
			t.Run(source+" "+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					authority, client := newClient(t)
					_, other := newClient(t)
					clients := x509.NewCertPool()
					clients.AppendCertsFromPEM(authority.Cert)
					listener := apitest.NewListener()
					config := Config{Listener: listener, probes: apitest.NewListener(), IgnoreSignals: true, Logger: slog.New(slog.DiscardHandler), Handlers: map[string]http.Handler{"GET /metrics": okHandler{}}}
					open(&config, &tls.Config{}) //nolint:gosec // only for its effect on config
					config.TLS = func(c *tls.Config) {
						open(&Config{}, c)
						if test.settings != nil {
							test.settings(c, clients)
						}
					}
					m, err := New(config)
					if err != nil {
						t.Fatal(err)
					}
					testrun.Start(t, m.Run)
					synctest.Wait()
					dialer := cmp.Or(test.client, &tls.Config{MinVersion: tls.VersionTLS12}).Clone()
					dialer.InsecureSkipVerify = true
					switch test.sends {
					case "known":
						dialer.Certificates = []tls.Certificate{client}
					case "unknown":
						dialer.Certificates = []tls.Certificate{other}
					}
					transport := &http.Transport{DisableKeepAlives: true, DialContext: listener.Dial, TLSClientConfig: dialer}
					if status, text, _ := request(t, transport, "https://localhost/metrics"); status != test.want {
						t.Errorf("GET /metrics: %d %s, want %d", status, text, test.want)
					}
					time.Sleep(10 * time.Second) // both ends of the pipe write an alert, with a deadline of 5 s
				})
			})
		}
	}
}

// newClient returns an authority and the certificate of a client.
func newClient(t *testing.T) (certificates.Pair, tls.Certificate) {
	t.Helper()
	authority, err := certificates.NewAuthority("clients", time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair := certtest.NewClient(t, authority, time.Now().Add(time.Hour))
	client, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	return authority, client
}

// Settings that would have no effect are mistakes, except for versions of a server without TLS: a program may set them
// once for several servers.
func TestNewRejectsSettingsOfTLS(t *testing.T) {
	t.Parallel()
	cluster, err := kube.Connect(&rest.Config{Host: "http://test.invalid"})
	if err != nil {
		t.Fatal(err)
	}
	certificate := func(c *tls.Config) {
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, errBroken }
	}
	for name, test := range map[string]struct {
		config   Config
		settings func(*tls.Config)
		want     string
	}{
		"no server":                     {settings: func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }},
		"no certificate":                {config: Config{Listen: ":0"}, settings: func(c *tls.Config) { c.MinVersion = tls.VersionTLS12 }},
		"authorization, no certificate": {config: Config{Listen: ":1", AuthorizeWith: cluster}, settings: func(*tls.Config) {}, want: "their tokens to :1 without TLS"},
		"authorization":                 {config: Config{Listen: ":1", AuthorizeWith: cluster}, settings: certificate},
		"clients, no certificate":       {config: Config{Listen: ":0"}, settings: func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }, want: "the server has no certificate"},
		"clients":                       {config: Config{Listen: ":0", ProbeListen: ":2"}, settings: func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }},
		"two certificates":              {config: Config{Listen: ":0", certFile: "/a", keyFile: "/b"}, settings: certificate, want: "use one"},
		"half a certificate":            {config: Config{Listen: ":0", keyFile: "/b"}, settings: func(*tls.Config) {}, want: "set both or none"},
		"HTTP/2":                        {config: Config{Listen: ":0"}, settings: func(c *tls.Config) { c.NextProtos = []string{"h2"} }, want: "HTTP/1.1 only"},
		"cipher suites of 1.3":          {config: Config{Listen: ":0"}, settings: func(c *tls.Config) { c.CipherSuites = []uint16{tls.TLS_AES_128_GCM_SHA256} }, want: "set MinVersion to tls.VersionTLS12"},
	} {
		test.config.TLS = test.settings
		_, err := New(test.config)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
