// Package wait tests waiting and readiness with the controllers of Kubernetes: in memory, and on a real cluster.
package wait

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

var anyCluster anycluster.Cluster

func TestMain(m *testing.M) { anyCluster.Main(m, localcluster.Config{Nodes: 1}) }

// env is a test's part of the cluster: its own namespace, and a client.
type env struct{ clustertest.Env }

func newEnv(t *testing.T) env {
	t.Helper()
	config := anyCluster.RESTConfig(t, simulation.Config{Pods: func(pod *corev1.Pod) simulation.PodBehavior {
		return simulation.PodBehavior{Unschedulable: len(pod.Spec.NodeSelector) > 0}
	}})
	return env{clustertest.NewEnv(t, config)}
}

// definition returns a CustomResourceDefinition in a group of the test.
func (e env) definition(plural, kind string) *unstructured.Unstructured {
	gvk := schema.GroupVersionKind{Group: e.Namespace + ".example.com", Version: "v1", Kind: kind}
	return fixture.Kind{GroupVersionKind: gvk, Plural: plural, Subresources: "{status: {}}"}.Definition()
}
