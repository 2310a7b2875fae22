package integration

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// again is whether a write makes the handler of its key run again.
type again int

const (
	// never: the controller identifies the write as the key's own.
	never again = iota
	// perhaps: the controller need not identify it.
	perhaps
	// always: the write runs the handler, as deletions do.
	always
)

// ownWrite is one way to write an object, and how the controller must treat it.
type ownWrite struct {
	resource schema.GroupVersionResource
	// prepare creates the objects that exist before the controller starts.
	prepare func(w *writing)
	// write is called in the first run. answer is the object in the last response, if any.
	write func(ctx context.Context, w *writing) (answer metav1.Object, err error)
	// want are the records: "patch Deployment/status: done".
	want  []string
	again again
	// unwatched is true when no informer shows the object after the write.
	unwatched bool
}

// writing has the data and clients of an ownWrite. The key that writes, a ConfigMap, has the name of the written
// object, and owns it.
type writing struct {
	env
	name string
	meta metav1.ObjectMeta
	// own and ownDynamic are the controller's clients; env has those of another client.
	own        kubernetes.Interface
	ownDynamic dynamic.Interface

	// The following are guarded by writes.mu.
	runs    int // since the test requested a write
	records []clustertest.Write
	answer  metav1.Object
	err     error
}

// writes has all ownWrites of one controller.
type writes struct {
	mu  sync.Mutex
	all map[string]*writing
}

// ownClients are the ways to create clients with writes that a controller records.
func ownClients(t *testing.T, cluster *kube.Cluster) map[string]kubernetes.Interface {
	t.Helper()
	content := func(contentType string) *rest.Config {
		config := cluster.RESTConfig()
		config.ContentType, config.AcceptContentTypes = contentType, contentType
		return config
	}
	return map[string]kubernetes.Interface{
		"the cluster's HTTP client": must(kubernetes.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient()))(t),
		"JSON":                      must(kubernetes.NewForConfig(content(runtime.ContentTypeJSON)))(t),
		"protobuf":                  must(kubernetes.NewForConfig(content(runtime.ContentTypeProtobuf)))(t),
	}
}

// Every way to write, with every client: the write is recorded, the key is processed again only after the informers
// show the write, the write does not run the handler again unless that is necessary, and a change by another client
// immediately after it does.
func TestContract13_OwnWritesOfRealClients(t *testing.T) {
	t.Parallel()
	cluster := connect(t, local.RESTConfig())
	for name, client := range ownClients(t, cluster) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			selection := kube.Selection{Namespaces: []string{e.namespace}}
			deployments := must(informer.New(informer.Config[*appsv1.Deployment]{
				Name: "deployments", Retriever: informer.RetrieveSelected[*appsv1.Deployment](cluster, selection),
			}))(t)
			selection.LabelSelector = "shown=yes"
			secrets := must(informer.New(informer.Config[*corev1.Secret]{
				Name: "secrets", Retriever: informer.RetrieveSelected[*corev1.Secret](cluster, selection),
			}))(t)
			owner := source.Owner{Kind: schema.GroupKind{Kind: "ConfigMap"}}
			cases := map[string]ownWrite{}
			for _, some := range []map[string]ownWrite{deploymentWrites(), podWrites(), secretWrites(), unknownWrites()} {
				maps.Copy(cases, some)
			}
			checkOwnWrites(e, cluster, client, cases,
				source.OwnedIn(deployments, owner), source.OwnedIn(secrets, owner), source.Owned[*corev1.Pod](cluster))
		})
	}
}

// checkOwnWrites runs a controller of ConfigMaps. The handler of each ConfigMap makes one of the writes.
func checkOwnWrites(e env, cluster *kube.Cluster, own kubernetes.Interface, cases map[string]ownWrite, sources ...controller.Source) {
	e.Helper()
	all := &writes{all: map[string]*writing{}}
	ownDynamic := must(dynamic.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient()))(e.T)
	for name, c := range cases {
		e.putConfigMap(name, "1")
		trigger := must(e.clients.CoreV1().ConfigMaps(e.namespace).Get(e.Context(), name, metav1.GetOptions{}))(e.T)
		w := &writing{env: e, name: name, own: own, ownDynamic: ownDynamic}
		w.meta = metav1.ObjectMeta{Name: name, Namespace: e.namespace, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: trigger.UID, Controller: new(true),
		}}}
		if c.prepare != nil {
			c.prepare(w)
		}
		all.all[name] = w
	}
	ctrl, _ := run(e.T, controller.Config[*corev1.ConfigMap]{
		// Longer than the timeout of eventually: a write that is never shown fails the test, a slow machine does not.
		Runs: controller.RunsConfig{ConsistencyTimeout: 10 * time.Minute},
		Name: "writer-" + e.namespace, ResyncInterval: -1, Workers: 4, Sources: sources,
		Retriever: informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{Namespaces: []string{e.namespace}}),
		Handler: func(ctx context.Context, m *corev1.ConfigMap) error {
			return all.handle(ctx, cases, m)
		},
	})
	settled(e, ctrl, all, 0)
	for name := range cases {
		must(e.clients.CoreV1().ConfigMaps(e.namespace).Patch(e.Context(), name, types.MergePatchType,
			[]byte(`{"data":{"write":"now"}}`), metav1.PatchOptions{}))(e.T)
	}
	settled(e, ctrl, all, 1)
	before := map[string]int{}
	for name, c := range cases {
		before[name] = all.check(e, ctrl, name, &c)
	}
	for name, c := range cases {
		all.all[name].poke(&c)
	}
	eventually(e.T, func() string {
		all.mu.Lock()
		defer all.mu.Unlock()
		for name, w := range all.all {
			if w.runs <= before[name] {
				return name + ": a change by another client has not made it run\n" + ctrl.Explain(e.key(name))
			}
		}
		return ""
	})
	if all := ctrl.Problems(); len(all) > 0 {
		e.Errorf("problems: %v", all)
	}
}

