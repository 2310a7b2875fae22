// Package exampletest has the common code of the examples' tests: a cluster for each test binary, and programs that run
// during a test.
package exampletest

import (
	"context"
	"errors"
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

	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// Main is the body of a TestMain: it starts a cluster, sets $KUBECONFIG to it, runs prepare (unless it is nil) and the
// tests, stops the cluster, and fails if a goroutine is left. It exits the process.
func Main(m *testing.M, config localcluster.Config, prepare func(ctx context.Context, to *rest.Config) error) {
	code, err := runWithCluster(m, config, prepare)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests with a cluster:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func runWithCluster(
	m *testing.M, config localcluster.Config, prepare func(context.Context, *rest.Config) error,
) (code int, err error) {
	ctx := context.Background()
	cluster, err := localcluster.Start(ctx, config)
	if err != nil {
		return 1, err
	}
	code, err = runIn(ctx, m, cluster, prepare)
	if err := errors.Join(err, cluster.Stop()); err != nil {
		return code, err
	}
	if code != 0 {
		return code, nil // a failed test may leave goroutines
	}
	return code, goleak.Find()
}

func runIn(
	ctx context.Context, m *testing.M, cluster *localcluster.Cluster, prepare func(context.Context, *rest.Config) error,
) (code int, err error) {
	// The examples find the cluster as a user's program would.
	if err := os.Setenv(clientcmd.RecommendedConfigPathEnvVar, cluster.Kubeconfig()); err != nil {
		return 1, err
	}
	if prepare != nil {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		if err := prepare(ctx, cluster.RESTConfig()); err != nil {
			return 1, fmt.Errorf("prepare the cluster: %w", err)
		}
	}
	return m.Run(), nil
}

// Kubeconfig returns the path of the kubeconfig of Main's cluster.
func Kubeconfig() string { return os.Getenv(clientcmd.RecommendedConfigPathEnvVar) }

// RESTConfig returns the administrator's config for Main's cluster.
func RESTConfig(tb testing.TB) *rest.Config {
	tb.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig())
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
func InMemory(tb testing.TB) {
	tb.Helper()
	cluster := simulation.New(tb, simulation.Config{})
	tb.Setenv(clientcmd.RecommendedConfigPathEnvVar, cluster.Serve())
}
