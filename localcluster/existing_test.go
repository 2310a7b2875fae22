package localcluster

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serverConfig writes a kubeconfig for a server with the handler, and returns its path. If authority is nil, it is the
// server's own.
func serverConfig(t *testing.T, handler http.HandlerFunc, authority []byte) string {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // failed TLS handshakes are expected
	server.StartTLS()
	t.Cleanup(server.Close)
	if authority == nil {
		authority = server.Certificate().Raw
	}
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "c"
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority}),
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// newAuthority returns an authority that has not signed the server's certificate.
func newAuthority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotAfter: time.Now().Add(time.Hour)}
	authority, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func TestExistingClusterWithPermanentError(t *testing.T) {
	t.Parallel()
	stranger := newAuthority(t)
	respond := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	tests := map[string]struct{ kubeconfig, want string }{
		"invalid credentials": {serverConfig(t, respond(http.StatusUnauthorized), nil), "asked for the client to provide credentials"},
		"unknown authority":   {serverConfig(t, respond(http.StatusOK), stranger), "certificate signed by unknown authority"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			_, err := Start(t.Context(), Config{Kubeconfig: test.kubeconfig, Progress: io.Discard})
			if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if waited := time.Since(began); waited > DefaultReadyTimeout/2 {
				t.Errorf("waited for %v", waited)
			}
		})
	}
}

func TestWaitForExistingClusterIsReportedOnce(t *testing.T) {
	t.Setenv(envKubernetesVersion, "") // the server has no version
	var requests atomic.Int32
	kubeconfig := serverConfig(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}, nil)
	var out bytes.Buffer
	if _, err := Start(t.Context(), Config{Kubeconfig: kubeconfig, Progress: &out}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "waiting up to 1m0s for the existing cluster ("+kubeconfig+")") {
		t.Errorf("progress is %q", got)
	}
}

func TestExistingClusterMustBeAsRequested(t *testing.T) {
	t.Parallel()
	kubeconfig := serverConfig(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, `{"gitVersion":"v1.36.7+k3s1"}`)
		}
	}, nil)
	tests := map[string]struct {
		config Config
		want   string
	}{
		"its version":   {Config{KubernetesVersion: "1.36"}, ""},
		"other minor":   {Config{KubernetesVersion: "1.37"}, "has Kubernetes v1.36.7+k3s1, but Config.KubernetesVersion or " + envKubernetesVersion + " is 1.37"},
		"other patch":   {Config{KubernetesVersion: "1.36.3"}, "v1.36.7+k3s1"},
		"arguments":     {Config{APIServerArgs: []string{"--v=1"}}, "APIServerArgs cannot be set"},
		"feature gates": {Config{FeatureGates: map[string]bool{"A": true}}, "FeatureGates"},
		"not a version": {Config{KubernetesVersion: "latest"}, `"latest"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := test.config
			config.Kubeconfig, config.Progress = kubeconfig, io.Discard
			_, err := Start(t.Context(), config)
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestExistingCluster(t *testing.T) {
	t.Parallel()
	ours := start(t, Config{})
	cluster := start(t, Config{Kubeconfig: ours.Kubeconfig(), Progress: io.Discard})
	if !cluster.Existing() || ours.Existing() {
		t.Errorf("Existing() = %v and %v, want true and false", cluster.Existing(), ours.Existing())
	}
	if got, want := cluster.Kubeconfig(), ours.Kubeconfig(); got != want {
		t.Errorf("Kubeconfig() = %s, want %s", got, want)
	}
	config, err := cluster.User(t.Context(), "carol", "guests")
	if err != nil {
		t.Fatal(err)
	}
	_, err = clientFor(t, config).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "carol"`) {
		t.Errorf("list as the impersonated user: %v", err)
	}
	for name, err := range map[string]error{"Kill": cluster.Kill(), "Restart": cluster.Restart(t.Context()), "Compact": cluster.Compact(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "did not start") {
			t.Errorf("%s() = %v", name, err)
		}
	}
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, ours.RESTConfig())
	if _, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the existing cluster after Stop: %v", err)
	}
}

func TestExistingClusterFromEnvironment(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "config")
	write(t, kubeconfig, "{}")
	tests := map[string]struct {
		value, kubeconfig string
		wantPath          string
		want              bool
	}{
		"nothing":                 {"", "", "", false},
		"switched off":            {"false", "", "", false},
		"disabled by a word":      {"No", "", "", false},
		"enabled by a word":       {"yes", "", kubeconfig, true},
		"a path":                  {kubeconfig, "", kubeconfig, true},
		"Config takes precedence": {"false", kubeconfig, kubeconfig, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(EnvExisting, test.value)
			t.Setenv("KUBECONFIG", kubeconfig)
			found, ok := existingCluster(Config{Kubeconfig: test.kubeconfig})
			if ok != test.want || (ok && found.path() != test.wantPath) {
				t.Errorf("got %v, %v", found, ok)
			}
		})
	}
	t.Run("kubectl's own", func(t *testing.T) {
		t.Setenv(EnvExisting, "1")
		t.Setenv("KUBECONFIG", kubeconfig)
		found, ok := existingCluster(Config{})
		if !ok || found.path() != kubeconfig {
			t.Errorf("got %v at %q, want %s", ok, found.path(), kubeconfig)
		}
		if _, err := Start(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), kubeconfig) {
			t.Errorf("Start() with an empty kubeconfig = %v, want an error with its path", err)
		}
	})
}
