package client

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// TestClientsOfOneClusterShareWhatIsRemembered: a client made for each run, or for each object,
// knows what the others have applied, and has no memory of its own.
func TestClientsOfOneClusterShareWhatIsRemembered(t *testing.T) {
	t.Parallel()
	connect := func() *kube.Cluster {
		cluster, err := kube.Connect(&rest.Config{Host: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		return cluster
	}
	c, err := New(Config{Cluster: connect()})
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.With(func(config *Config) { config.Namespace = "shop" })
	if err != nil {
		t.Fatal(err)
	}
	if other.applied != c.applied || other.warnings != c.warnings {
		t.Error("it remembers for itself")
	}
	elsewhere, err := other.With(func(config *Config) { config.Cluster = connect() })
	if err != nil {
		t.Fatal(err)
	}
	if elsewhere.applied == c.applied {
		t.Error("what was applied to one cluster is taken for applied to another one")
	}
}
