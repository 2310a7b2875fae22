// Package finalizer_test tests package finalizer, and its middleware, on an API server in memory and on a real one.
package finalizer_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// anyCluster has no controllers.
var anyCluster anycluster.Cluster

func TestMain(m *testing.M) { anyCluster.Main(m, localcluster.Config{}) }

// Finalizers of the tests.
const (
	own   = "shop.example.com/cleanup"
	other = "bank.example.com/audit"
	third = "town.example.com/permit"
)

type env struct{ clustertest.Env }

func newEnv(t *testing.T) env {
	t.Helper()
	return env{clustertest.NewEnv(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true}))}
}

// create creates a ConfigMap with finalizers. They are removed at the end of the test.
func (e env) create(name string, finalizers ...string) *corev1.ConfigMap {
	e.Helper()
	created, err := client.Create(e.Context(), e.Client, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Finalizers: finalizers},
	})
	if err != nil {
		e.Fatal(err)
	}
	return created
}

func (e env) live(name string) *corev1.ConfigMap {
	e.Helper()
	live, err := client.Get[*corev1.ConfigMap](e.Context(), e.Client, kube.Key{Namespace: e.Namespace, Name: name}, client.FromAPI())
	if err != nil {
		e.Fatal(err)
	}
	return live
}

func (e env) exists(name string) bool {
	e.Helper()
	exists, err := client.Exists[*corev1.ConfigMap](e.Context(), e.Client, kube.Key{Namespace: e.Namespace, Name: name}, client.FromAPI())
	if err != nil {
		e.Fatal(err)
	}
	return exists
}

// change changes the live object as another client.
func (e env) change(name string, change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	e.Helper()
	live := e.live(name)
	changed := live.DeepCopy()
	change(changed)
	patched, err := client.Patch(e.Context(), e.Client, live, client.MergeFrom(live, changed))
	if err != nil {
		e.Fatal(err)
	}
	return patched
}

func (e env) remove(name string) {
	e.Helper()
	if err := client.Delete(e.Context(), e.Client, e.live(name)); err != nil {
		e.Fatal(err)
	}
}

// newCalls returns a record of requests, with discovery requests.
func newCalls() *fixture.Calls { return &fixture.Calls{Text: fixture.Verb, WithDiscovery: true} }
