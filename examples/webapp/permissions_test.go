package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/config"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// deployed is an installation of the printed manifests, with the program beside the cluster as their service account.
type deployed struct {
	*testing.T
	admin     *kube.Cluster
	client    *client.Client // the user's
	namespace string         // of the WebApps
	arguments []string       // of the Deployment
	objects   []*unstructured.Unstructured

	mu      sync.Mutex
	refused []string // guarded by mu; the messages of 403 for the program
}

func newDeployed(t *testing.T) *deployed {
	t.Helper()
	config := clustertest.RESTConfig(t)
	admin, err := kube.Connect(config, v1.AddToScheme, v2.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.HTTPClient().CloseIdleConnections)
	d := &deployed{T: t, admin: admin, namespace: clustertest.Namespace(t)}
	if d.client, err = clustertest.Client(admin); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(&records{targets: map[string]string{}, owners: map[string]string{}})
	t.Cleanup(server.Close)
	free := func() string { // on all interfaces, as in a Pod
		_, port, err := net.SplitHostPort(clustertest.FreeAddress(t))
		if err != nil {
			t.Fatal(err)
		}
		return ":" + port
	}
	hooks := free()
	d.arguments = []string{
		"--records=" + server.URL, "--listen=" + free(), "--webhook-listen=" + hooks, "--webhook-url=https://127.0.0.1" + hooks,
		"--lease-duration=2s", "--renew-deadline=1500ms", "--retry-period=500ms",
	}
	text, err := evenkeel.Manifests(operator.Name, run, append([]string{"--image=webapp:1", "--namespace=" + operator.Name, "--network-policy", "--"}, d.arguments...)...)
	if err == nil {
		d.objects, err = clustertest.Read(text)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// kubeconfig returns the path of a kubeconfig of the service account, whose requests pass a proxy that notes refused ones.
func (d *deployed) kubeconfig() string {
	d.Helper()
	administrator := clustertest.RESTConfig(d)
	target, err := url.Parse(administrator.Host)
	if err != nil {
		d.Fatal(err)
	}
	transport, err := rest.TransportFor(administrator)
	if err != nil {
		d.Fatal(err)
	}
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1,
		ModifyResponse: func(res *http.Response) error {
			if res.StatusCode == http.StatusForbidden {
				body, err := io.ReadAll(res.Body)
				d.mu.Lock()
				defer d.mu.Unlock()
				d.refused = append(d.refused, fmt.Sprintf("%s %s: %s", res.Request.Method, res.Request.URL.Path, body))
				res.Body = io.NopCloser(strings.NewReader(string(body)))
				return err
			}
			return nil
		},
	})
	d.Cleanup(server.Close)
	d.Cleanup(server.CloseClientConnections)
	path := filepath.Join(d.TempDir(), "kubeconfig")
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "c",
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"c": {Impersonate: "system:serviceaccount:" + operator.Name + ":" + operator.Name}},
	}, path)
	if err != nil {
		d.Fatal(err)
	}
	return path
}

// refusals returns the messages of 403 so far.
func (d *deployed) refusals() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.refused)
}

// until waits for a step of the test. It returns false if a request of the program was refused.
func (d *deployed) until(what string, done func(ctx context.Context) (bool, string)) bool {
	d.Helper()
	clustertest.Eventually(d, what, func(ctx context.Context) (bool, string) {
		ok, state := done(ctx)
		return ok || len(d.refusals()) > 0, state
	})
	return len(d.refusals()) == 0
}

// apply applies the objects that a function selects.
func (d *deployed) apply(selected func(obj *unstructured.Unstructured) bool) {
	d.Helper()
	for _, obj := range d.objects {
		if !selected(obj) {
			continue
		}
		if err := clustertest.ApplyObject(d.Context(), d.admin, obj.DeepCopy()); err != nil {
			d.Fatalf("%s %s: %v", obj.GetKind(), obj.GetName(), err)
		}
	}
}

