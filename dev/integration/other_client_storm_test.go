package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// foreignObjects is the number of objects that other clients change.
const foreignObjects = 30

// Other clients change objects while a handler with a stale cache writes what it read into their status, with every
// kind of write, and into children. The API server is killed while keys wait for their writes. In the end each status
// matches its object, and no key waits.
func TestContract13_NoWakeUpIsLostInAStorm(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t)
	e := newEnvOn(t, cluster)
	e.createGadgets(gadgetGroup)
	config := cluster.RESTConfig()
	config.Wrap((&heldWatches{resource: "/gadgets", lag: 20 * time.Millisecond}).wrap)
	reporter := &reporter{cluster: connect(t, config)}
	ctrl := reporter.run(e)
	var changes atomic.Int64
	rounds := 12
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var writers sync.WaitGroup
		for range 3 {
			writers.Go(func() { // waited for below
				for ctx.Err() == nil {
					// Values are repeated, so that writes often change nothing, but a spec never returns to an earlier
					// value: the status would then look like that of a handler that alternates between two values.
					value := strconv.FormatInt(changes.Load()/(foreignObjects/3), 10)
					if err := e.changeGadget(ctx, value); err == nil {
						changes.Add(1)
					} else if isDown(err) {
						pause(ctx, 20*time.Millisecond)
					}
				}
			})
		}
		pause(ctx, 300*time.Millisecond)
		if round == rounds/2 {
			if err := cluster.Kill(); err != nil {
				t.Error(err)
			}
			t.Log("killed with", queued(ctrl))
			if err := cluster.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			pause(ctx, 500*time.Millisecond)
		}
		cancel()
		writers.Wait()
		began := time.Now()
		e.checkSeen(ctrl)
		t.Logf("round %d: %d changes, %d runs, at rest after %s", round, changes.Load(), reporter.runs.Load(), time.Since(began).Round(time.Millisecond))
	}
}

