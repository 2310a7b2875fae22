package operator

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/examples/internal/exampletest"
	"github.com/evenkeel-go/evenkeel/examples/internal/manifest"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
	"github.com/evenkeel-go/evenkeel/examples/podterminator/config"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
	"github.com/evenkeel-go/evenkeel/simulation"
)

func TestMain(m *testing.M) {
	exampletest.Main(m, localcluster.Config{Controllers: true, Nodes: 2}, install)
}

// install applies the operator's manifests.
func install(ctx context.Context, to *rest.Config) error {
	cluster, err := kube.Connect(to)
	if err != nil {
		return err
	}
	if _, err = manifest.InstallCRD(ctx, cluster, config.CRD); err != nil {
		return err
	}
	return manifest.Apply(ctx, cluster, "", config.RBAC)
}

// place is a test and the cluster that it runs on.
type place struct {
	*testing.T
	config *rest.Config // with all permissions
}

// everywhere runs test in memory, in virtual time, and on the real cluster.
func everywhere(t *testing.T, test func(t place)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(place{t, inMemory(t)}) })
	})
	t.Run("cluster", func(t *testing.T) { test(place{t, exampletest.RESTConfig(t)}) })
}

// inMemory returns the config of a new cluster in memory.
func inMemory(t *testing.T) *rest.Config {
	t.Helper()
	manifests := slices.Concat(config.CRD, []byte("\n---\n"), config.RBAC)
	return simulation.New(t, simulation.Config{
		YAML: string(manifests), Types: []func(*runtime.Scheme) error{v1alpha1.AddToScheme},
	}).RESTConfig("tests")
}

// asOperator connects as the service account of config/rbac.yaml, so that the operator in these tests has only its
// permissions.
func asOperator(t place, change func(*rest.Config)) *kube.Cluster {
	t.Helper()
	c := rest.CopyConfig(t.config)
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:pod-terminator:pod-terminator",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:pod-terminator", "system:authenticated"},
	}
	if change != nil {
		change(c)
	}
	cluster, err := kube.Connect(c, v1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// fixture is a namespace with Pods.
type fixture struct {
	t         place
	namespace string
	pods      corev1client.PodInterface
}

// newFixture creates a namespace with running Pods with the label app=web.
func newFixture(t place, pods int) *fixture {
	t.Helper()
	core, err := corev1client.NewForConfig(t.config)
	if err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if namespace, err = core.Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, namespace: namespace.Name, pods: core.Pods(namespace.Name)}
	for i := range pods {
		f.createPod(fmt.Sprintf("web-%d", i), "web")
	}
	exampletest.Eventually(t, "all Pods run", func(ctx context.Context) (bool, string) {
		n := len(f.alive(ctx))
		return n == pods, fmt.Sprintf("%d of %d run", n, pods)
	})
	return f
}

