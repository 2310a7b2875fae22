// Package anycluster runs the same tests on clusters in memory and on a real one.
package anycluster

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Cluster is the cluster of a package's tests: one in memory for each test, or a real one for all.
type Cluster struct {
	real *localcluster.Cluster // nil in memory
}

// Main is the body of a TestMain. If clustertest.Real returns true, the cluster is a real one with this configuration.
func (c *Cluster) Main(m *testing.M, config localcluster.Config) {
	if clustertest.Real() {
		clustertest.Main(m, config, func(started *localcluster.Cluster) { c.real = started })
	}
	goleak.VerifyTestMain(m)
}

// RESTConfig returns the configuration of a client with all permissions: of the real cluster, or of a new one in
// memory, which exists until the end of the test. config is that of the cluster in memory.
func (c *Cluster) RESTConfig(tb testing.TB, config simulation.Config) *rest.Config {
	tb.Helper()
	restConfig, _ := c.Start(tb, config)
	return restConfig
}

// Start is RESTConfig for tests that also need the cluster in memory, which is nil if the cluster is a real one. With
// -short, as in make test, it skips tests whose time in memory is real.
func (c *Cluster) Start(tb testing.TB, config simulation.Config) (*rest.Config, *simulation.Cluster) {
	tb.Helper()
	if c.real != nil {
		return c.real.RESTConfig(), nil
	}
	if testing.Short() && !inBubble() {
		tb.Skip("has real time: runs without -short, and in make test-all")
	}
	simulated := simulation.New(tb, config)
	return simulated.RESTConfig("tests"), simulated
}

// Test runs a test that waits for seconds in the cluster's time, which is virtual in memory. make test runs it too.
func (c *Cluster) Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if c.real != nil {
		test(t)
		return
	}
	synctest.Test(t, test)
}

// inBubble reports whether the caller is in a bubble of testing/synctest.
func inBubble() (in bool) {
	defer func() { in = recover() == nil }()
	synctest.Wait()
	return true
}
