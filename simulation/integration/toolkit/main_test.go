// Package toolkit tests the packages of the toolkit together, on an API server in memory and on a real one.
package toolkit

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/kube/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation/integration/internal/anycluster"
)

// anyCluster has no controllers.
var anyCluster anycluster.Cluster

func TestMain(m *testing.M) { anyCluster.Main(m, localcluster.Config{}) }
