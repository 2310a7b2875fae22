// Package wait tests waiting and readiness with the controllers of Kubernetes: in memory, and on a real cluster.
package wait

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
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
	group := e.Namespace + ".example.com"
	d := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"group": group, "scope": "Namespaced",
		"names": map[string]any{"plural": plural, "kind": kind},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}},
	}}}
	d.SetAPIVersion("apiextensions.k8s.io/v1")
	d.SetKind("CustomResourceDefinition")
	d.SetName(plural + "." + group)
	return d
}
