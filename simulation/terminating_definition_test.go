package simulation_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/leader"
	"github.com/evenkeel-go/evenkeel/manager"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// drainer is a program with a task that waits for a definition, and a controller that removes its finalizer from
// deleted objects after the time of the cleanup.
type drainer struct {
	*testing.T
	*simulation.Cluster
	c          *client.Client
	definition *apiextensionsv1.CustomResourceDefinition
	mu         sync.Mutex
	handled    map[string]int // by name; guarded by mu
	cleanup    time.Duration
}

const drainFinalizer = "example.com/drain"

func newDrainer(t *testing.T, c *simulation.Cluster) *drainer {
	t.Helper()
	writer, err := client.New(client.Config{Cluster: c.Connect("drainer"), FieldOwner: "drainer"})
	if err != nil {
		t.Fatal(err)
	}
	definition := crdtest.Define("example.com", "Volume", crdtest.Version{Name: "v1"})
	return &drainer{T: t, Cluster: c, c: writer, definition: definition, handled: map[string]int{}}
}

func (d *drainer) install(ctx context.Context) error {
	_, err := crd.Ensure(ctx, d.c, []*apiextensionsv1.CustomResourceDefinition{d.definition})
	return err
}

func (d *drainer) controller() *controller.Controller[*unstructured.Unstructured] {
	d.Helper()
	kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Volume"}
	volumes, err := controller.New(controller.Config[*unstructured.Unstructured]{
		Name:      "volumes",
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](d.c.Cluster(), kube.Selection{Kind: kind}),
		Handler: func(ctx context.Context, volume *unstructured.Unstructured) error {
			d.mu.Lock()
			d.handled[volume.GetName()]++
			d.mu.Unlock()
			deleted := volume.GetDeletionTimestamp()
			if deleted == nil {
				return nil
			}
			if wait := time.Until(deleted.Add(d.cleanup)); wait > 0 {
				return controller.RequeueAfter(wait, "cleanup")
			}
			without := volume.DeepCopy()
			without.SetFinalizers(nil)
			_, err := client.Patch(ctx, d.c, volume, client.MergeFrom(volume, without))
			return client.IgnoreNotFound(err)
		},
	})
	if err != nil {
		d.Fatal(err)
	}
	return volumes
}

func (d *drainer) manager(task manager.Runnable, informers ...manager.Runnable) *manager.Manager {
	d.Helper()
	task.Name, task.Group, task.Task = "definitions", manager.Caches, true
	m, err := manager.New(manager.Config{
		LeaderElection: &leader.Config{
			Cluster: d.c.Cluster(), Namespace: "default", Name: "drainer",
			Identity: "first",
		},
		Runnables: append(informers, task, manager.Runnable{Runner: d.controller()}), IgnoreSignals: true,
	})
	if err != nil {
		d.Fatal(err)
	}
	return m
}

// runs returns how often an object was handled.
func (d *drainer) runs(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handled[name]
}

// terminate installs the definition, creates an object with finalizers, and deletes the definition.
func (d *drainer) terminate(finalizers string) {
	d.Helper()
	if err := d.install(d.Context()); err != nil {
		d.Fatal(err)
	}
	d.Apply(`{apiVersion: example.com/v1, kind: Volume, metadata: {name: old, finalizers: [` + finalizers + `]}}`)
	live, err := client.Get[*apiextensionsv1.CustomResourceDefinition](d.Context(), d.c,
		kube.Key{Name: d.definition.Name})
	if err == nil {
		err = client.Delete(d.Context(), d.c, live)
	}
	if err != nil {
		d.Fatal(err)
	}
}

// The definition of an operator's kind is being deleted when the operator starts. Its objects have finalizers that only
// the operator removes.
func TestOperatorDrainsTerminatingDefinition(t *testing.T) {
	t.Parallel()
	for name, policy := range map[string]manager.FailurePolicy{
		"restart":         manager.Restart,
		"end the process": manager.EndProcess,
	} {
		for _, cleanup := range []time.Duration{0, 10 * time.Minute} { // longer than the timeout of crd.Ensure
			t.Run(name+" "+cleanup.String(), func(t *testing.T) {
				t.Parallel()
				simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
					d := newDrainer(t, c)
					d.cleanup = cleanup
					d.terminate(drainFinalizer)
					m := d.manager(manager.Runnable{Runner: manager.RunFunc(d.install), OnFailure: policy})
					defer c.Run(m)()
					c.Advance(25 * time.Second) // the manager leads after 20 s
					if d.runs("old") == 0 {
						t.Fatalf("the controller does not run: %v", m.Ready())
					}
					if cleanup > 0 {
						err := m.Ready()
						if err == nil || !strings.Contains(err.Error(), "objects remain, 1 of 1 held by finalizers: "+
							"default/old by "+drainFinalizer) {
							t.Errorf("the program is ready, although its kind accepts no objects: %v", err)
						}
						c.Advance(cleanup)
					}
					c.Advance(time.Minute)
					if err := m.Ready(); err != nil {
						t.Error(err)
					}
					c.Apply(`{apiVersion: example.com/v1, kind: Volume, metadata: {name: new}}`)
					c.Advance(time.Second)
					if d.runs("new") == 0 {
						t.Error("the object of the new definition was not handled")
					}
				})
			})
		}
	}
}