func (e env) key(name string) kube.Key { return kube.Key{Namespace: e.namespace, Name: name} }

// handle writes in the first run after the write was requested.
func (a *writes) handle(ctx context.Context, cases map[string]ownWrite, m *corev1.ConfigMap) error {
	a.mu.Lock()
	w, c := a.all[m.Name], cases[m.Name]
	if m.Data["write"] == "" {
		a.mu.Unlock()
		return nil
	}
	w.runs++
	first := w.runs == 1
	a.mu.Unlock()
	if !first {
		return nil
	}
	answer, err := c.write(ctx, w)
	a.mu.Lock()
	defer a.mu.Unlock()
	w.answer, w.err = answer, err
	return nil
}

// settled waits until each key has a recorded run, and this number of runs since its write was requested, no write is
// awaited, and the queue is empty.
func settled[T kube.Object](e env, ctrl *controller.Controller[T], all *writes, runs int) {
	e.Helper()
	eventually(e.T, func() string {
		recorded := map[kube.Key]bool{} // before the controller has started, its queue is empty too
		for _, record := range ctrl.RecentRuns() {
			recorded[record.Key] = true
		}
		all.mu.Lock()
		defer all.mu.Unlock()
		for name, w := range all.all {
			explained := ctrl.Explain(e.key(name))
			if !recorded[e.key(name)] || w.runs < runs || strings.Contains(explained, unseenWrite) {
				return explained
			}
		}
		return queued(ctrl)
	})
}

// unseenWrite is in the explanation of a key with a write that an informer does not show.
const unseenWrite = "its informer does not show this write yet"

// queued returns the sizes of the queue, or "" if it is empty.
func queued(ctrl interface{ Stats() controller.Stats }) string {
	s := ctrl.Stats()
	if s.WaitingForRoom+s.Ready+s.Delayed+s.Processing+s.Backoff+s.Held == 0 {
		return ""
	}
	return fmt.Sprintf("queued: %+v", s)
}

// check compares the record of a write with the expected one, and returns the number of runs of its key.
func (a *writes) check(e env, ctrl *controller.Controller[*corev1.ConfigMap], name string, c *ownWrite) (runs int) {
	e.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.all[name]
	w.records = clustertest.Writes(e, ctrl, e.key(name))
	var got []string
	for _, record := range w.records {
		got = append(got, record.What+": "+record.Outcome)
		// An object of a rejected create has no name.
		nameless := strings.HasPrefix(record.What, "deletecollection ") || strings.HasPrefix(record.What, "create ") && record.Outcome == clustertest.Rejected
		if !nameless && (record.Key.Namespace != e.namespace || !strings.HasPrefix(record.Key.Name, name)) {
			e.Errorf("%s: the record is about %s", name, record.Key)
		}
	}
	if !slices.Equal(got, c.want) {
		e.Errorf("%s: recorded %q, want %q (error: %v)", name, got, c.want, w.err)
		return w.runs
	}
	rejected := strings.HasSuffix(c.want[len(c.want)-1], clustertest.Rejected)
	if (w.err != nil) != rejected {
		e.Errorf("%s: %v", name, w.err)
	}
	if last := w.records[len(w.records)-1]; w.answer != nil && last.Outcome != clustertest.DryRun && last.Version != w.answer.GetResourceVersion() {
		e.Errorf("%s: recorded at %q, want %q", name, last.Version, w.answer.GetResourceVersion())
	}
	if c.again == never && w.runs > 1 || c.again == always && w.runs == 1 {
		e.Errorf("%s: the handler ran %d times\n%s", name, w.runs, ctrl.Explain(e.key(name)))
	}
	if c.again == perhaps && w.runs == 1 {
		e.Logf("%s: is recognised", name)
	}
	return w.runs
}

// poke changes the written object as another client, or the trigger if no informer shows the written object.
func (w *writing) poke(c *ownWrite) {
	w.Helper()
	patch := []byte(`{"metadata":{"annotations":{"poked":"yes"}}}`)
	if !c.unwatched {
		name := w.name
		for _, record := range w.records {
			name = cmp.Or(record.Key.Name, name) // another one where it was generated
		}
		_, err := w.dynamic.Resource(c.resource).Namespace(w.namespace).Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			return
		}
		if !apierrors.IsNotFound(err) {
			w.Errorf("%s: %v", w.name, err)
		}
	}
	must(w.clients.CoreV1().ConfigMaps(w.namespace).Patch(w.Context(), w.name, types.MergePatchType, patch, metav1.PatchOptions{}))(w.T)
}
