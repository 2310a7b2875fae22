// Package status_test tests package status, and its middleware, on an API server in memory and on a real one.
package status_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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

// Shop is a custom kind. Stall is the same without a status subresource, and Town the same with cluster scope.
type Shop struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Status            ShopStatus `json:"status"`
}

type ShopStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Rounds             map[string]int     `json:"rounds,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *Shop) DeepCopyObject() runtime.Object {
	out := *s
	s.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = append([]metav1.Condition(nil), s.Status.Conditions...)
	out.Status.Rounds = nil
	for name, rounds := range s.Status.Rounds {
		out.round(name, rounds)
	}
	return &out
}

func (s *Shop) copy() *Shop { return s.DeepCopyObject().(*Shop) }

func (s *Shop) round(name string, rounds int) {
	if s.Status.Rounds == nil {
		s.Status.Rounds = map[string]int{}
	}
	s.Status.Rounds[name] = rounds
}

func gv() schema.GroupVersion {
	return schema.GroupVersion{Group: "status.evenkeel.dev", Version: "v1"}
}

// env is the environment of a test: clients of one cluster, and a namespace.
type env struct{ clustertest.Env }

func newEnv(t *testing.T) env {
	t.Helper()
	e := env{clustertest.NewEnv(t, anyCluster.RESTConfig(t, simulation.Config{WithoutControllers: true}), func(scheme *runtime.Scheme) error {
		scheme.AddKnownTypeWithName(gv().WithKind("Shop"), &Shop{})
		return nil
	})}
	e.install("Shop", true, "Namespaced")
	return e
}

// install installs a custom kind unless it exists.
func (e env) install(kind string, status bool, scope string) {
	e.Helper()
	custom := fixture.Kind{GroupVersionKind: gv().WithKind(kind), ClusterScoped: scope == "Cluster"}
	if status {
		custom.Subresources = "{status: {}}"
	}
	_, _ = client.Create(e.Context(), e.Client, custom.Definition()) // it may exist already; the check is below
	clustertest.Eventually(e, func() string {
		probe := e.object(kind, "probe")
		if scope == "Cluster" {
			probe.SetNamespace("")
		}
		if _, err := client.Create(e.Context(), e.Client, probe, client.DryRun()); err != nil {
			return err.Error()
		}
		return ""
	})
}

func (e env) object(kind, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gv().WithKind(kind))
	obj.SetNamespace(e.Namespace)
	obj.SetName(name)
	return obj
}

// create creates a Shop.
func (e env) create(name string) *Shop {
	e.Helper()
	shop, err := client.Create(e.Context(), e.Client, &Shop{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name}})
	if err != nil {
		e.Fatal(err)
	}
	return shop
}

// live reads a Shop.
func (e env) live(name string) *Shop {
	e.Helper()
	shop, err := client.Get[*Shop](e.Context(), e.Client, kube.Key{Namespace: e.Namespace, Name: name}, client.FromAPI())
	if err != nil {
		e.Fatal(err)
	}
	return shop
}

// newCalls returns a record of requests, with discovery requests: "patch shops/status".
func newCalls() *fixture.Calls {
	return &fixture.Calls{WithDiscovery: true, Text: func(call kube.Call) string {
		return strings.Replace(fixture.Verb(call), call.Verb, call.Verb+" "+call.Resource.Resource, 1)
	}}
}
