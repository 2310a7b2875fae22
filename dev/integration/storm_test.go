package integration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/localcluster"
)

const (
	// stormNames is the number of names of each writer's objects: few, so that objects are often deleted and created
	// again.
	stormNames   = 25
	stormWriters = 4
	stormRounds  = 3
)

// newEnvOn is like newEnv for a separate cluster of the test.
func newEnvOn(t *testing.T, cluster *localcluster.Cluster) env {
	t.Helper()
	clients := must(kubernetes.NewForConfig(unlimited(cluster.RESTConfig())))(t)
	namespace := must(clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{}))(t)
	return env{
		T: t, namespace: namespace.Name, clients: clients,
		dynamic: must(dynamic.NewForConfig(unlimited(cluster.RESTConfig())))(t),
	}
}

// After random writes, during which the API server is killed, informers contain exactly the listed objects, and so does
// a copy that only applies their changes.
//
// EVENKEEL_STORM_ROUNDS=50 makes it long.
func TestStoreEqualsListAfterRestarts(t *testing.T) {
	t.Parallel()
	rounds := testlength.Count(1, stormRounds)
	if text := os.Getenv("EVENKEEL_STORM_ROUNDS"); text != "" {
		rounds = must(strconv.Atoi(text))(t)
	}
	cluster := startCluster(t)
	e, other := newEnvOn(t, cluster), newEnvOn(t, cluster)
	e.createCRD("Storm")
	connected := connect(t, cluster.RESTConfig())
	all := []follower{
		follow(e, "protobuf", informer.RetrieveSelected[*corev1.ConfigMap](connected, kube.Selection{Namespaces: []string{e.namespace, other.namespace}}),
			e.listConfigMaps(metav1.ListOptions{}), other.listConfigMaps(metav1.ListOptions{})),
		follow(e, "selected", informer.RetrieveSelected[*corev1.ConfigMap](connected, kube.Selection{Namespaces: []string{e.namespace}, LabelSelector: "odd=1"}),
			e.listConfigMaps(metav1.ListOptions{LabelSelector: "odd=1"})),
		follow(e, "JSON", informer.RetrieveSelected[*unstructured.Unstructured](connected, kube.Selection{Kind: widgets.GroupVersion().WithKind("Storm")}),
			e.listStorms(), other.listStorms()),
		follow(e, "decoded", wrapped[*corev1.ConfigMap]{informer.RetrieveSelected[*corev1.ConfigMap](connected, kube.Selection{Namespaces: []string{e.namespace}})},
			e.listConfigMaps(metav1.ListOptions{})),
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range rounds {
		began := time.Now()
		writes := storm(t, []env{e, other}, cluster, rand.New(rand.NewPCG(seed, uint64(round))))
		for _, f := range all {
			f.check(round)
		}
		t.Logf("round %d: %d writes, checked after %s", round, writes, time.Since(began).Round(time.Millisecond))
		if t.Failed() {
			return
		}
	}
}

// wrapped hides the type of the cluster's own Retriever, so that the informer encodes its objects.
type wrapped[T kube.Object] struct{ informer.Retriever[T] }

// storm writes at random from several goroutines, kills the API server within, and returns
// the number of writes that succeeded.
func storm(t *testing.T, envs []env, cluster *localcluster.Cluster, random *rand.Rand) int64 {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var writers sync.WaitGroup
	var writes atomic.Int64
	for w := range stormWriters {
		own := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
		writers.Go(func() { // waited for below
			for ctx.Err() == nil {
				if err := envs[w%len(envs)].writeAtRandom(ctx, w, own); err == nil {
					writes.Add(1)
				} else if ctx.Err() == nil && isDown(err) {
					pause(ctx, 20*time.Millisecond)
				}
			}
		})
	}
	kills := 1
	if random.IntN(4) == 0 {
		kills = 2
	}
	for range kills {
		pause(ctx, time.Duration(200+random.IntN(800))*time.Millisecond)
		if err := cluster.Kill(); err != nil {
			t.Error(err)
		}
		pause(ctx, time.Duration(random.IntN(500))*time.Millisecond)
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// In some rounds the writes continue after the restart, in others they do not.
	pause(ctx, time.Duration(random.IntN(500))*time.Millisecond)
	cancel()
	writers.Wait()
	return writes.Load()
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func isDown(err error) bool {
	var status interface{ Status() metav1.Status }
	return !errors.As(err, &status)
}

// writeAtRandom creates, updates or deletes one of the writer's ConfigMaps or custom objects.
func (e env) writeAtRandom(ctx context.Context, writer int, random *rand.Rand) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name := fmt.Sprintf("w%d-%d", writer, random.IntN(stormNames))
	value := strconv.Itoa(random.IntN(1000))
	labels := map[string]string{"odd": strconv.Itoa(random.IntN(2))}
	deletes := random.IntN(4) == 0
	if random.IntN(2) == 0 {
		maps := e.clients.CoreV1().ConfigMaps(e.namespace)
		if deletes {
			return maps.Delete(ctx, name, metav1.DeleteOptions{})
		}
		obj := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"note": strings.Repeat(value, random.IntN(50))}},
			Data:       map[string]string{"value": value},
		}
		_, err := maps.Update(ctx, obj, metav1.UpdateOptions{})
		if err != nil {
			_, err = maps.Create(ctx, obj, metav1.CreateOptions{})
		}
		return err
	}
	objects := e.storms()
	if deletes {
		return objects.Delete(ctx, name, metav1.DeleteOptions{})
	}
	patch := fmt.Sprintf(`{"apiVersion":"%s","kind":"Storm","metadata":{"name":%q,"labels":{"odd":%q}},"spec":{"value":%q}}`,
		widgets.GroupVersion(), name, labels["odd"], value)
	_, err := objects.Patch(ctx, name, "application/apply-patch+yaml", []byte(patch), metav1.PatchOptions{FieldManager: "storm"})
	return err
}

