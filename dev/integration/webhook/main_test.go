// Package webhook tests package webhook with a real kube-apiserver, which calls the hooks on loopback.
package webhook

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/certificates"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// local is the API server that all tests of the package share. Hooks select the namespace of their test.
var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}

// env is the environment of a test: a namespace, a client, and the certificate of a server.
type env struct {
	*testing.T
	cluster   *kube.Cluster
	client    *client.Client
	namespace string
	authority certificates.Pair
	folder    string // of tls.crt and tls.key
}

func newEnv(t *testing.T) *env {
	t.Helper()
	cluster := clustertest.Connect(t, local.RESTConfig())
	c := clustertest.Client(t, cluster)
	e := &env{T: t, cluster: cluster, client: c, namespace: clustertest.Namespace(t, c), folder: t.TempDir()}
	e.authority = e.newAuthority()
	e.renew(e.authority)
	return e
}

func (e *env) newAuthority() certificates.Pair {
	e.Helper()
	authority, err := certificates.NewAuthority("tests", time.Now(), time.Hour)
	if err != nil {
		e.Fatal(err)
	}
	return authority
}

// renew writes a new certificate of the server that authority has signed.
func (e *env) renew(authority certificates.Pair) {
	e.Helper()
	pair, err := authority.NewServer([]string{"127.0.0.1"}, time.Now(), time.Hour)
	if err != nil {
		e.Fatal(err)
	}
	for name, content := range map[string][]byte{"tls.crt": pair.Cert, "tls.key": pair.Key} {
		if err := os.WriteFile(filepath.Join(e.folder, name), content, 0o600); err != nil {
			e.Fatal(err)
		}
	}
}

// options are the options of a hook for the creation, the update and the deletion of the ConfigMaps of the test. A call
// may take long: with the race detector, and beside other tests, it takes seconds.
func (e *env) options(name string) webhook.HookConfig {
	return webhook.HookConfig{
		Name: name + ".example.com", Timeout: 30 * time.Second,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.namespace}},
		Operations:        []admissionv1.Operation{"*"}, Resources: []schema.GroupVersionResource{{Resource: "configmaps"}},
	}
}

// serve runs a server of the hooks until the test ends, or until stop, and registers them.
func (e *env) serve(hooks ...webhook.Hook) (url string, stop func()) {
	e.Helper()
	listener, err := (&net.ListenConfig{}).Listen(e.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		e.Fatal(err)
	}
	server, err := webhook.New(webhook.Config{
		Cluster: e.cluster, Hooks: hooks, Listener: listener,
		CertFile: filepath.Join(e.folder, "tls.crt"), KeyFile: filepath.Join(e.folder, "tls.key"),
	})
	if err != nil {
		e.Fatal(err)
	}
	stop = e.run(e.Context(), server)
	clustertest.Eventually(e, func() string { return clustertest.Text(server.Ready()) })
	url = "https://" + listener.Addr().String()
	e.register(server, url, e.authority.Cert)
	return url, stop
}

// run runs a server until the test ends or until stop.
func (e *env) run(ctx context.Context, server *webhook.Server) (stop func()) {
	e.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }() // waited for by stop
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			e.Error(err)
		}
	})
	e.Cleanup(stop)
	return stop
}

// register applies the configurations of a server, and waits until the API server uses them.
func (e *env) register(server *webhook.Server, url string, bundle []byte) {
	e.Helper()
	objects := configurations(e, server, e.namespace, url, bundle)
	for _, obj := range objects {
		if _, err := client.Apply(e.Context(), e.client, obj); err != nil {
			e.Fatal(err)
		}
		e.Cleanup(func() {
			if err := client.Delete(context.WithoutCancel(e.Context()), e.client, obj); err != nil {
				e.Error(err)
			}
		})
	}
}

func configurations(tb testing.TB, server *webhook.Server, name, url string, bundle []byte) []kube.Object {
	tb.Helper()
	objects, err := server.Configurations(name, url, bundle)
	if err != nil {
		tb.Fatal(err)
	}
	return objects
}

func conversions(tb testing.TB, server *webhook.Server, url string, bundle []byte) []*unstructured.Unstructured {
	tb.Helper()
	definitions, err := server.Conversions(url, bundle)
	if err != nil {
		tb.Fatal(err)
	}
	return definitions
}

// probe returns a function of a hook that rejects ConfigMaps with the name "probe-" and name, and then calls f.
func probe(name string, f func(context.Context, *mapRequest) error) func(context.Context, *mapRequest) error {
	return func(ctx context.Context, r *mapRequest) error {
		if r.Admission.Name == "probe-"+name {
			return errors.New("probe")
		}
		return f(ctx, r)
	}
}

type mapRequest = webhook.Request[*corev1.ConfigMap]

// awaitHooks waits until the API server calls the hooks with these probes.
func (e *env) awaitHooks(names ...string) {
	e.Helper()
	for _, name := range names {
		clustertest.Eventually(e, func() string {
			_, err := client.Create(e.Context(), e.client, e.configMap("probe-"+name), client.DryRun())
			if !apierrors.IsForbidden(err) {
				return fmt.Sprintf("the hook of probe %s is not called: %v", name, err)
			}
			return ""
		})
	}
}

func (e *env) configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: name}, Data: map[string]string{"a": "1"}}
}

func validatingConfiguration(name string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
