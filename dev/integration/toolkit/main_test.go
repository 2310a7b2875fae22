// Package toolkit tests the packages of the toolkit together, on an API server in memory and on a real one.
package toolkit

import (
	"testing"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// anyCluster has no controllers.
var anyCluster anycluster.Cluster

func TestMain(m *testing.M) { anyCluster.Main(m, localcluster.Config{}) }
