package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/certificates/certtest"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
)

// clientCAServer is a server with ClientCAFile in virtual time.
type clientCAServer struct {
	*testing.T
	server   *Server // without the handshake of its Ready, which needs an address
	file     string  // ClientCAFile
	listener *apitest.Listener
	dialed   atomic.Int32 // connections of the clients
	logs     *testlog.Buffer
}

func newAuthority(t *testing.T, life time.Duration) certificates.Pair {
	t.Helper()
	authority, err := certificates.NewAuthority("tests", time.Now(), life)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

// writePair writes a certificate and its key into files of folder.
func writePair(t *testing.T, folder string, pair certificates.Pair) (certFile, keyFile string) {
	t.Helper()
	certFile, keyFile = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	for name, content := range map[string][]byte{certFile: pair.Cert, keyFile: pair.Key} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// serveClients runs a server with all types of hooks until the test ends.
func serveClients(t *testing.T, authorities []byte) *clientCAServer {
	t.Helper()
	return serveClientsWith(t, authorities, func(*Config) {})
}

// serveClientsWith is serveClients of a changed Config.
func serveClientsWith(t *testing.T, authorities []byte, change func(*Config)) *clientCAServer {
	t.Helper()
	folder := t.TempDir()
	c := &clientCAServer{T: t, file: filepath.Join(folder, "ca.crt"), listener: apitest.NewListener(), logs: &testlog.Buffer{}}
	c.write(authorities)
	serving, err := newAuthority(t, 100*time.Hour).NewServer([]string{"example.com"}, time.Now(), 100*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := writePair(t, folder, serving)
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"}, addRobots)
	if err != nil {
		t.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.NewTextHandler(c.logs, &slog.HandlerOptions{Level: slog.LevelDebug})))
	config := Config{
		Cluster: cluster, Listener: c.listener, CertFile: certFile, KeyFile: keyFile, ClientCAFile: c.file,
		Hooks: []Hook{
			robotHook(), Validating(mapsOptions(), allowMaps),
			Authenticating(tokensName, func(context.Context, *authenticationv1.TokenReviewSpec) (tokenStatus, error) {
				return tokenStatus{}, nil
			}),
		},
	}
	change(&config)
	if c.server, err = New(config); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { // waited for below
		if err := c.server.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait(); time.Sleep(time.Minute) }) // the connections of net/http end
	synctest.Wait()
	return c
}

// write writes ClientCAFile.
func (c *clientCAServer) write(authorities []byte) {
	c.Helper()
	if err := os.WriteFile(c.file, authorities, 0o600); err != nil {
		c.Fatal(err)
	}
}

// client returns a client that keeps its connections, with a certificate unless pair is nil.
func (c *clientCAServer) client(pair *certificates.Pair) *http.Client {
	c.Helper()
	config := &tls.Config{InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(10)} //nolint:gosec // a test
	if pair != nil {
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			c.Fatal(err)
		}
		// As the API server does, the client also presents a certificate whose authority the server does not name.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	transport := &http.Transport{TLSClientConfig: config, DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, conn := net.Pipe()
		c.dialed.Add(1)
		c.listener.Deliver(conn)
		return client, nil
	}}
	c.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// ask sends a review, and returns the status with the text of an error, or the error of the connection.
func (c *clientCAServer) ask(client *http.Client, path string, body []byte) string {
	c.Helper()
	req, err := http.NewRequestWithContext(c.Context(), http.MethodPost, "https://example.com/"+path, bytes.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		c.Fatal(err)
	}
	if res.StatusCode == http.StatusOK {
		return res.Status
	}
	return res.Status + ": " + string(text)
}

