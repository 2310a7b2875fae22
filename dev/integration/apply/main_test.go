// Package apply tests client.Apply, and the other functions that create or update objects, on an API server in memory and
// on a real one.
package apply

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// calls are the requests made under a context.
type calls struct{ fixture.Calls }

// watched returns a context, and the requests made under it, without discovery requests.
func watched(t *testing.T) (context.Context, *calls) {
	t.Helper()
	requests := &calls{fixture.Calls{Text: fixture.Verb}}
	return kube.ObserveCalls(t.Context(), requests), requests
}

// want fails the test unless exactly these requests were made since the last call.
func (c *calls) want(t *testing.T, verbs ...string) {
	t.Helper()
	c.Want(t, "requests made", verbs...)
}

// world is the environment of a test: a cluster, a client and a namespace.
type world struct {
	cluster   *kube.Cluster
	c         *client.Client // without informers
	namespace string
}

func newWorld(t *testing.T) world {
	t.Helper()
	cluster := clustertest.Connect(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true}))
	c := clustertest.Client(t, cluster)
	return world{cluster: cluster, c: c, namespace: clustertest.Namespace(t, c)}
}

// withInformer returns a client that reads from an informer of T, and a function that waits until the informer shows
// obj's resourceVersion.
func withInformer[T kube.Object](t *testing.T, w world, kind ...schema.GroupVersionKind) (*client.Client, func(obj kube.Object)) {
	t.Helper()
	selection := kube.Selection{Namespaces: []string{w.namespace}}
	if len(kind) > 0 {
		selection.Kind = kind[0]
	}
	i := clustertest.Informer[T](t, w.cluster, selection)
	return clustertest.Client(t, w.cluster, i), func(obj kube.Object) {
		t.Helper()
		clustertest.Eventually(t, func() string {
			shown, found, err := i.Get(kube.KeyOf(obj))
			switch {
			case err != nil:
				return err.Error()
			case !found || shown.GetResourceVersion() != obj.GetResourceVersion():
				return "the informer does not show the object yet"
			}
			return ""
		})
	}
}

// as returns a client of the same cluster with another field owner, and without informers.
func (w world) as(t *testing.T, fieldOwner string) *client.Client {
	t.Helper()
	c, err := w.c.With(func(config *client.Config) { config.FieldOwner, config.Informers = fieldOwner, nil })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// applied applies obj, and fails the test unless the outcome is want.
func applied[T kube.Object](ctx context.Context, t *testing.T, c *client.Client, want client.ObjectOutcome, obj T, options ...client.WriteOption) client.ApplyResult[T] {
	t.Helper()
	result, err := client.Apply(ctx, c, obj, options...)
	if err != nil {
		t.Fatal(err)
	}
	if result.Outcome != want {
		t.Errorf("the outcome is %s, want %s; changed: %v", result.Outcome, want, result.Changed)
	}
	return result
}

// must ends the test if err is not nil.
func must[V any](value V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// texts returns the changes as text.
func texts(changes []client.FieldChange) []string {
	var all []string
	for _, change := range changes {
		all = append(all, change.String())
	}
	return all
}

func (w world) configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}, Data: data}
}
