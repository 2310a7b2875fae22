// Package leader tests leader election with several processes and a real kube-apiserver.
package leader

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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

// newNamespace returns a new namespace of the shared API server, and clients.
func newNamespace(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(local.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	ns, err := clients.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return clients, ns.Name
}

// startCluster starts a cluster for one test.
func startCluster(t *testing.T, config localcluster.Config) *localcluster.Cluster {
	t.Helper()
	cluster, err := localcluster.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}