// expect sends a review of each type. want is the status, or a part of the error, of those that need a certificate.
// Conversions need none, but a certificate that is presented must be valid.
func (c *clientCAServer) expect(client *http.Client, want, ofConversion string) {
	c.Helper()
	conversion := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"example.com/v2","objects":[` + robotJSON("v1", "{}") + `]}}`
	admission, err := json.Marshal(mapReview(mapObject))
	if err != nil {
		c.Fatal(err)
	}
	token := []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"a"}}`)
	for path, body := range map[string][]byte{robotsCRD: []byte(conversion), hookName: admission, tokensName: token} {
		want := want
		if path == robotsCRD {
			want = ofConversion
		}
		got := c.ask(client, path, body)
		if !strings.Contains(got, want) {
			c.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

const (
	accepted    = "200 OK"
	required    = "401 Unauthorized: a client certificate is required"
	notValidNow = "401 Unauthorized: the client certificate has expired, or its authority was removed"
	// noConnection is an error of the client. It may not see the server's reason, because with TLS 1.3 its handshake ends
	// before that of the server.
	noConnection = `Post "https://example.com/`
)

// expectLog reports each text that the log lacks.
func (c *clientCAServer) expectLog(texts ...string) {
	c.Helper()
	log := c.logs.String()
	for _, text := range texts {
		if !strings.Contains(log, text) {
			c.Errorf("the log lacks %q:\n%s", text, log)
		}
	}
}

// Admission and token reviews need a certificate of an authority in ClientCAFile, on each request.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := newAuthority(t, 100*time.Hour), newAuthority(t, 100*time.Hour)
		c := serveClients(t, first.Cert)
		ofFirst, ofSecond, short := certtest.NewClient(t, first, time.Now().Add(100*time.Hour)), certtest.NewClient(t, second, time.Now().Add(100*time.Hour)), certtest.NewClient(t, first, time.Now().Add(time.Hour))
		server, err := first.NewServer([]string{"example.com"}, time.Now(), time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		known, expiring := c.client(&ofFirst), c.client(&short)
		c.expect(known, accepted, accepted)
		c.expect(expiring, accepted, accepted)
		c.expect(c.client(nil), required, accepted)
		c.expect(c.client(&ofSecond), noConnection, noConnection)
		c.expect(c.client(&server), noConnection, noConnection) // it is not for clients
		if err := c.server.http.Ready(); err != nil {
			t.Error(err)
		}

		// The second authority replaces the first one while both are trusted.
		c.write(append(bytes.Clone(first.Cert), second.Cert...))
		time.Sleep(time.Second)
		c.expect(known, accepted, accepted)
		c.expect(c.client(&ofSecond), accepted, accepted)
		c.write(second.Cert)
		time.Sleep(time.Second)
		c.expect(c.client(&ofSecond), accepted, accepted)
		_ = c.ask(known, hookName, nil) // the rejection ends the open connection
		c.expect(known, noConnection, noConnection)
		c.write(first.Cert)
		time.Sleep(time.Second)
		c.expect(known, accepted, accepted)

		// A file that is not valid changes nothing, and Ready says so.
		indented := strings.ReplaceAll(string(first.Cert), "-----BEGIN", "  -----BEGIN")
		for _, content := range []string{
			"", "x", string(first.Key), string(first.Cert) + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
			string(second.Cert) + string(first.Cert[:len(first.Cert)/2]), string(second.Cert) + indented,
			string(second.Cert) + strings.Replace(string(first.Cert), "M", "?", 1), string(second.Cert) + string(first.Cert[:30]),
		} {
			c.write([]byte(content))
			time.Sleep(time.Second)
			c.expect(known, accepted, accepted)
			if err := c.server.http.Ready(); err == nil || !strings.Contains(err.Error(), "read the client CA in "+c.file) {
				t.Errorf("ready with %.20q: %v", content, err)
			}
		}
		// Other text, and line ends of Windows, are ignored.
		c.write([]byte("# the authority\r\n# -----BEGIN CERTIFICATE-----\r\n" + strings.ReplaceAll(string(first.Cert), "\n", "\r\n") + "end"))

		time.Sleep(time.Hour)
		c.expect(c.client(&short), noConnection, noConnection)
		c.expect(known, accepted, accepted)
		if err := c.server.http.Ready(); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Hour)
		if err := c.server.http.Ready(); err == nil || !strings.Contains(err.Error(), "the client CA in "+c.file+" has expired") {
			t.Errorf("ready with an expired authority: %v", err)
		}
		c.expectLog("certificate signed by unknown authority", "certificate specifies an incompatible key usage", "certificate has expired", `msg="certificate reloaded" content="client CA"`, `msg="certificate reload failed, the previous certificate stays in use" content="client CA"`)
	})
}

