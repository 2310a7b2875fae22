package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/crd"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/examples/webapp/config"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // these tests create much garbage
	clustertest.Main(m, localcluster.Config{Controllers: true, Nodes: 1}, install)
}

func install(ctx context.Context, to *rest.Config) error {
	cluster, err := kube.Connect(to)
	if err != nil {
		return err
	}
	defer cluster.HTTPClient().CloseIdleConnections()
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: "installer"})
	if err != nil {
		return err
	}
	definitions, err := crd.Parse(v1.CRD)
	if err != nil {
		return err
	}
	if _, err = crd.Ensure(ctx, c, definitions); err != nil {
		return err
	}
	return clustertest.Apply(ctx, cluster, "", config.RBAC())
}

// withAccount adds the service account in folder config to a manifest.
func withAccount(text []byte) string { return string(text) + "\n---\n" + string(config.RBAC()) }

// asOperator returns a config for the service account in folder config, so that operators in these tests have only
// its permissions.
func asOperator(to *rest.Config) *rest.Config {
	to = rest.CopyConfig(to)
	to.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:webapp-operator:webapp-operator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:webapp-operator", "system:authenticated"},
	}
	return to
}

// records are a system outside the cluster that outlives operators.
type records struct {
	mu      sync.Mutex
	targets map[string]string // guarded by mu
	owners  map[string]string // guarded by mu
	down    error             // guarded by mu; the error of all calls
	meet    func(host string) // guarded by mu; called once, before the next Delete is done
}

func (r *records) Ensure(_ context.Context, record Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return r.down
	}
	if r.targets == nil {
		r.targets, r.owners = map[string]string{}, map[string]string{}
	}
	if owner, exists := r.owners[record.Host]; exists && owner != record.Owner {
		return &TakenError{record.Host}
	}
	r.targets[record.Host], r.owners[record.Host] = record.Target, record.Owner
	return nil
}

func (r *records) Delete(_ context.Context, record Record) error {
	r.mu.Lock()
	meet := r.meet
	r.meet = nil
	r.mu.Unlock()
	if meet != nil {
		meet(record.Host)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down != nil {
		return r.down
	}
	if r.owners[record.Host] == record.Owner {
		delete(r.targets, record.Host)
		delete(r.owners, record.Host)
	}
	return nil
}

func (r *records) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = err
}

// onDelete sets a function that is called with the host before the next record is deleted.
func (r *records) onDelete(meet func(host string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meet = meet
}

func (r *records) all() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.targets)
}

// owner returns the owner of a record, or "".
func (r *records) owner(host string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owners[host]
}

// world is a namespace of the cluster, with a user and the records.
type world struct {
	*testing.T
	config    *rest.Config
	client    *client.Client // the user's
	namespace string
	records   *records
	uid       types.UID // of the last created WebApp

	// For operators; zero: the defaults.
	resync      time.Duration
	consistency time.Duration
	// latency is the time that requests take; zero on a real cluster, where they have their own.
	latency time.Duration
	// faults is between operators and their servers. May be nil.
	faults *faults
}

func newWorldIn(t *testing.T, config *rest.Config) *world {
	t.Helper()
	c := newClient(t, config, "user")
	namespace, err := client.Create(t.Context(), c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}})
	if err != nil {
		t.Fatal(err)
	}
	return &world{T: t, config: config, client: c, namespace: namespace.Name, records: &records{}}
}

func newClient(t *testing.T, config *rest.Config, owner string) *client.Client {
	t.Helper()
	cluster, err := kube.Connect(config, v1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.HTTPClient().CloseIdleConnections)
	c, err := client.New(client.Config{Cluster: cluster, FieldOwner: owner})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// operate runs an operator for the namespace until stop or the end of the test. The optional gates are between it and
// its servers.
func (w *world) operate(gates ...*gate) (ctrl *evenkeel.Operator[*v1.WebApp], stop func()) {
	w.Helper()
	config := asOperator(w.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return statusChecks{w, next} })
	config.Wrap(w.delayed)
	ctx, cancel := context.WithCancel(w.Context())
	var outside Records = delayedRecords{w.records, w.latency}
	if w.faults != nil {
		config.Wrap(w.faults.transport)
		outside = faultyRecords{w.faults, outside}
	}
	for _, g := range gates {
		g.kill = cancel
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return gatedTransport{g, next} })
		outside = gatedRecords{g, outside}
	}
	cluster, err := kube.Connect(config, v1.AddToScheme)
	if err != nil {
		w.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.DiscardHandler))
	if err := cluster.SetNamespaces(w.namespace); err != nil {
		w.Fatal(err)
	}
	settings := Config(cluster, outside)
	settings.Handle, settings.Teardown = w.delayedHandler(settings.Handle), w.delayedHandler(settings.Teardown)
	settings.Controller.ResyncInterval, settings.Controller.Runs.ConsistencyTimeout = w.resync, w.consistency
	if ctrl, err = evenkeel.New(settings); err != nil {
		w.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- ctrl.Run(ctx) }() // waited for by stop
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("run the operator: %v", err)
		}
		cluster.HTTPClient().CloseIdleConnections()
	})
	w.Cleanup(stop)
	return ctrl, stop
}