// test is the whole life of the program: start, work, a new storage version, webhooks, deletion, end. It returns at the
// first request that is refused.
func (d *deployed) test() {
	d.Helper()
	isDefinition := func(obj *unstructured.Unstructured) bool { return obj.GetKind() == "CustomResourceDefinition" }
	d.apply(isDefinition)
	d.until("the WebApp is created before there are webhooks", func(ctx context.Context) (bool, string) {
		err := clustertest.Apply(ctx, d.admin, d.namespace, config.Sample)
		return err == nil, fmt.Sprint(err)
	})
	d.apply(func(obj *unstructured.Unstructured) bool { return !isDefinition(obj) })
	key := kube.Key{Namespace: d.namespace, Name: "shop"}
	p := evenkeel.NewProgram(operator.Name, append(slices.Clone(d.arguments), "--kubeconfig="+d.kubeconfig(), "--store-v2")...)
	p.Manager.Runnables = []manager.Runnable{{Name: "event", Runner: manager.RunFunc(func(context.Context) error {
		reference := corev1.ObjectReference{APIVersion: v1.Group + "/" + v1.Version, Kind: "WebApp", Namespace: key.Namespace, Name: key.Name}
		p.Events().Event(reference, corev1.EventTypeNormal, "Tested", "Test", "the program writes Events")
		return nil
	})}}
	stop := clustertest.Go(d.T, func(ctx context.Context) error {
		err := run(ctx, p)
		if len(d.refusals()) > 0 && apierrors.IsForbidden(err) {
			return nil // the answer to the refused request came after stop
		}
		return err
	})
	defer stop()
	if !d.until("the WebApp is ready", func(ctx context.Context) (bool, string) {
		app, err := client.Get[*v1.WebApp](ctx, d.client, key)
		if err != nil {
			return false, err.Error()
		}
		return meta.IsStatusConditionTrue(app.Status.Conditions, v1.ConditionReady), fmt.Sprintf("%+v", app.Status)
	}) {
		return
	}
	if !d.until("the stored objects are migrated", func(ctx context.Context) (bool, string) {
		definition, err := client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, d.client, kube.Key{Name: v1.Resource + "." + v1.Group})
		if err != nil {
			return false, err.Error()
		}
		return slices.Equal(definition.Status.StoredVersions, []string{v2.Version}), fmt.Sprint(definition.Status.StoredVersions)
	}) {
		return
	}
	if !d.until("the Event is written", func(ctx context.Context) (bool, string) {
		for event, err := range client.List[*eventsv1.Event](ctx, d.client, kube.Selection{Namespaces: []string{d.namespace}}) {
			if err != nil || event.ReportingController == operator.Name {
				return err == nil, fmt.Sprint(err)
			}
		}
		return false, "no Event"
	}) {
		return
	}
	app, err := client.Get[*v1.WebApp](d.Context(), d.client, key)
	if err == nil {
		err = client.Delete(d.Context(), d.client, app)
	}
	if err != nil {
		d.Fatal(err)
	}
	d.until("the WebApp is gone", func(ctx context.Context) (bool, string) {
		_, err := client.Get[*v1.WebApp](ctx, d.client, key)
		return errors.Is(err, client.ErrGone), fmt.Sprint(err)
	})
}

// remove removes the rule of a role, and returns false if there is none of this number.
func (d *deployed) remove(number int) (text string, ok bool) {
	d.Helper()
	for _, obj := range d.objects {
		rules, _, err := unstructured.NestedSlice(obj.Object, "rules")
		if err != nil {
			d.Fatal(err)
		}
		if number >= len(rules) {
			number -= len(rules)
			continue
		}
		text = fmt.Sprint(obj.GetKind(), " ", rules[number])
		if err := unstructured.SetNestedSlice(obj.Object, slices.Delete(rules, number, number+1), "rules"); err != nil {
			d.Fatal(err)
		}
		return text, true
	}
	return "", false
}

// inMemory gives a test a cluster whose webhooks are called at their addresses.
func inMemory(t *testing.T) {
	t.Helper()
	cluster := simulation.New(t, simulation.Config{})
	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, cluster.Serve())
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a test
	t.Cleanup(transport.CloseIdleConnections)
	cluster.HandleWebhooks(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "https", cmp.Or(r.In.URL.Host, r.In.Host)
		},
		Transport: transport,
	})
}

// The printed manifests are accepted, and their service account needs no other permission. On a real cluster, the test
// leaves the program's objects without hooks and definitions to later tests.
func TestProgramWithPrintedManifests(t *testing.T) {
	if !clustertest.Real() {
		inMemory(t)
	}
	d := newDeployed(t)
	if clustertest.Real() {
		t.Cleanup(func() { uninstall(t, d.admin, d.client) })
	}
	d.test()
	if refused := d.refusals(); len(refused) > 0 {
		t.Errorf("refused requests: %q", refused)
	}
}

// Each rule is needed: without it, a request of the program is refused, with a message that names the rule.
func TestProgramWithoutOneRule(t *testing.T) {
	ok := true
	for number := 0; ok && number < 100; number++ { // 100: with -run, the tests after the last rule may not run
		t.Run(fmt.Sprint(number), func(t *testing.T) {
			inMemory(t)
			d := newDeployed(t)
			var rule string
			if rule, ok = d.remove(number); !ok {
				return
			}
			if strings.Contains(rule, "webapps/finalizers") {
				return // for clusters with the admission plugin OwnerReferencesPermissionEnforcement
			}
			if strings.Contains(rule, "/status") { // after seconds
				clustertest.OnlyLong(t)
			}
			d.test()
			refused := strings.Join(d.refusals(), "\n")
			if !strings.Contains(refused, "system:serviceaccount:webapp-operator:webapp-operator") || !strings.Contains(refused, " cannot ") {
				t.Errorf("without the rule %s: %s", rule, refused)
			}
			t.Logf("without the rule %s: %.400s", rule, refused)
		})
	}
}