func (f *fixture) createPod(name, app string) {
	f.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	exampletest.Eventually(f.t, "Pod "+name+" can be created", func(ctx context.Context) (bool, string) {
		// Pods are rejected until the namespace has its default service account.
		_, err := f.pods.Create(ctx, pod, metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// alive returns the Pods app=web that run and are not being deleted.
func (f *fixture) alive(ctx context.Context) map[types.UID]corev1.Pod {
	f.t.Helper()
	list, err := f.pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		f.t.Fatalf("list Pods: %v", err)
	}
	alive := map[types.UID]corev1.Pod{}
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			alive[pod.UID] = pod
		}
	}
	return alive
}

// references returns the Pods app=web that are alive, by name.
func (f *fixture) references() []v1alpha1.PodReference {
	f.t.Helper()
	var refs []v1alpha1.PodReference
	for uid, pod := range f.alive(f.t.Context()) {
		refs = append(refs, v1alpha1.PodReference{Name: pod.Name, UID: uid})
	}
	slices.SortFunc(refs, func(a, b v1alpha1.PodReference) int { return strings.Compare(a.Name, b.Name) })
	return refs
}

// marked returns the names of the Pods that have a mark and are not being deleted.
func (f *fixture) marked() []string {
	f.t.Helper()
	list, err := f.pods.List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatalf("list Pods: %v", err)
	}
	var names []string
	for _, pod := range list.Items {
		if _, ok := pod.Annotations[v1alpha1.VictimAnnotation]; ok && pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// terminator returns a PodTerminator of the Pods app=web.
func (f *fixture) terminator(percent int32, period time.Duration) *v1alpha1.PodTerminator {
	return &v1alpha1.PodTerminator{
		ObjectMeta: metav1.ObjectMeta{Name: "chaos", Namespace: f.namespace},
		Spec: v1alpha1.PodTerminatorSpec{
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			Percent:  percent,
			Period:   metav1.Duration{Duration: period},
		},
	}
}

func (f *fixture) create(pt *v1alpha1.PodTerminator) *v1alpha1.PodTerminator {
	f.t.Helper()
	out := &v1alpha1.PodTerminator{}
	if err := terminators(f.t).Post().Namespace(pt.Namespace).Resource(v1alpha1.Resource).Body(pt).Do(f.t.Context()).Into(out); err != nil {
		f.t.Fatalf("create the PodTerminator: %v", err)
	}
	return out
}

// createRaw creates a PodTerminator with a selector that the Go type cannot express.
func (f *fixture) createRaw(selector string) {
	f.t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"chaos.evenkeel.dev/v1alpha1","kind":"PodTerminator","metadata":{"name":"chaos"},
		"spec":{"selector":%s,"percent":100,"period":"1h"}}`, selector)
	err := terminators(f.t).Post().Namespace(f.namespace).Resource(v1alpha1.Resource).Body([]byte(body)).Do(f.t.Context()).Error()
	if err != nil {
		f.t.Fatalf("create %s: %v", body, err)
	}
}

func (f *fixture) patch(kind types.PatchType, patch string) {
	f.t.Helper()
	err := terminators(f.t).Patch(kind).Namespace(f.namespace).Resource(v1alpha1.Resource).Name("chaos").
		Body([]byte(patch)).Do(f.t.Context()).Error()
	if err != nil {
		f.t.Fatalf("patch the PodTerminator with %s: %v", patch, err)
	}
}

func (f *fixture) delete() {
	f.t.Helper()
	if err := terminators(f.t).Delete().Namespace(f.namespace).Resource(v1alpha1.Resource).Name("chaos").Do(f.t.Context()).Error(); err != nil {
		f.t.Fatalf("delete the PodTerminator: %v", err)
	}
}

// get returns the PodTerminator, or nil if it does not exist.
func (f *fixture) get(ctx context.Context) *v1alpha1.PodTerminator {
	f.t.Helper()
	pt := &v1alpha1.PodTerminator{}
	err := terminators(f.t).Get().Namespace(f.namespace).Resource(v1alpha1.Resource).Name("chaos").Do(ctx).Into(pt)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		f.t.Fatalf("get the PodTerminator: %v", err)
	}
	return pt
}

// until waits until done returns true for the PodTerminator (nil if it does not exist), and returns it.
func (f *fixture) until(what string, done func(*v1alpha1.PodTerminator) bool) *v1alpha1.PodTerminator {
	f.t.Helper()
	var pt *v1alpha1.PodTerminator
	exampletest.Eventually(f.t, what, func(ctx context.Context) (bool, string) {
		pt = f.get(ctx)
		return done(pt), fmt.Sprintf("%+v", pt)
	})
	return pt
}

// afterRound waits until n rounds have ended.
func (f *fixture) afterRound(n int64) *v1alpha1.PodTerminator {
	f.t.Helper()
	return f.until(fmt.Sprintf("round %d has ended", n), func(pt *v1alpha1.PodTerminator) bool {
		return pt != nil && pt.Status.Rounds >= n && pt.Status.Plan == nil
	})
}

// operate runs an operator for the fixture's namespace until stop is called or the test
// ends.
func (f *fixture) operate(change func(*rest.Config), with Config) (stop func()) {
	f.t.Helper()
	cluster := asOperator(f.t, change)
	if err := cluster.SetNamespaces(f.namespace); err != nil {
		f.t.Fatal(err)
	}
	cluster.SetLogger(slog.New(slog.NewTextHandler(f.t.Output(), nil)))
	op, err := New(cluster, with)
	if err != nil {
		f.t.Fatal(err)
	}
	_, stop = exampletest.Go(f.t, func(ctx context.Context, _ io.Writer) error { return op.Run(ctx) })
	return stop
}

func terminators(t place) rest.Interface {
	t.Helper()
	admin, err := kube.Connect(t.config, v1alpha1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	client, err := admin.RESTClient(v1alpha1.GroupVersion())
	if err != nil {
		t.Fatal(err)
	}
	return client
}
