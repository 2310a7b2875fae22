// Package integration tests the library against a real kube-apiserver.
package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

// local is the API server that all tests of the package share. It has no controllers that change objects.
var local *localcluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Main(m, localcluster.Config{}, func(c *localcluster.Cluster) { local = c })
}

// env is a test's part of the cluster: its own namespace, and clients.
type env struct {
	*testing.T
	namespace string
	clients   kubernetes.Interface
	dynamic   dynamic.Interface
}

func newEnv(t *testing.T) env {
	t.Helper()
	clients := must(kubernetes.NewForConfig(unlimited(local.RESTConfig())))(t)
	namespace := must(clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{}))(t)
	return env{
		T: t, namespace: namespace.Name, clients: clients,
		dynamic: must(dynamic.NewForConfig(unlimited(local.RESTConfig())))(t),
	}
}

// startCluster starts a cluster for one test, which may end it.
func startCluster(t *testing.T) *localcluster.Cluster {
	t.Helper()
	cluster := must(localcluster.Start(t.Context(), localcluster.Config{}))(t)
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// unlimited lifts client-go's own limit of 5 requests a second.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

// connect returns the cluster for the user of config.
func connect(t *testing.T, config *rest.Config) *kube.Cluster {
	t.Helper()
	return clustertest.Connect(t, config)
}

// newClient returns a client with the administrator's permissions.
func newClient(t *testing.T) *client.Client {
	t.Helper()
	return clustertest.Client(t, connect(t, local.RESTConfig()))
}

// must fails the test if err is not nil.
func must[V any](value V, err error) func(*testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func (e env) putConfigMap(name, value string) {
	e.Helper()
	maps := e.clients.CoreV1().ConfigMaps(e.namespace)
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"value": value}},
		Data:       map[string]string{"value": value},
	}
	if _, err := maps.Get(e.Context(), name, metav1.GetOptions{}); err != nil {
		must(maps.Create(e.Context(), obj, metav1.CreateOptions{}))(e.T)
		return
	}
	must(maps.Update(e.Context(), obj, metav1.UpdateOptions{}))(e.T)
}

// eventually waits until check returns "". Otherwise it fails the test with the last result of check.
func eventually(t *testing.T, check func() string) {
	t.Helper()
	clustertest.Eventually(t, check)
}

// run runs a controller until the test ends, or until stop.
func run[T kube.Object](t *testing.T, config controller.Config[T]) (ctrl *controller.Controller[T], stop func()) {
	t.Helper()
	return clustertest.Run(t, config)
}

// seen records what handlers received: the last value by name, and the number of runs.
type seen struct {
	mu     sync.Mutex
	values map[string]string
	runs   int
}

func (s *seen) add(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[name] = value
	s.runs++
}

func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

// lacks returns "" if the recorded values are the expected ones.
func (s *seen) lacks(want map[string]string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fmt.Sprint(s.values) == fmt.Sprint(want) {
		return ""
	}
	return fmt.Sprintf("handlers saw %v, want %v", s.values, want)
}

// widgets is the resource of the custom kind that createCRD installs.
var widgets = schema.GroupVersionResource{Group: "integration.evenkeel.dev", Version: "v1", Resource: "widgets"}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// createCRD installs the kind Kind in the group of widgets, and waits until it is served.
func (e env) createCRD(kind string) (remove func()) {
	e.Helper()
	crd := fixture.Kind{GroupVersionKind: widgets.GroupVersion().WithKind(kind), Schema: `
{type: object, properties: {spec: {type: object, properties: {value: {type: string}}}}}`}.Definition()
	must(e.dynamic.Resource(crds).Create(e.Context(), crd, metav1.CreateOptions{}))(e.T)
	resource := widgets
	resource.Resource = strings.ToLower(kind) + "s"
	eventually(e.T, func() string {
		if _, err := e.dynamic.Resource(resource).List(e.Context(), metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
	return func() {
		e.Helper()
		if err := e.dynamic.Resource(crds).Delete(e.Context(), crd.GetName(), metav1.DeleteOptions{}); err != nil {
			e.Error(err)
		}
	}
}
