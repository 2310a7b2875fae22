package monitoring_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	metrics "github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

func TestMain(m *testing.M) {
	debug.SetMemoryLimit(4 << 30) // as a program in a container has: the dashboard shows it
	goleak.VerifyTestMain(m)
}

// scrapeInterval is the default of the Prometheus operator's charts.
const scrapeInterval = 15 * time.Second

// A world is an API server with operators of Websites, in virtual time, which Prometheus scrapes.
type world struct {
	*apitest.Server
	t       *testing.T
	targets map[string]http.Handler // /metrics by instance; nil after its end
	scrapes []scrape
	changes int
	marks   []mark
}

// A mark is the time at which trouble begins, or ends if text is empty.
type mark struct {
	at   time.Time
	text string
}

func (w *world) mark(text string) { w.marks = append(w.marks, mark{time.Now(), text}) }

// A scrape is a response of /metrics, empty if there was none.
type scrape struct {
	at       time.Time
	instance string
	text     []byte
}

func websites() schema.GroupVersionResource { return apitest.Version().WithResource("websites") }

func website() schema.GroupVersionKind { return websites().GroupVersion().WithKind("Website") }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, targets: map[string]http.Handler{}, Server: apitest.New(
		apitest.Websites(), apiserver.ConfigMaps(), apiserver.Leases(),
	)}
	// Without a lease, the first leader waits for LeaseDuration.
	w.Edit("leases", kube.Key{Namespace: "shop", Name: "website-operator"}, "kubectl",
		func(map[string]any) bool { return true })
	return w
}

// wait scrapes all targets until the time is over.
func (w *world) wait(d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Until(time.Now().Truncate(scrapeInterval).Add(scrapeInterval)))
		w.scrape()
	}
}

func (w *world) scrape() {
	w.t.Helper()
	for instance, handler := range w.targets {
		if handler == nil { // the target is gone
			w.scrapes = append(w.scrapes, scrape{at: time.Now(), instance: instance})
			continue
		}
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "/metrics", nil))
		if response.Code != http.StatusOK {
			w.t.Fatalf("scrape %s: status %d: %s", instance, response.Code, response.Body)
		}
		w.scrapes = append(w.scrapes, scrape{time.Now(), instance, response.Body.Bytes()})
	}
}

// site creates a Website, or changes its spec.
func (w *world) site(name string, replicas int) {
	w.Edit("websites", kube.Key{Namespace: "shop", Name: name}, "kubectl-edit", func(obj map[string]any) bool {
		obj["spec"] = map[string]any{"replicas": int64(replicas)}
		return true
	})
}

// put creates a ConfigMap.
func (w *world) put(name string) {
	w.Edit("configmaps", kube.Key{Namespace: "shop", Name: name}, "kubectl-edit", func(obj map[string]any) bool {
		obj["data"] = map[string]any{"greeting": "Hello from " + name}
		return true
	})
}

// forbid rejects the requests for a resource, as RBAC does. "" ends it.
func (w *world) forbid(resource string) {
	if resource == "" {
		w.Hook(nil)
		return
	}
	w.Hook(func(req *http.Request, do func() *http.Response) (*http.Response, error) {
		if req.URL.Path == "/api/v1/"+resource || req.URL.Query().Has("watch") {
			return apitest.Failure(apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", fmt.Errorf("the user cannot list it"))), nil
		}
		return do(), nil
	})
}

// An operator is a replica of the operator of Websites, as examples/metrics builds it.
type operator struct {
	world      *world
	cluster    *kube.Cluster
	client     dynamic.Interface
	recorder   *metrics.Recorder
	registry   *prometheus.Registry
	lease      leader.Config
	controller controller.Config[*unstructured.Unstructured]
	// certificateEnd is the end of the certificate of its webhook server, and review the result of its webhook.
	certificateEnd time.Time
	review         func() string
}

func (w *world) operator(identity string) *operator {
	w.t.Helper()
	o := &operator{world: w, registry: prometheus.NewRegistry(), certificateEnd: time.Now().AddDate(0, 0, 30), review: func() string { return "success" }}
	o.registry.MustRegister(collectors.NewGoCollector(), collectors.NewBuildInfoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	o.cluster, o.client = apitest.Connect(w.Config("website-operator"))
	if o.recorder, err = metrics.New(metrics.Config{Cluster: o.cluster, Registerer: o.registry, CompatibleNames: true}); err != nil {
		w.t.Fatal(err)
	}
	o.lease = leader.Config{Cluster: o.cluster, Namespace: "shop", Name: "website-operator", Identity: identity}
	o.controller = controller.Config[*unstructured.Unstructured]{
		Name: "websites", Logger: slog.New(slog.DiscardHandler),
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](o.cluster, kube.Selection{Kind: website()}),
		Handler:   o.count,
	}
	return o
}

// count is a Handler that writes the replicas into the status.
func (o *operator) count(ctx context.Context, site *unstructured.Unstructured) error {
	replicas, _, _ := unstructured.NestedInt64(site.Object, "spec", "replicas")
	o.recorder.WebhookReviewed("sites.example.com", o.review(), time.Duration(replicas+1)*time.Millisecond) // its webhook reviews the write
	_, err := o.client.Resource(websites()).Namespace(site.GetNamespace()).Patch(ctx, site.GetName(), types.MergePatchType,
		fmt.Appendf(nil, `{"status":{"ready":%d}}`, replicas), metav1.PatchOptions{}, "status")
	return err
}

// start runs the operator until stop is called, or the test ends.
func (o *operator) start() (stop func()) {
	w := o.world
	w.t.Helper()
	ctrl, err := controller.New(o.controller)
	if err != nil {
		w.t.Fatal(err)
	}
	var caches []manager.Runnable
	for name, kind := range map[string]schema.GroupVersionKind{
		"configmaps": {Version: "v1", Kind: "ConfigMap"},
		"backups":    {Group: "example.com", Version: "v1", Kind: "Backup"}, // not served
	} {
		cache, err := informer.New(informer.Config[*unstructured.Unstructured]{
			Name: name, Logger: o.controller.Logger, Optional: name == "backups",
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](o.cluster, kube.Selection{Kind: kind}),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		caches = append(caches, manager.Runnable{Runner: cache, Group: manager.Caches})
	}
	m, err := manager.New(manager.Config{
		Runnables: append(caches, manager.Runnable{Runner: ctrl}), LeaderElection: &o.lease, IgnoreSignals: true, Logger: o.controller.Logger,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	uncertify := o.recorder.ObserveCertificate("webhooks", func() time.Time { return o.certificateEnd },
		func() (all, failed uint64) { return 1, 0 })
	stopManager := testrun.Start(w.t, m.Run)
	w.targets[o.lease.Identity] = promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{})
	stop = sync.OnceFunc(func() {
		w.targets[o.lease.Identity] = nil
		stopManager()
		uncertify()
	})
	w.t.Cleanup(stop)
	return stop
}
