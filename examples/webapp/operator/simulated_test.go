package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel"
	"github.com/evenkeel-go/evenkeel/crd"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	v2 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v2"
	"github.com/evenkeel-go/evenkeel/examples/webapp/hooks"
	"github.com/evenkeel-go/evenkeel/examples/webapp/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/webhook"
)

// everywhere runs story in memory and on the real cluster.
func everywhere(t *testing.T, story func(w *world)) {
	t.Helper()
	t.Run("memory", inMemory(story))
	t.Run("cluster", onCluster(story))
}

// inMemory returns a test that runs story in virtual time, with a world in memory.
func inMemory(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { story(newWorldInMemory(t)) })
	}
}

// onCluster returns a test that runs story with a world in the real cluster. It is skipped if there is none.
func onCluster(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) { story(newWorldIn(t, clustertest.RESTConfig(t))) }
}

// inMemoryWithV2 is inMemory with WebApps that are stored in v2, so that all WebApps of the operator are converted.
func inMemoryWithV2(story func(w *world)) func(t *testing.T) {
	return func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { story(newWorldWithV2(t)) })
	}
}

// newWorldInMemory returns a world with a cluster in memory. The caller is in a bubble of testing/synctest.
func newWorldInMemory(t *testing.T) *world {
	t.Helper()
	c := simulation.New(t, simulation.Config{YAML: withAccount(v1.CRD), Types: []func(*runtime.Scheme) error{v1.AddToScheme}})
	return slowly(newWorldIn(t, c.RESTConfig("webapp-operator")))
}

// newWorldWithV2 is newWorldInMemory with the definition with two versions.
func newWorldWithV2(t *testing.T) *world {
	t.Helper()
	types := []func(*runtime.Scheme) error{v1.AddToScheme, v2.AddToScheme}
	cluster, err := kube.Connect(&rest.Config{Host: "https://simulation.invalid"}, types...) // only for its types
	if err != nil {
		t.Fatal(err)
	}
	server, err := webhook.New(webhook.Config{Cluster: cluster, Hooks: []webhook.Hook{hooks.Conversion()}})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := crd.Parse(v2.CRD)
	if err != nil {
		t.Fatal(err)
	}
	conversions, err := server.Conversions("https://webhooks.invalid", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := crd.SetConversions(conversions, definitions...); err != nil {
		t.Fatal(err)
	}
	manifest, err := json.Marshal(definitions[0])
	if err != nil {
		t.Fatal(err)
	}
	c := simulation.New(t, simulation.Config{YAML: withAccount(manifest), Types: types})
	c.HandleWebhooks(server)
	return slowly(newWorldIn(t, c.RESTConfig("webapp-operator")))
}

// slowly makes the requests of operators take time. Virtual time passes only while all goroutines wait: the events of a
// write have arrived before the operator continues, and all events of a moment before a run reads its caches. Otherwise
// the requests of a life would depend on the order of goroutines. Users check their WebApp every 20 ms, which is never
// the time of a response.
func slowly(w *world) *world {
	w.latency = 1_000_003 * time.Nanosecond
	return w
}

// logIfReal reports what cannot occur in virtual time, and what differs between lives on a real cluster.
func (w *world) logIfReal(format string, args ...any) {
	w.Helper()
	if w.latency > 0 {
		w.Errorf(format, args...)
	} else {
		w.Logf(format, args...)
	}
}

func (w *world) delayed(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		time.Sleep(w.latency)
		defer time.Sleep(w.latency)
		return next.RoundTrip(r)
	})
}

func (w *world) delayedHandler(handle handler) handler {
	return func(ctx context.Context, app *v1.WebApp, run *evenkeel.Run) error {
		time.Sleep(w.latency)
		return handle(ctx, app, run)
	}
}

type handler = func(ctx context.Context, app *v1.WebApp, run *evenkeel.Run) error

type delayedRecords struct {
	Records
	latency time.Duration
}

// Ensure implements Records.
func (r delayedRecords) Ensure(ctx context.Context, record Record) error {
	time.Sleep(r.latency)
	defer time.Sleep(r.latency)
	return r.Records.Ensure(ctx, record)
}

// Delete implements Records.
func (r delayedRecords) Delete(ctx context.Context, record Record) error {
	time.Sleep(r.latency)
	defer time.Sleep(r.latency)
	return r.Records.Delete(ctx, record)
}