// A certificate that expires, and one whose authority is removed, are rejected on an open connection, which ends.
func TestClientCertificatesOfOpenConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := newAuthority(t, 100*time.Hour), newAuthority(t, 100*time.Hour)
		c := serveClients(t, first.Cert)
		short, long := certtest.NewClient(t, first, time.Now().Add(90*time.Second)), certtest.NewClient(t, first, time.Now().Add(time.Hour))
		body, err := json.Marshal(mapReview(mapObject))
		if err != nil {
			t.Fatal(err)
		}
		expect := func(client *http.Client, want string) {
			t.Helper()
			if got := c.ask(client, hookName, body); !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		expiring, removed := c.client(&short), c.client(&long)
		expect(expiring, accepted)
		expect(removed, accepted)
		time.Sleep(89 * time.Second) // less than the time after which idle connections end
		expect(expiring, accepted)
		expect(removed, accepted)
		time.Sleep(2 * time.Second)
		expect(expiring, notValidNow)
		expect(expiring, noConnection)
		expect(removed, accepted)
		c.write(second.Cert)
		time.Sleep(time.Second)
		expect(removed, notValidNow)
		expect(removed, noConnection)
	})
}

// sign returns template as a certificate of the authority, for the key of pair.
func sign(t *testing.T, template *x509.Certificate, authority, pair certificates.Pair) certificates.Pair {
	t.Helper()
	signer, err := tls.X509KeyPair(authority.Cert, authority.Key)
	if err != nil {
		t.Fatal(err)
	}
	subject, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, signer.Leaf, subject.Leaf.PublicKey, signer.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return certificates.Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), Key: pair.Key}
}

// renewed returns the certificate of an authority with the same key, a new serial number and another end.
func renewed(t *testing.T, authority certificates.Pair, end time.Time) certificates.Pair {
	t.Helper()
	template, err := authority.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(2), end
	return sign(t, template, authority, authority)
}

// A client stays accepted on its open connection while a certificate of its authority is in ClientCAFile: a renewed one,
// or that of the authority which has signed the former one.
func TestClientCertificatesOfRenewedAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		authority := newAuthority(t, 2*time.Hour)
		long := renewed(t, authority, time.Now().Add(10*time.Hour))
		c := serveClients(t, authority.Cert)
		pair := certtest.NewClient(t, authority, time.Now().Add(5*time.Hour))
		client := c.client(&pair)
		c.expect(client, accepted, accepted)
		c.write(append(bytes.Clone(authority.Cert), long.Cert...))
		time.Sleep(time.Second)
		c.expect(client, accepted, accepted)
		c.write(long.Cert)
		time.Sleep(time.Second)
		c.expect(client, accepted, accepted)
		for range 150 { // connections that are idle for two minutes end
			time.Sleep(time.Minute)
			c.expect(client, accepted, accepted) // also after the end of the former certificate
		}
		c.write(renewed(t, authority, time.Now().Add(time.Hour)).Cert)
		time.Sleep(time.Second)
		c.expect(client, accepted, accepted)
		if n := c.dialed.Load(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
		c.write(newAuthority(t, time.Hour).Cert)
		time.Sleep(time.Second)
		if got := c.ask(client, tokensName, nil); !strings.Contains(got, notValidNow) {
			t.Errorf("%q, want %q", got, notValidNow)
		}
	})
}

// The client presents the certificate of an intermediate authority. ClientCAFile has it, or its root.
func TestClientCertificatesOfIntermediateAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		intermediate := newAuthority(t, 100*time.Hour)
		root := newAuthority(t, 100*time.Hour)
		unlimited, err := root.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		unlimited.MaxPathLenZero, unlimited.MaxPathLen = false, -1
		root = sign(t, unlimited, root, root)
		template, err := intermediate.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		template.Subject.CommonName, template.AuthorityKeyId = "intermediate", nil
		signed := sign(t, template, root, intermediate)
		pair := certtest.NewClient(t, signed, time.Now().Add(time.Hour))
		pair.Cert = append(pair.Cert, signed.Cert...)
		c := serveClients(t, signed.Cert)
		client := c.client(&pair)
		c.expect(client, accepted, accepted)
		for _, file := range [][]byte{root.Cert, signed.Cert, append(bytes.Clone(root.Cert), signed.Cert...), root.Cert} {
			c.write(file)
			time.Sleep(time.Second)
			c.expect(client, accepted, accepted)
			c.expect(c.client(&pair), accepted, accepted)
		}
	})
}

