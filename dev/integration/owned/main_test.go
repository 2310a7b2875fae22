// Package owned tests package owned on an API server and with the garbage collector: in memory, and on a real cluster.
package owned

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/anycluster"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/simulation"
)

var anyCluster anycluster.Cluster

func TestMain(m *testing.M) { anyCluster.Main(m, localcluster.Config{Controllers: true}) }

// inBubble returns a test for t.Run that runs in virtual time in memory.
func inBubble(test func(t *testing.T)) func(t *testing.T) {
	return func(t *testing.T) {
		t.Helper()
		anyCluster.Test(t, test)
	}
}

// Kinds of the tests' children.
var (
	configMapKind   = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	secretKind      = corev1.SchemeGroupVersion.WithKind("Secret")
	podTemplateKind = corev1.SchemeGroupVersion.WithKind("PodTemplate")
	serviceKind     = corev1.SchemeGroupVersion.WithKind("Service")
	namespaceKind   = corev1.SchemeGroupVersion.WithKind("Namespace")
	jobKind         = schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}
	clusterRoleKind = schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}
	appKind         = schema.GroupVersionKind{Group: "owned.example.com", Version: "v1", Kind: "WebApp"}
	clusterAppKind  = schema.GroupVersionKind{Group: "owned.example.com", Version: "v1", Kind: "ClusterWebApp"}
	gadgetKind      = schema.GroupVersionKind{Group: "gadgets.example.com", Version: "v1", Kind: "Gadget"}
)

func typeMeta(kind schema.GroupVersionKind) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
}

func allKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{configMapKind, secretKind, serviceKind, jobKind, clusterRoleKind}
}

// env is the environment of a test: a namespace of its own, and a client without informers.
type env struct {
	*testing.T
	config    *rest.Config // of cluster
	cluster   *kube.Cluster
	c         *client.Client
	namespace string
}

func newEnv(t *testing.T) env {
	t.Helper()
	config := anyCluster.RESTConfig(t, simulation.Config{})
	cluster := clustertest.Connect(t, config)
	c := clustertest.Client(t, cluster)
	e := env{T: t, config: config, cluster: cluster, c: c, namespace: clustertest.Namespace(t, c)}
	e.define(appKind, "webapps", "Namespaced")
	e.define(clusterAppKind, "clusterwebapps", "Cluster")
	return e
}

// definition returns a CustomResourceDefinition of a kind that accepts all fields.
func definition(kind schema.GroupVersionKind, plural, scope string) *unstructured.Unstructured {
	return fixture.Kind{GroupVersionKind: kind, Plural: plural, ClusterScoped: scope == "Cluster"}.Definition()
}

func (e env) define(kind schema.GroupVersionKind, plural, scope string) {
	e.Helper()
	if _, err := client.Apply(e.Context(), e.c, definition(kind, plural, scope)); err != nil {
		e.Fatal(err)
	}
	clustertest.Eventually(e, func() string {
		if _, err := client.All[*unstructured.Unstructured](e.Context(), e.c, kube.Selection{Kind: kind}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// apps returns an informer of the owners in the namespace.
func (e env) apps() *informer.Informer[*unstructured.Unstructured] {
	e.Helper()
	return must(informer.New(informer.Config[*unstructured.Unstructured]{
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](e.cluster, kube.Selection{Kind: appKind, Namespaces: []string{e.namespace}}),
		Logger:    clustertest.Logger(e),
	}))(e)
}

// app creates an owner.
func (e env) app(name string) *unstructured.Unstructured {
	e.Helper()
	app := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
	app.SetGroupVersionKind(appKind)
	app.SetNamespace(e.namespace)
	app.SetName(name)
	return must(client.Create(e.Context(), e.c, app))(e)
}

func (e env) set(change ...func(*owned.Config)) *owned.Set {
	e.Helper()
	config := owned.Config{Client: e.c, Name: "webapp", Kinds: allKinds()}
	for _, c := range change {
		c(&config)
	}
	return must(owned.New(config))(e)
}

// recreated returns children of wave 0 that may be deleted and created again.
func recreated(objects ...kube.Object) []owned.Child {
	children := owned.Of(objects...)
	for n := range children {
		children[n].Recreate = true
	}
	return children
}

func (e env) configMap(name string, data ...string) *corev1.ConfigMap {
	return configMapIn(e.namespace, name, data...)
}

func configMapIn(namespace, name string, data ...string) *corev1.ConfigMap {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for pair := range slices.Chunk(data, 2) {
		if config.Data == nil {
			config.Data = map[string]string{}
		}
		config.Data[pair[0]] = pair[1]
	}
	return config
}

// get returns a ConfigMap, or nil if it does not exist.
func (e env) get(key kube.Key) *corev1.ConfigMap {
	e.Helper()
	config, err := client.Get[*corev1.ConfigMap](e.Context(), e.c, key)
	if errors.Is(err, client.ErrGone) {
		return nil
	}
	if err != nil {
		e.Fatal(err)
	}
	return config
}

func (e env) key(name string) kube.Key { return kube.Key{Namespace: e.namespace, Name: name} }

// apply applies children, and fails the test on an error. A conflict is tried again, as a controller does, at
// most nine times: the cluster's controllers may write an object between a read and a write of Apply.
func (e env) apply(set *owned.Set, owner kube.Object, children ...owned.Child) owned.Report {
	e.Helper()
	for attempt := 1; ; attempt++ {
		report, err := set.Apply(e.Context(), owner, children...)
		if !errors.Is(err, client.ErrChanged) || attempt == 10 {
			return must(report, err)(e)
		}
	}
}

// outcomes returns "Kind name: outcome" for each result.
func outcomes(results []owned.Result) []string {
	var all []string
	for _, r := range results {
		all = append(all, r.Kind.Kind+" "+r.Key.Name+": "+string(r.Outcome))
	}
	return all
}

// unready returns why the report is not ready, or "".
func unready(report owned.Report, err error) string {
	if err != nil {
		return err.Error()
	}
	return report.Pending()
}

func (e env) want(results []owned.Result, want ...string) {
	e.Helper()
	if got := outcomes(results); !slices.Equal(got, want) {
		e.Fatalf("got %q, want %q", got, want)
	}
}

func must[T any](value T, err error) func(testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return value
	}
}

// newCalls returns a record of requests: "patch configmaps web (dry run)".
func newCalls() *fixture.Calls {
	return &fixture.Calls{Text: func(call kube.Call) string {
		return strings.Replace(fixture.Verb(call), call.Verb, call.Verb+" "+call.Resource.Resource+" "+call.Key.Name, 1)
	}}
}

// changes reports whether a plan would change anything.
func changes(plan owned.Report) bool {
	return slices.ContainsFunc(plan.Results, func(r owned.Result) bool { return r.Outcome != owned.Unchanged })
}

// undesired returns the results of children that are not desired and still exist: not those that this run has deleted,
// nor objects of other owners.
func undesired(report owned.Report) []owned.Result {
	return slices.DeleteFunc(slices.Clone(report.Results), func(r owned.Result) bool {
		return r.Desired || slices.Contains([]owned.ChildOutcome{owned.Deleted, "foreign"}, r.Outcome)
	})
}

// wrote reports whether a run has changed any object.
func wrote(report owned.Report) bool {
	writes := []owned.ChildOutcome{owned.Created, owned.Updated, "recreating", owned.Deleted}
	return slices.ContainsFunc(report.Results, func(r owned.Result) bool {
		return slices.Contains(writes, r.Outcome) || strings.Contains(owned.Report{Results: []owned.Result{r}}.String(), "force-removed")
	})
}