// A program without a manager runs its controllers while it installs the definition, which is being deleted or does not
// exist yet.
func TestProgramWithoutManagerDrainsTerminatingDefinition(t *testing.T) {
	t.Parallel()
	for name, terminate := range map[string]bool{"terminating": true, "missing": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
				d := newDrainer(t, c)
				if terminate {
					d.terminate(drainFinalizer)
				}
				defer c.Run(d.controller())()
				if err := d.install(t.Context()); err != nil {
					t.Fatal(err)
				}
				c.Apply(`{apiVersion: example.com/v1, kind: Volume, metadata: {name: new}}`)
				c.Advance(time.Minute)
				if d.runs("new") == 0 || terminate != (d.runs("old") > 0) {
					t.Errorf("old was handled %d times, new %d times", d.runs("old"), d.runs("new"))
				}
			})
		})
	}
}

// Nothing of the program can drain a definition whose objects have no finalizers, so the controllers wait for the new
// one.
func TestOperatorWaitsForDefinitionThatIsDeletedSoon(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		d := newDrainer(t, c)
		d.terminate("")
		defer c.Run(d.manager(manager.Runnable{Runner: manager.RunFunc(d.install)}))()
		c.Advance(25 * time.Second)
		c.Apply(`{apiVersion: example.com/v1, kind: Volume, metadata: {name: new}}`)
		c.Advance(time.Second)
		if d.runs("new") != 1 || d.runs("old") != 0 {
			t.Errorf("old was handled %d times, new %d times", d.runs("old"), d.runs("new"))
		}
	})
}

// Another program installs the definition.
func TestWaitEstablishedLetsControllersDrain(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		d := newDrainer(t, c)
		d.terminate(drainFinalizer)
		wait := func(ctx context.Context) error { return crd.WaitEstablished(ctx, d.c, d.definition.Name) }
		m := d.manager(manager.Runnable{Runner: manager.RunFunc(wait), OnFailure: manager.Restart})
		defer c.Run(m)()
		c.Advance(25 * time.Second)
		if d.runs("old") == 0 || m.Ready() == nil {
			t.Fatalf("handled %d times; ready: %v", d.runs("old"), m.Ready())
		}
		if err := d.install(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Advance(time.Minute)
		if err := m.Ready(); err != nil {
			t.Error(err)
		}
	})
}

// The operator may read the objects only in its namespace.
func TestDefinitionIsDrainedWithRoleInNamespace(t *testing.T) {
	t.Parallel()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		d := newDrainer(t, c)
		d.terminate(drainFinalizer)
		c.Intercept(func(r simulation.Request, _ func()) error {
			if r.Resource.Resource == "volumes" && r.Key.Namespace == "" && (r.Verb == "list" || r.Verb == "watch") {
				return apierrors.NewForbidden(r.Resource.GroupResource(), "", errors.New("only in a namespace"))
			}
			return nil
		})
		kind := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Volume"}
		volumes, err := controller.New(controller.Config[*unstructured.Unstructured]{
			Name:      "volumes",
			Retriever: informer.RetrieveSelected[*unstructured.Unstructured](d.c.Cluster(), kube.Selection{Kind: kind, Namespaces: []string{"default"}}),
			Handler: func(ctx context.Context, volume *unstructured.Unstructured) error {
				if volume.GetDeletionTimestamp() == nil {
					return nil
				}
				without := volume.DeepCopy()
				without.SetFinalizers(nil)
				_, err := client.Patch(ctx, d.c, volume, client.MergeFrom(volume, without))
				return client.IgnoreNotFound(err)
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m, err := manager.New(manager.Config{Runnables: []manager.Runnable{
			{Name: "definitions", Group: manager.Caches, Task: true, Runner: manager.RunFunc(d.install)},
			{Runner: volumes},
		}, IgnoreSignals: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Run(m)()
		c.Advance(time.Hour)
		if err := m.Ready(); err != nil {
			t.Errorf("after an hour: %v", err)
		}
	})
}