// operateUntilReady runs an operator until the end of the test, creates a WebApp, and returns it when it is ready.
func (w *world) operateUntilReady(name string) *v1.WebApp {
	w.Helper()
	w.operate()
	w.create(w.app(name))
	return w.untilReady(name)
}

// app returns a WebApp for the namespace.
func (w *world) app(name string) *v1.WebApp {
	return &v1.WebApp{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: v1.WebAppSpec{
			Image: "shop:1", Port: 8080, Replicas: new(int32(1)), Host: name + ".example.com", Config: map[string]string{"GREETING": "hello"},
		},
	}
}

func (w *world) create(app *v1.WebApp) {
	w.Helper()
	created, err := client.Create(w.Context(), w.client, app)
	if err != nil {
		w.Fatal(err)
	}
	w.uid = created.UID
}

func (w *world) get(name string) (*v1.WebApp, error) {
	return client.Get[*v1.WebApp](w.Context(), w.client, kube.Key{Namespace: w.namespace, Name: name})
}

// change changes the spec as a user would.
func (w *world) change(name string, edit func(*v1.WebApp)) {
	w.Helper()
	if err := w.tryChange(name, edit); err != nil {
		w.Fatal(err)
	}
}

func (w *world) tryChange(name string, edit func(*v1.WebApp)) error {
	app, err := w.get(name)
	if err != nil {
		return err
	}
	after := app.DeepCopy()
	edit(after)
	_, err = client.Patch(w.Context(), w.client, app, client.MergeFrom(app, after))
	return err
}

func (w *world) delete(name string) {
	w.Helper()
	if err := w.tryDelete(name); err != nil {
		w.Fatal(err)
	}
}

func (w *world) tryDelete(name string) error {
	app, err := w.get(name)
	if err != nil {
		return err
	}
	return client.Delete(w.Context(), w.client, app)
}

// until waits until check returns nil.
func (w *world) until(what string, check func() error) {
	w.Helper()
	clustertest.Eventually(w.T, what, func(context.Context) (bool, string) {
		err := check()
		return err == nil, fmt.Sprint(err)
	})
}

// untilReady waits until the WebApp is ready for its current spec.
func (w *world) untilReady(name string) *v1.WebApp {
	w.Helper()
	return w.untilReadyUnless(name, func() bool { return false })
}

// untilReadyUnless waits until the WebApp is ready, or useless returns true.
func (w *world) untilReadyUnless(name string, useless func() bool) *v1.WebApp {
	w.Helper()
	var app *v1.WebApp
	w.until("WebApp "+name+" is ready", func() (err error) {
		if useless() {
			return nil
		}
		if app, err = w.get(name); err != nil {
			return err
		}
		ready := apimeta.FindStatusCondition(app.Status.Conditions, v1.ConditionReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != app.Generation || app.Status.ObservedGeneration != app.Generation {
			return fmt.Errorf("generation %d, status %+v", app.Generation, app.Status)
		}
		return nil
	})
	return app
}

// untilGone waits until the WebApp, its children and its record are deleted.
func (w *world) untilGone(name string) {
	w.Helper()
	w.until("WebApp "+name+" is gone", func() error {
		if _, err := w.get(name); !errors.Is(err, client.ErrGone) {
			return fmt.Errorf("the WebApp exists: %w", err)
		}
		if left := w.children(); len(left) > 0 {
			return fmt.Errorf("children remain: %v", slices.Sorted(maps.Keys(left)))
		}
		if left := w.records.all(); len(left) > 0 {
			return fmt.Errorf("records remain: %v", left)
		}
		return nil
	})
}

// children returns all Deployments, Services and ConfigMaps of the namespace, by kind and name.
func (w *world) children() map[string]kube.Object {
	w.Helper()
	found := map[string]kube.Object{}
	collect[*appsv1.Deployment](w, "Deployment", found)
	collect[*corev1.Service](w, "Service", found)
	collect[*corev1.ConfigMap](w, "ConfigMap", found)
	delete(found, "ConfigMap kube-root-ca.crt")
	return found
}

func collect[T kube.Object](w *world, kind string, into map[string]kube.Object) {
	w.Helper()
	for obj, err := range client.List[T](w.Context(), w.client, kube.Selection{Namespaces: []string{w.namespace}}) {
		if err != nil {
			w.Error(err)
			return
		}
		into[kind+" "+obj.GetName()] = obj
	}
}

func (w *world) deployment(name string) *appsv1.Deployment {
	w.Helper()
	deployment, err := client.Get[*appsv1.Deployment](w.Context(), w.client, kube.Key{Namespace: w.namespace, Name: name})
	if err != nil {
		w.Fatal(err)
	}
	return deployment
}