func (e env) storms() dynamic.ResourceInterface {
	resource := widgets
	resource.Resource = "storms"
	return e.dynamic.Resource(resource).Namespace(e.namespace)
}

func (e env) listConfigMaps(opts metav1.ListOptions) func() ([]*corev1.ConfigMap, error) {
	return func() (all []*corev1.ConfigMap, err error) {
		list, err := e.clients.CoreV1().ConfigMaps(e.namespace).List(e.Context(), opts)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		return all, nil
	}
}

func (e env) listStorms() func() ([]*unstructured.Unstructured, error) {
	return func() (all []*unstructured.Unstructured, err error) {
		list, err := e.storms().List(e.Context(), metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, &list.Items[i])
		}
		return all, nil
	}
}

// follower is an informer that is compared with lists.
type follower interface{ check(round int) }

// following is an informer, and a model of its objects made of its changes alone.
type following[T kube.Object] struct {
	*testing.T
	name     string
	informer *informer.Informer[T]
	lists    []func() ([]T, error)

	mu       sync.Mutex
	model    map[kube.Key]T
	versions map[kube.Key]uint64 // the highest that was seen of each key, of deleted ones too
}

// follow runs an informer until the test ends.
func follow[T kube.Object](e env, name string, retriever informer.Retriever[T], lists ...func() ([]T, error)) *following[T] {
	e.Helper()
	inf := must(informer.New(informer.Config[T]{
		Name: name, Retriever: retriever, Logger: slog.New(slog.NewTextHandler(e.Output(), nil)),
	}))(e.T)
	f := &following[T]{
		T: e.T, name: name, informer: inf, lists: lists, model: map[kube.Key]T{}, versions: map[kube.Key]uint64{},
	}
	e.Cleanup(inf.Join(context.WithoutCancel(e.Context())))
	e.Cleanup(inf.Subscribe(f.changed))
	return f
}

// changed applies a change to the model, which must fit.
func (f *following[T]) changed(c informer.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old, obj, err := informer.Decode[T](c)
	if err != nil {
		f.Errorf("%s: %s %s: %v", f.name, c.Type, c.Key, err)
		return
	}
	kept, has := f.model[c.Key]
	if comes := c.Type == informer.Listed || c.Type == informer.Added; comes == has {
		f.Errorf("%s: %s %s, while who follows the changes has it: %v", f.name, c.Type, c.Key, has)
	}
	if has && kept.GetResourceVersion() != old.GetResourceVersion() {
		f.Errorf("%s: %s %s from version %s, while it was at %s", f.name, c.Type, c.Key, old.GetResourceVersion(), kept.GetResourceVersion())
	}
	if c.Type == informer.Deleted {
		delete(f.model, c.Key)
		return
	}
	version, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil || version <= f.versions[c.Key] {
		f.Errorf("%s: %s %s to version %s after %d (%v)", f.name, c.Type, c.Key, obj.GetResourceVersion(), f.versions[c.Key], err)
	}
	f.versions[c.Key] = version
	f.model[c.Key] = obj
}

// listed returns the objects as lists have them.
func (f *following[T]) listed() map[kube.Key]T {
	f.Helper()
	objects := map[kube.Key]T{}
	for _, list := range f.lists {
		for _, obj := range must(list())(f.T) {
			obj.SetManagedFields(nil)
			objects[kube.KeyOf(obj)] = obj
		}
	}
	return objects
}

// check waits until the informer is as a list is, while no client writes. It lists again each time: the API server may
// still execute a write whose client has ended.
func (f *following[T]) check(round int) {
	f.Helper()
	var want map[kube.Key]T
	eventually(f.T, func() string {
		want = f.listed()
		got := map[kube.Key]T{}
		for obj, err := range f.informer.List(informer.Query{}) {
			if err != nil {
				return err.Error()
			}
			if _, twice := got[kube.KeyOf(obj)]; twice {
				return kube.KeyOf(obj).String() + " is there twice"
			}
			got[kube.KeyOf(obj)] = obj
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Sprintf("round %d, %s: (-list +informer):\n%s", round, f.name, diff)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if diff := cmp.Diff(want, f.model); diff != "" {
			return fmt.Sprintf("round %d, %s: (-list +what the changes made):\n%s", round, f.name, diff)
		}
		return ""
	})
	if len(want) == 0 {
		f.Errorf("round %d, %s: there is nothing to compare", round, f.name)
	}
	if n := f.informer.Len(); n != len(want) {
		f.Errorf("round %d, %s: Len is %d, want %d", round, f.name, n, len(want))
	}
}
