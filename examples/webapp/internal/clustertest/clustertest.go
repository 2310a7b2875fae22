// Package clustertest has what tests on a cluster share. With EVENKEEL_LONG=1, or with an existing cluster, they use a
// real one. Otherwise tests that run in memory too run there, and the others are skipped.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// patience is the time within which an expected event must occur.
const patience = 2 * time.Minute

// Count returns full if EVENKEEL_LONG is 1, otherwise bounded.
func Count(bounded, full int) int {
	if os.Getenv("EVENKEEL_LONG") == "1" {
		return full
	}
	return bounded
}

// OnlyLong skips a test unless EVENKEEL_LONG is 1.
func OnlyLong(tb testing.TB) {
	tb.Helper()
	if Count(0, 1) == 0 {
		tb.Skip("runs with EVENKEEL_LONG=1")
	}
}

// Real reports whether tests use a real cluster.
func Real() bool { return Count(0, 1) == 1 || os.Getenv(localcluster.EnvExisting) != "" }

// Main is the body of a TestMain. If tests use a real cluster, it starts one, sets $KUBECONFIG to it and runs prepare
// (unless it is nil) before the tests. It exits the process, with an error if a goroutine is left.
func Main(m *testing.M, config localcluster.Config, prepare func(ctx context.Context, to *rest.Config) error) {
	status := 1
	stop, err := start(config, prepare)
	if err == nil {
		status = m.Run()
		err = stop()
	}
	if err == nil && status == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

func start(
	config localcluster.Config, prepare func(context.Context, *rest.Config) error,
) (stop func() error, err error) {
	// A cluster of the caller is never used.
	if err := os.Unsetenv(clientcmd.RecommendedConfigPathEnvVar); err != nil {
		return nil, err
	}
	if !Real() {
		return func() error { return nil }, nil
	}
	cluster, err := localcluster.Start(context.Background(), config)
	if err != nil {
		return nil, err
	}
	err = os.Setenv(clientcmd.RecommendedConfigPathEnvVar, cluster.Kubeconfig())
	if err == nil && prepare != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		err = prepare(ctx, cluster.RESTConfig())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the cluster: %w", err), cluster.Stop())
	}
	return cluster.Stop, nil
}

// AnyCluster is for tests that run on both: unless tests use a real cluster, it gives the test a cluster in memory on a
// port of this machine, in real time, and sets $KUBECONFIG to it. The test must not be parallel.
func AnyCluster(tb testing.TB, config simulation.Config) {
	tb.Helper()
	if !Real() {
		tb.Setenv(clientcmd.RecommendedConfigPathEnvVar, simulation.New(tb, config).Serve())
	}
}

// Kubeconfig returns the path of the cluster's kubeconfig. Without a cluster it skips the test.
func Kubeconfig(tb testing.TB) string {
	tb.Helper()
	path := os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	if path == "" {
		OnlyLong(tb)
		tb.Fatal("there is no cluster: TestMain must call Main, or the test AnyCluster")
	}
	return path
}

// RESTConfig returns the administrator's config for the cluster. Without a cluster it skips the test.
func RESTConfig(tb testing.TB) *rest.Config {
	tb.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", Kubeconfig(tb))
	if err != nil {
		tb.Fatalf("load the kubeconfig of the cluster: %v", err)
	}
	config.QPS = -1
	return config
}

// Namespace creates a namespace for one test.
func Namespace(tb testing.TB) string {
	tb.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	client, err := kubernetes.NewForConfig(RESTConfig(tb))
	if err == nil {
		namespace, err = client.CoreV1().Namespaces().Create(tb.Context(), namespace, metav1.CreateOptions{})
	}
	if err != nil {
		tb.Fatalf("create a namespace: %v", err)
	}
	return namespace.Name
}

// Eventually calls done until it returns true. The test fails with the last state if it never does.
func Eventually(tb testing.TB, what string, done func(ctx context.Context) (ok bool, state string)) {
	tb.Helper()
	var last string
	check := func(ctx context.Context) (ok bool, err error) {
		ok, last = done(ctx)
		return ok, nil
	}
	if err := wait.PollUntilContextTimeout(tb.Context(), 20*time.Millisecond, patience, true, check); err != nil {
		tb.Fatalf("%s: not within %s; last state: %s", what, patience, last)
	}
}

// Go calls a program's run function in a goroutine. stop ends it as Ctrl-C would, waits, and fails the test unless it
// returned nil. The end of the test calls stop too.
func Go(tb testing.TB, run func(ctx context.Context) error) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }() // waited for by stop
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("the program ended with: %v", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}

// FreeAddress returns an unused address. Its port is below the range that systems assign dynamically, so that no other
// program gets it in the meantime.
func FreeAddress(tb testing.TB) string {
	tb.Helper()
	for range 100 {
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", 20000+rand.IntN(10000)))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			tb.Fatal(err)
		}
		return listener.Addr().String()
	}
	tb.Fatal("no port is free")
	return ""
}
