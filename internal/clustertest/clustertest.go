// Package clustertest is what tests against a real API server have in common: a cluster for each
// test binary, a namespace for each test, clients, and controllers that run beside a test.
package clustertest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// Real reports whether tests that run in memory too use a real cluster: with EVENKEEL_LONG=1, or with an existing one.
func Real() bool { return testlength.Count(0, 1) == 1 || os.Getenv(localcluster.EnvExisting) != "" }

// Main is the body of a TestMain: it starts a cluster, passes it to use, runs the tests, stops the cluster, and fails
// if a goroutine is left. It exits the process.
func Main(m *testing.M, config localcluster.Config, use func(*localcluster.Cluster)) {
	os.Exit(run(m, config, use))
}

func run(m *testing.M, config localcluster.Config, use func(*localcluster.Cluster)) int {
	cluster, err := localcluster.Start(context.Background(), config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the local cluster:", err)
		return 1
	}
	use(cluster)
	status := m.Run()
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the local cluster:", err)
		return 1
	}
	if status == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return status
}

// Connect returns the cluster as the user of config sees it, until the test ends.
func Connect(tb testing.TB, config *rest.Config, addTypes ...func(*runtime.Scheme) error) *kube.Cluster {
	tb.Helper()
	cluster, err := kube.Connect(config, addTypes...)
	if err != nil {
		tb.Fatal(err)
	}
	cluster.SetLogger(Logger(tb))
	tb.Cleanup(cluster.HTTPClient().CloseIdleConnections)
	return cluster
}

// Client returns a client of cluster with the field owner "tests".
func Client(tb testing.TB, cluster *kube.Cluster, informers ...client.Informer) *client.Client {
	tb.Helper()
	c, err := client.New(client.Config{
		Cluster: cluster, FieldOwner: "tests", Informers: informers,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Namespace creates a namespace for one test.
func Namespace(tb testing.TB, c *client.Client) string {
	tb.Helper()
	namespace, err := client.Create(tb.Context(), c,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}})
	if err != nil {
		tb.Fatal(err)
	}
	return namespace.Name
}

// Env is a test with its part of a cluster: a client and a namespace. Packages of tests embed it.
type Env struct {
	*testing.T
	Cluster   *kube.Cluster
	Client    *client.Client // without informers
	Namespace string
}

// NewEnv returns an Env for the user of config, with a new namespace.
func NewEnv(t *testing.T, config *rest.Config, addTypes ...func(*runtime.Scheme) error) Env {
	t.Helper()
	cluster := Connect(t, config, addTypes...)
	c := Client(t, cluster)
	return Env{T: t, Cluster: cluster, Client: c, Namespace: Namespace(t, c)}
}

// Key returns the key of an object in the namespace.
func (e Env) Key(name string) kube.Key { return kube.Key{Namespace: e.Namespace, Name: name} }

// Meta returns the metadata of an object in the namespace.
func (e Env) Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: e.Namespace, Name: name}
}

// Text returns the text of err, or "" for nil: what a function of Eventually returns.
func Text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Must returns a function that returns value, or ends the test if err is not nil.
func Must[V any](value V, err error) func(testing.TB) V {
	return func(tb testing.TB) V {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

// PodTemplate returns the template of Pods with one container.
func PodTemplate(labels map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
}

// Logger returns one that writes to the test's output.
func Logger(tb testing.TB) *slog.Logger {
	tb.Helper()
	return slog.New(slog.NewTextHandler(tb.Output(), nil))
}

// Informer returns an informer of selected objects that runs until the test ends, and is synced.
func Informer[T kube.Object](tb testing.TB, cluster *kube.Cluster, selection kube.Selection) *informer.Informer[T] {
	tb.Helper()
	return RunInformer(tb, informer.Config[T]{Retriever: informer.RetrieveSelected[T](cluster, selection)})
}

// RunInformer returns an informer that runs until the test ends, and is synced.
func RunInformer[T kube.Object](tb testing.TB, config informer.Config[T]) *informer.Informer[T] {
	tb.Helper()
	config.Logger = Logger(tb)
	i, err := informer.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(i.Join(tb.Context()))
	if err := i.WaitSynced(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return i
}

// Run runs a controller until the test ends, or until stop.
func Run[T kube.Object](tb testing.TB, config controller.Config[T]) (ctrl *controller.Controller[T], stop func()) {
	tb.Helper()
	if config.Logger == nil {
		config.Logger = Logger(tb)
	}
	ctrl, err := controller.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	return ctrl, testrun.Start(tb, ctrl.Run)
}

// patience is how long Eventually waits. After a restart of the API server an informer may be in a back-off of 15 s, it
// keeps the objects of a removed kind for a minute, and machines that run tests may be busy.
const patience = 3 * time.Minute

// Eventually waits until check returns "". Otherwise it fails the test with the last result of check.
func Eventually(tb testing.TB, check func() string) {
	tb.Helper()
	last := "not checked"
	err := wait.PollUntilContextTimeout(tb.Context(), 20*
		time.Millisecond, patience, true, func(context.Context) (bool, error) {
		last = check()
		return last == "", nil
	})
	if err != nil {
		tb.Fatalf("after %s: %s", patience, last)
	}
}