// changeGadget creates or changes an object as another client.
func (e env) changeGadget(ctx context.Context, value string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := e.dynamic.Resource(gadgets).Namespace(e.namespace)
	name := fmt.Sprint("gadget-", rand.IntN(foreignObjects))
	patch := func(patch string) error {
		_, err := c.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	// The first change runs the handler, which has nothing to write; the second is made during that run.
	err := patch(`{"metadata":{"labels":{"by":"` + strconv.FormatInt(rand.Int64(), 10) + `"}}}`)
	pause(ctx, time.Duration(rand.IntN(40))*time.Millisecond)
	if err == nil && rand.IntN(4) > 0 {
		err = patch(`{"spec":{"value":"` + value + `"}}`)
	}
	if err == nil || isDown(err) {
		return err
	}
	_, err = c.Create(ctx, (&writing{name: name}).gadget(value), metav1.CreateOptions{})
	return err
}

// checkSeen waits until each status matches the object's spec, and the queue is empty.
func (e env) checkSeen(ctrl *controller.Controller[*unstructured.Unstructured]) {
	e.Helper()
	eventually(e.T, func() string {
		if queued := queued(ctrl); queued != "" {
			return queued
		}
		for _, problem := range ctrl.Problems() {
			if problem.Type == controller.ProblemInformer { // until it has found the API server again
				return problem.Message
			}
		}
		list, err := e.dynamic.Resource(gadgets).Namespace(e.namespace).List(e.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		for _, g := range list.Items {
			value, _, _ := unstructured.NestedString(g.Object, "spec", "value")
			seen, _, _ := unstructured.NestedString(g.Object, "status", "seen")
			explained := ctrl.Explain(kube.KeyOf(&g))
			if value != seen {
				return fmt.Sprintf("%s is at %s, seen is %s\n%s", g.GetName(), value, seen, explained)
			}
			if strings.Contains(explained, unseenWrite) {
				return explained
			}
		}
		return ""
	})
	for _, problem := range ctrl.Problems() {
		e.Errorf("problem: %s %s: %s", problem.Type, problem.Key, problem.Message)
	}
}

// reporter has a handler that writes what it has read.
type reporter struct {
	cluster  *kube.Cluster
	clients  kubernetes.Interface
	gadgets  dynamic.NamespaceableResourceInterface
	children *informer.Informer[*corev1.Secret]
	runs     atomic.Int64
}

func (r *reporter) run(e env) *controller.Controller[*unstructured.Unstructured] {
	e.Helper()
	r.clients = must(kubernetes.NewForConfig(r.cluster.RESTConfig()))(e.T)
	r.gadgets = must(dynamic.NewForConfigAndClient(r.cluster.RESTConfig(), r.cluster.HTTPClient()))(e.T).Resource(gadgets)
	selection := kube.Selection{Namespaces: []string{e.namespace}}
	r.children = must(informer.New(informer.Config[*corev1.Secret]{
		Name: "children", Retriever: informer.RetrieveSelected[*corev1.Secret](r.cluster, selection),
	}))(e.T)
	selection.Kind = gadgets.GroupVersion().WithKind("Gadget")
	ctrl, _ := run(e.T, controller.Config[*unstructured.Unstructured]{
		Name: "reporter", ResyncInterval: -1, Workers: 5, Handler: r.handle,
		Runs:      controller.RunsConfig{ConsistencyTimeout: 10 * time.Minute}, // also over the restart of the API server
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](r.cluster, selection),
		Sources:   []controller.Source{source.OwnedIn(r.children, source.Owner{Kind: selection.Kind.GroupKind()})},
	})
	return ctrl
}

func (r *reporter) handle(ctx context.Context, g *unstructured.Unstructured) error {
	r.runs.Add(1)
	value, _, _ := unstructured.NestedString(g.Object, "spec", "value")
	c, patch := r.gadgets.Namespace(g.GetNamespace()), fmt.Sprintf(`{"status":{"seen":%q}}`, value)
	if rand.IntN(3) == 0 {
		if err := r.putChild(ctx, g, value); err != nil {
			return err
		}
	}
	var err error
	switch rand.IntN(4) {
	default: // often nothing to change
		_, err = c.Patch(ctx, g.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	case 1: // with the cached version
		if err = unstructured.SetNestedField(g.Object, value, "status", "seen"); err == nil {
			_, err = c.UpdateStatus(ctx, g, metav1.UpdateOptions{})
		}
	case 2: // with the live version, and what was made of the cached one
		var live *unstructured.Unstructured
		if live, err = c.Get(ctx, g.GetName(), metav1.GetOptions{}); err == nil {
			if err = unstructured.SetNestedField(live.Object, value, "status", "seen"); err == nil {
				_, err = c.UpdateStatus(ctx, live, metav1.UpdateOptions{})
			}
		}
	case 3:
		g.Object = map[string]any{
			"apiVersion": g.GetAPIVersion(), "kind": g.GetKind(), "metadata": map[string]any{"name": g.GetName()},
			"status": map[string]any{"seen": value},
		}
		_, err = c.ApplyStatus(ctx, g.GetName(), g, metav1.ApplyOptions{FieldManager: "reporter", Force: true})
	}
	return err
}

// putChild creates or changes the child of an object.
func (r *reporter) putChild(ctx context.Context, g *unstructured.Unstructured, value string) error {
	secrets := r.clients.CoreV1().Secrets(g.GetNamespace())
	child := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: g.GetName(), OwnerReferences: []metav1.OwnerReference{
			*metav1.NewControllerRef(g, schema.FromAPIVersionAndKind(g.GetAPIVersion(), g.GetKind())),
		}},
		Data: map[string][]byte{"value": []byte(value)},
	}
	_, found, err := r.children.Get(kube.KeyOf(g))
	if err != nil {
		return err
	}
	if found {
		_, err = secrets.Update(ctx, child, metav1.UpdateOptions{})
	} else {
		_, err = secrets.Create(ctx, child, metav1.CreateOptions{})
	}
	return err
}
