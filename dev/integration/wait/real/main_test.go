// Package wait tests waiting on a real Kubernetes: with authorization, restarts and DaemonSets. The tests of
// dev/integration/wait need only what a cluster in memory has.
package wait

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{Nodes: 1}, func(c *localcluster.Cluster) { local = c })
}

// env is a test's part of the cluster: its own namespace, and a client.
type env struct{ clustertest.Env }

func newEnv(t *testing.T) env {
	t.Helper()
	return env{clustertest.NewEnv(t, local.RESTConfig())}
}
