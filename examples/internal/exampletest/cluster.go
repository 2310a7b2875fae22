// Package exampletest has the common code of the examples' tests: clusters, and programs that run during a test.
package exampletest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Main is the body of a TestMain. With EVENKEEL_LONG=1, or with an existing cluster, it starts a cluster, sets
// $KUBECONFIG to it and runs prepare (unless it is nil) before the tests. Otherwise tests that use this cluster are
// skipped. It exits the process.
func Main(m *testing.M, config localcluster.Config, prepare func(ctx context.Context, to *rest.Config) error) {
	// The examples find the cluster as a user's program would. A cluster of the caller is never used.
	if err := os.Unsetenv(clientcmd.RecommendedConfigPathEnvVar); err != nil {
		panic(err)
	}
	if !clustertest.Real() {
		goleak.VerifyTestMain(m)
	}
	clustertest.Main(m, config, func(cluster *localcluster.Cluster) {
		err := os.Setenv(clientcmd.RecommendedConfigPathEnvVar, cluster.Kubeconfig())
		if err == nil && prepare != nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			err = prepare(ctx, cluster.RESTConfig())
		}
		if err != nil {
			panic(fmt.Errorf("prepare the cluster: %w", err))
		}
	})
}

// Kubeconfig returns the path of the kubeconfig of Main's cluster, or of the one of InMemory. Without a cluster it
// skips the test.
func Kubeconfig(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	if path == "" {
		testlength.OnlyLong(tb)
		tb.Fatal("there is no cluster: TestMain must call exampletest.Main, or the test InMemory")
	}
	return path
}

// RESTConfig returns the administrator's config for Main's cluster.
func RESTConfig(tb testing.TB) *rest.Config {
	tb.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(tb))
	if err != nil {
		tb.Fatalf("load the kubeconfig of the cluster: %v", err)
	}
	config.QPS = -1
	return config
}

// Core returns a client for the core API group of Main's cluster.
func Core(tb testing.TB) *corev1client.CoreV1Client {
	tb.Helper()
	client, err := corev1client.NewForConfig(RESTConfig(tb))
	if err != nil {
		tb.Fatalf("make a client: %v", err)
	}
	return client
}

// Namespace creates a namespace for one test.
func Namespace(tb testing.TB) string {
	tb.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	namespace, err := Core(tb).Namespaces().Create(tb.Context(), namespace, metav1.CreateOptions{})
	if err != nil {
		tb.Fatalf("create a namespace: %v", err)
	}
	return namespace.Name
}

// CreateConfigMap creates a ConfigMap.
func CreateConfigMap(tb testing.TB, namespace, name string, labels map[string]string) {
	tb.Helper()
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := Core(tb).ConfigMaps(namespace).Create(tb.Context(), configMap, metav1.CreateOptions{}); err != nil {
		tb.Fatalf("create ConfigMap %s/%s: %v", namespace, name, err)
	}
}

// Eventually calls done until it returns true. The test fails with the last state if it never does.
func Eventually(tb testing.TB, what string, done func(ctx context.Context) (ok bool, state string)) {
	tb.Helper()
	var last string
	err := wait.PollUntilContextTimeout(tb.Context(), 20*
		time.Millisecond, patience, true, func(ctx context.Context) (ok bool, err error) {
		ok, last = done(ctx)
		return ok, nil
	})
	if err != nil {
		tb.Fatalf("%s: not within %s; last state: %s", what, patience, last)
	}
}

// InMemory gives a test a cluster in memory on a port of this machine, in real time, and sets $KUBECONFIG to it. The
// test must not be parallel.
func InMemory(tb testing.TB, config simulation.Config) {
	tb.Helper()
	cluster := simulation.New(tb, config)
	tb.Setenv(clientcmd.RecommendedConfigPathEnvVar, cluster.Serve())
}

// AnyCluster is for tests that run on both: it does nothing if Main has started a cluster, otherwise it is InMemory.
func AnyCluster(tb testing.TB, config simulation.Config) {
	tb.Helper()
	if !clustertest.Real() {
		InMemory(tb, config)
	}
}
