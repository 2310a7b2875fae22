package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/config"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/examples/webapp/operator"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{Controllers: true, Nodes: 1}, nil)
}

// connect installs the operator, and returns the cluster with both versions of WebApp, and a client with all permissions.
func connect(t *testing.T) (*kube.Cluster, *client.Client) {
	t.Helper()
	cluster, err := kube.Connect(clustertest.RESTConfig(t), v1.AddToScheme, v2.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.HTTPClient().CloseIdleConnections)
	if err := clustertest.InstallCRD(t.Context(), cluster, v1.CRD); err != nil {
		t.Fatal(err)
	}
	if err := clustertest.Apply(t.Context(), cluster, "", config.RBAC()); err != nil {
		t.Fatal(err)
	}
	c, err := clustertest.Client(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return cluster, c
}

// With only the permissions of folder config, the program must make the sample ready, hold the lease, and delete all
// children and records.
func TestProgramWithSample(t *testing.T) {
	clustertest.AnyCluster(t, simulation.Config{})
	cluster, c := connect(t)
	// Without a lease, the operator would wait for the time of one.
	lease := []byte(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: ` + operator.Name + `}}`)
	if err := clustertest.Apply(t.Context(), cluster, operator.Name, lease); err != nil {
		t.Fatal(err)
	}
	outside := &records{targets: map[string]string{}}
	server := httptest.NewServer(outside)
	t.Cleanup(server.Close)
	address := clustertest.FreeAddress(t)
	stop := clustertest.Go(t, func(ctx context.Context) error {
		return run(ctx, evenkeel.NewProgram(operator.Name, "--kubeconfig", asOperator(t), "--records", server.URL, "--listen", address))
	})

	namespace := clustertest.Namespace(t)
	if err := clustertest.Apply(t.Context(), cluster, namespace, config.Sample); err != nil {
		t.Fatal(err)
	}
	key := kube.Key{Namespace: namespace, Name: "shop"}
	clustertest.Eventually(t, "the WebApp is ready", func(ctx context.Context) (bool, string) {
		app, err := client.Get[*v1.WebApp](ctx, c, key)
		if err != nil {
			return false, err.Error()
		}
		return meta.IsStatusConditionTrue(app.Status.Conditions, v1.ConditionReady), fmt.Sprintf("%+v", app.Status)
	})
	if got := outside.all(); len(got) != 1 || got["shop.example.com"] != "shop."+namespace+".svc" {
		t.Errorf("records are %v", got)
	}
	if code, body := get(t, "http://"+address+"/readyz"); code != http.StatusOK {
		t.Errorf("readyz: %d %s", code, body)
	}
	clustertest.Eventually(t, "a run is counted when it has ended", func(context.Context) (bool, string) {
		_, body := get(t, "http://"+address+"/metrics") //nolint:contextcheck // it has the test's
		return strings.Contains(body, `evenkeel_controller_handle_seconds_count{controller="webapp-operator",outcome="success"}`), body
	})
	if holder := holder(t, c); holder == "" {
		t.Error("the lease is not held")
	}

	app, err := client.Get[*v1.WebApp](t.Context(), c, key)
	if err == nil {
		err = client.Delete(t.Context(), c, app)
	}
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the WebApp is gone", func(ctx context.Context) (bool, string) {
		_, err := client.Get[*v1.WebApp](ctx, c, key)
		return errors.Is(err, client.ErrGone), fmt.Sprint(err)
	})
	if got := outside.all(); len(got) > 0 {
		t.Errorf("records are left: %v", got)
	}
	stop()
	if holder := holder(t, c); holder != "" {
		t.Errorf("%s holds the lease after its end", holder)
	}
}

// The API server must call the webhooks of the program, which has only the permissions of folder config.
func TestProgramWithWebhooks(t *testing.T) {
	cluster, c := connect(t)
	outside := &records{targets: map[string]string{"taken.example.com": ""}, owners: map[string]string{"taken.example.com": "another"}}
	server := httptest.NewServer(outside)
	t.Cleanup(server.Close)
	address := clustertest.FreeAddress(t)
	stop := clustertest.Go(t, func(ctx context.Context) error {
		return run(ctx, evenkeel.NewProgram(operator.Name,
			"--kubeconfig", asOperator(t), "--records", server.URL, "--listen", clustertest.FreeAddress(t),
			"--webhook-listen", address, "--webhook-url", "https://"+address, "--domain", "example.com",
		))
	})
	t.Cleanup(func() { uninstall(t, cluster, c) })
	dry, err := c.With(func(config *client.Config) { config.DryRun = true })
	if err != nil {
		t.Fatal(err)
	}
	namespace := clustertest.Namespace(t)
	app := func(name, host string) *v1.WebApp {
		return &v1.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.WebAppSpec{Image: "shop:1", Host: host}}
	}
	clustertest.Eventually(t, "the webhooks are called", func(ctx context.Context) (bool, string) {
		got, err := client.Create(ctx, dry, app("shop", "shop"))
		if err != nil || got.Spec.Host != "shop.example.com" {
			return false, fmt.Sprint(got, err)
		}
		_, err = client.Create(ctx, dry, app("shop", "taken"))
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), `spec.host: Invalid value: "taken.example.com": its record belongs to another owner: another`), fmt.Sprint(err)
	})
	clustertest.Eventually(t, "the webhooks are called for v2", func(ctx context.Context) (bool, string) {
		_, err := client.Create(ctx, dry, &v2.WebApp{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "second"}, Spec: v2.WebAppSpec{App: v2.App{Image: "shop:1"}, Host: "taken"}})
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), `spec.host: Invalid value: "taken.example.com"`), fmt.Sprint(err)
	})
	shop, err := client.Create(t.Context(), c, app("shop", "shop"))
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the host of another WebApp is rejected", func(ctx context.Context) (bool, string) {
		_, err := client.Create(ctx, dry, app("second", "shop"))
		return apierrors.IsInvalid(err) && strings.Contains(err.Error(), "used by WebApp "+namespace+"/shop"), fmt.Sprint(err)
	})
	clustertest.Eventually(t, "the record is created", func(context.Context) (bool, string) {
		all := outside.all()
		return all["shop.example.com"] != "", fmt.Sprint(all)
	})
	if err := client.Delete(t.Context(), c, shop); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the WebApp is gone", func(ctx context.Context) (bool, string) {
		_, err := client.Get[*v1.WebApp](ctx, c, kube.KeyOf(shop))
		return errors.Is(err, client.ErrGone), fmt.Sprint(err)
	})
	stop()
}

func TestInvalidAddress(t *testing.T) {
	clustertest.AnyCluster(t, simulation.Config{})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	err = run(t.Context(), evenkeel.NewProgram(operator.Name, "--kubeconfig", clustertest.Kubeconfig(t), "--listen", taken.Addr().String()))
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("the error is %v", err)
	}
}

// The committed manifests are those that the program prints.
func TestManifestsAreUpToDate(t *testing.T) {
	t.Parallel()
	printed, err := evenkeel.Manifests(operator.Name, run, "--image=registry.example.com/webapp:1.0",
		"--namespace="+operator.Name, "--", "--webhook-listen=:9443")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(config.Manifests), string(printed)); diff != "" {
		t.Errorf("config/manifests.yaml is out of date: run \"make generate\" (-file +printed):\n%s", diff)
	}
}

// uninstall removes what the program has registered, which could not be called without it, and installs the definition of
// v1 again.
func uninstall(t *testing.T, cluster *kube.Cluster, c *client.Client) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, configuration := range []kube.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}} {
		configuration.SetName(operator.Name)
		if err := client.Delete(ctx, c, configuration); err != nil {
			t.Error(err)
		}
	}
	err := crd.Remove(ctx, c, v1.Resource+"."+v1.Group)
	if err == nil {
		err = clustertest.InstallCRD(ctx, cluster, v1.CRD)
	}
	if err != nil {
		t.Error(err)
	}
}

// asOperator returns the path of a kubeconfig for the service account of folder config.
func asOperator(t *testing.T) string {
	t.Helper()
	kubeconfig, err := clientcmd.LoadFromFile(clustertest.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range kubeconfig.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + operator.Name + ":" + operator.Name
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + operator.Name, "system:authenticated"}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// records is an API for operator.HTTPRecords.
type records struct {
	mu      sync.Mutex
	targets map[string]string // guarded by mu
	owners  map[string]string // guarded by mu; may be nil
}

// ServeHTTP implements http.Handler.
func (r *records) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	host := strings.TrimPrefix(request.URL.Path, "/")
	body, err := io.ReadAll(request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch request.Method {
	case http.MethodGet:
		if _, ok := r.targets[host]; !ok {
			http.NotFound(w, request)
			return
		}
		_, _ = io.WriteString(w, r.owners[host])
	case http.MethodPut:
		r.targets[host] = string(body)
		if r.owners != nil {
			r.owners[host] = request.URL.Query().Get("owner")
		}
	case http.MethodDelete:
		if _, ok := r.targets[host]; !ok {
			http.NotFound(w, request)
		}
		delete(r.targets, host)
	default:
		http.Error(w, request.Method, http.StatusMethodNotAllowed)
	}
}

func (r *records) all() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.targets)
}

// holder returns the holder of the operator's lease.
func holder(t *testing.T, c *client.Client) string {
	t.Helper()
	lease, err := client.Get[*coordinationv1.Lease](t.Context(), c, kube.Key{Namespace: operator.Name, Name: operator.Name})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

func get(t *testing.T, url string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Close = true // a kept-alive connection would be reported as a leak
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}