// A ClientCAFile that became invalid, or expired, before Run makes the server not ready. It still creates its certificate:
// without one, conversions would fail too, and the last valid authorities would have no effect.
func TestInvalidClientCAFileDoesNotPreventCertificates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct{ name, content, want string }{
			{"invalid", "x", "read the client CA in"},
			{"expired", string(newAuthority(t, 0).Cert), "has expired"},
		} {
			w := newWorld(t)
			c := w.newClient("operator")
			file := filepath.Join(t.TempDir(), "ca.crt")
			write := func(content string) {
				if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(string(newAuthority(t, time.Hour).Cert))
			server, err := New(Config{
				Cluster: c.Cluster(), Listener: apitest.NewListener(), Certificates: certificatesFor(c),
				ClientCAFile: file, Hooks: []Hook{Validating(mapsOptions(), allowMaps)},
			})
			if err != nil {
				t.Fatal(err)
			}
			write(test.content)
			time.Sleep(time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { // waited for below
				if err := server.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Second)
			if _, err := server.keeper.certificate(); err != nil {
				t.Errorf("%s: %v", test.name, err)
			}
			if err := server.Ready(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: ready: %v", test.name, err)
			}
			cancel()
			running.Wait()
		}
	})
}

// ClientCAFile is refused where it has no effect.
func TestNewRejectsClientCAFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	authority := newAuthority(t, time.Hour)
	serving, err := authority.NewServer([]string{"a"}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"ca.crt": authority.Cert, "empty": nil, "tls.crt": serving.Cert, "tls.key": serving.Key} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"}, addRobots)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file, listen string
		hooks        []Hook
		want         string
	}{
		"valid":            {"ca.crt", ":0", []Hook{robotHook(), Validating(mapsOptions(), allowMaps)}, ""},
		"no address":       {"ca.crt", "", []Hook{Validating(mapsOptions(), allowMaps)}, "ClientCAFile or Certificates is set without Listen"},
		"only conversions": {"ca.crt", ":0", []Hook{robotHook()}, "all hooks are conversions"},
		"missing":          {"missing", ":0", []Hook{Validating(mapsOptions(), allowMaps)}, "read the client CA: open "},
		"empty":            {"empty", ":0", []Hook{Validating(mapsOptions(), allowMaps)}, "it has no PEM block of type CERTIFICATE"},
		"key":              {"tls.key", ":0", []Hook{Validating(mapsOptions(), allowMaps)}, `it has a PEM block of type "PRIVATE KEY"`},
	} {
		config := Config{Cluster: cluster, Hooks: test.hooks, Listen: test.listen, ClientCAFile: filepath.Join(folder, test.file)}
		if test.listen != "" {
			config.CertFile, config.KeyFile = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
		}
		_, err := New(config)
		if got := fmt.Sprint(err); err != nil != (test.want != "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %q", name, got, test.want)
		}
	}
}

// A hook that receives no review may have a wrong address: the server names it once.
func TestHooksWithoutReviewAreNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := serveClients(t, newAuthority(t, 100*time.Hour).Cert)
		post(t, c.server, "/"+tokensName, []byte("{}"))
		time.Sleep(9 * time.Minute)
		if log := c.logs.String(); strings.Contains(log, "no review has arrived") {
			t.Errorf("logged too early: %s", log)
		}
		time.Sleep(time.Hour)
		log := c.logs.String()
		want := fmt.Sprintf(`msg="no review has arrived" hooks="[%s %s]"`, robotHook().name, mapsOptions().Name)
		if strings.Count(log, "no review has arrived") != 1 || !strings.Contains(log, want) {
			t.Errorf("the log is %s", log)
		}
	})
}
