// Package leader tests leader election with several processes and a real kube-apiserver.
package leader

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// local is the API server that all tests of the package share.
var local *localcluster.Cluster

// TestMain runs the tests, or a replica: the tests start this binary again for each replica.
func TestMain(m *testing.M) {
	election.Main()
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}
