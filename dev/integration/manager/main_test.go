// Package manager tests package manager with several processes and a real kube-apiserver.
package manager

import (
	"os"
	"testing"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// local is the API server that all tests of the package share.
var local *localcluster.Cluster

// TestMain runs the tests, or an operator: a test starts this binary again for each of its processes.
func TestMain(m *testing.M) {
	election.Main()
	if config := os.Getenv(operatorVariable); config != "" {
		os.Exit(operatorMain(config))
	}
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}
