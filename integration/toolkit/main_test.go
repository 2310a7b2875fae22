// Package toolkit tests the packages of the toolkit together, against a real kube-apiserver.
package toolkit

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube/localcluster"
)

// local is the API server that all tests of the package share.
var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}
