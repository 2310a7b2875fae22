package simulation_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/simulation"
	"github.com/evenkeel-go/evenkeel/source"
)

// bugPattern is a usual bug of controllers, with a handler that has it, and one that does not.
type bugPattern struct {
	name             string
	buggy, corrected appHandler
	steps            []func(c *simulation.Cluster)
	wantCloud        []string // the records outside of the cluster at the end
	needsNoFault     bool
}

// appHandler handles an app: a ConfigMap with the label app=true.
type appHandler func(ctx context.Context, p *process, app *corev1.ConfigMap) error

// process is what a start of a program has.
type process struct {
	clients  kubernetes.Interface
	maps     typedcorev1.ConfigMapInterface // of namespace default
	children *informer.Informer[*corev1.ConfigMap]
	memory   map[string]string
	cloud    *cloud
}

// cloud is a system outside of the cluster, with records by their ids.
type cloud struct {
	records map[string]string
	created int
}

func (c *cloud) create(ctx context.Context, value string) (id string, err error) {
	err = simulation.Call(ctx, "create record "+value, func() error {
		c.created++
		id = strconv.Itoa(c.created)
		c.records[id] = value
		return nil
	})
	return id, err
}

func (c *cloud) put(ctx context.Context, id, value string) error {
	return simulation.Call(ctx, "put record "+id, func() error {
		c.records[id] = value
		return nil
	})
}

func (c *cloud) delete(ctx context.Context, id string) error {
	return simulation.Call(ctx, "delete record "+id, func() error {
		delete(c.records, id)
		return nil
	})
}

// scenario returns a scenario of a pattern with one of its handlers, and that number of runs with faults, or 0.
func (b bugPattern) scenario(handle appHandler, runs int) func() simulation.Scenario {
	return func() simulation.Scenario {
		outside := &cloud{records: map[string]string{}}
		s := simulation.Scenario{
			Cluster:  simulation.Config{WithoutControllers: true},
			Programs: map[string]func(context.Context, *rest.Config) error{"apps": runApps(handle, outside)},
			Steps:    b.steps,
			Runs:     runs,
		}
		if b.wantCloud != nil {
			s.Finally = func(context.Context, *simulation.Cluster) error {
				if got := slices.Sorted(maps.Values(outside.records)); !slices.Equal(got, b.wantCloud) {
					return fmt.Errorf("the cloud has the records %q, want %q", got, b.wantCloud)
				}
				return nil
			}
		}
		return s
	}
}

// runApps returns a program that runs a handler for apps. It requeues an app when one of its children changes.
func runApps(handle appHandler, outside *cloud) func(ctx context.Context, config *rest.Config) error {
	return func(ctx context.Context, config *rest.Config) error {
		cluster, err := kube.Connect(config)
		if err != nil {
			return err
		}
		cluster.SetLogger(slog.New(slog.DiscardHandler))
		clients, err := kubernetes.NewForConfig(config) // its writes are not awaited in the caches
		if err != nil {
			return err
		}
		selected := func(label string) informer.Retriever[*corev1.ConfigMap] {
			return informer.RetrieveSelected[*corev1.ConfigMap](cluster, kube.Selection{LabelSelector: label})
		}
		children, err := informer.New(informer.Config[*corev1.ConfigMap]{Retriever: selected("owner")})
		if err != nil {
			return err
		}
		p := &process{clients, clients.CoreV1().ConfigMaps("default"), children, map[string]string{}, outside}
		apps, err := controller.New(controller.Config[*corev1.ConfigMap]{
			Name: "apps", Retriever: selected("app=true"), Reads: []informer.Any{children},
			Sources: []controller.Source{source.OwnerLabel(children, "owner")},
			Handler: func(ctx context.Context, app *corev1.ConfigMap) error { return handle(ctx, p, app) },
		})
		if err != nil {
			return err
		}
		return apps.Run(ctx)
	}
}

// child returns a child of an app.
func child(app *corev1.ConfigMap, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: app.Namespace, Labels: map[string]string{"owner": app.Name}},
		Data:       data,
	}
}

func (p *process) create(ctx context.Context, object *corev1.ConfigMap) error {
	_, err := p.maps.Create(ctx, object, metav1.CreateOptions{})
	return err
}

// ensure creates an object, or changes its data. It compares with the cache: an event of the object starts another run.
func (p *process) ensure(ctx context.Context, object *corev1.ConfigMap) error {
	cached := p.cached(object.Name)
	switch {
	case cached == nil:
		return ignoreExists(p.create(ctx, object))
	case maps.Equal(cached.Data, object.Data):
		return nil
	}
	patch, err := json.Marshal(map[string]any{"data": object.Data})
	if err != nil {
		return err
	}
	return p.patch(ctx, object, string(patch))
}

// patch merges a patch into an object.
func (p *process) patch(ctx context.Context, app *corev1.ConfigMap, patch string) error {
	_, err := p.maps.Patch(ctx, app.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func (p *process) annotate(ctx context.Context, app *corev1.ConfigMap, value string) error {
	return p.patch(ctx, app, fmt.Sprintf(`{"metadata": {"annotations": {"done": %q}}}`, value))
}

// cached returns a child in the cache, or nil.
func (p *process) cached(name string) *corev1.ConfigMap {
	object, _, _ := p.children.Get(kube.Key{Namespace: "default", Name: name})
	return object
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func ignoreMissing(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

const appFinalizer = "example.com/apps"

func createApp(c *simulation.Cluster) {
	c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: shop, labels: {app: "true"}}, data: {text: one, count: "2"}}`)
}

func editApp(c *simulation.Cluster) {
	simulation.Edit(c, "default/shop", "", func(app *corev1.ConfigMap) { app.Data["text"] = "two" })
}

func deleteApp(c *simulation.Cluster) { simulation.Delete[*corev1.ConfigMap](c, "default/shop") }

func steps(all ...func(c *simulation.Cluster)) []func(c *simulation.Cluster) { return all }

func bugPatterns() []bugPattern {
	return slices.Concat(creationPatterns(), orderPatterns(), cachePatterns(), cloudPatterns())
}

// creationPatterns are bugs in which an object is created twice, or not.
func creationPatterns() []bugPattern {
	return []bugPattern{{
		name: "name chosen by the server, then remembered in an annotation", steps: steps(createApp, editApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.Annotations["done"] == app.Data["text"] {
				return nil
			}
			object := child(app, "", app.Data)
			object.GenerateName = "copy-"
			return errors.Join(p.create(ctx, object), p.annotate(ctx, app, app.Data["text"]))
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return p.ensure(ctx, child(app, "copy", map[string]string{"text": app.Data["text"]}))
		},
	}, {
		name: "number of children counted in the cache", steps: steps(createApp, editApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			want, _ := strconv.Atoi(app.Data["count"])
			for range want - p.children.Len() {
				object := child(app, "", nil)
				object.GenerateName = "worker-"
				if err := p.create(ctx, object); err != nil {
					return err
				}
			}
			return nil
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			want, _ := strconv.Atoi(app.Data["count"])
			for n := range want {
				if err := ignoreExists(p.create(ctx, child(app, fmt.Sprintf("worker-%d", n), nil))); err != nil {
					return err
				}
			}
			return nil
		},
	}, {
		name: "object replaced after AlreadyExists", steps: steps(createApp, editApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if p.cached("volume") != nil {
				return nil
			}
			err := p.create(ctx, child(app, "volume", nil))
			if !apierrors.IsAlreadyExists(err) {
				return err
			}
			if err := p.maps.Delete(ctx, "volume", metav1.DeleteOptions{}); err != nil {
				return err
			}
			return p.create(ctx, child(app, "volume", nil))
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if p.cached("volume") != nil {
				return nil
			}
			return ignoreExists(p.create(ctx, child(app, "volume", nil)))
		},
	}, {
		name: "password generated at each start", steps: steps(createApp), needsNoFault: true,
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if p.memory["password"] != "" {
				return nil
			}
			p.memory["password"] = rand.Text()
			object := child(app, "password", p.memory)
			if err := ignoreExists(p.create(ctx, object)); err != nil {
				return err
			}
			_, err := p.maps.Update(ctx, object, metav1.UpdateOptions{})
			return err
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return ignoreExists(p.create(ctx, child(app, "password", map[string]string{"password": rand.Text()})))
		},
	}}
}

// orderPatterns are bugs in the order of writes, or after one that fails.
func orderPatterns() []bugPattern {
	return []bugPattern{{
		name: "marked as done before it is done", steps: steps(createApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			// region marked
			if app.Annotations["done"] != "" {
				return nil
			}
			if err := p.annotate(ctx, app, "yes"); err != nil {
				return err
			}
			return ignoreExists(p.create(ctx, child(app, "job", nil)))
			// endregion
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.Annotations["done"] != "" {
				return nil
			}
			if err := ignoreExists(p.create(ctx, child(app, "job", nil))); err != nil {
				return err
			}
			return p.annotate(ctx, app, "yes")
		},
	}, {
		name: "error of a write ignored", steps: steps(createApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			_ = p.create(ctx, child(app, "job", nil))
			return nil
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return ignoreExists(p.create(ctx, child(app, "job", nil)))
		},
	}, {
		name: "update without the resourceVersion that was read", steps: steps(createApp, editApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.Annotations["done"] == app.Data["text"] {
				return nil
			}
			app = app.DeepCopy()
			metav1.SetMetaDataAnnotation(&app.ObjectMeta, "done", app.Data["text"])
			app.ResourceVersion = ""
			_, err := p.maps.Update(ctx, app, metav1.UpdateOptions{})
			return err
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.Annotations["done"] == app.Data["text"] {
				return nil
			}
			app = app.DeepCopy()
			metav1.SetMetaDataAnnotation(&app.ObjectMeta, "done", app.Data["text"])
			_, err := p.maps.Update(ctx, app, metav1.UpdateOptions{})
			return err
		},
	}, {
		name: "children known from memory", steps: steps(createApp, deleteApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return finalized(ctx, p, app, func() error {
				p.memory["job"] = app.Name
				return ignoreExists(p.create(ctx, child(app, "job", nil)))
			}, func() error {
				if p.memory["job"] == "" {
					return nil
				}
				return ignoreMissing(p.maps.Delete(ctx, "job", metav1.DeleteOptions{}))
			})
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return finalized(ctx, p, app, func() error {
				return ignoreExists(p.create(ctx, child(app, "job", nil)))
			}, func() error {
				return ignoreMissing(p.maps.Delete(ctx, "job", metav1.DeleteOptions{}))
			})
		},
	}}
}

// finalized calls ensure for an app that has the finalizer, and clean for one that is deleted.
func finalized(ctx context.Context, p *process, app *corev1.ConfigMap, ensure, clean func() error) error {
	has := slices.Contains(app.Finalizers, appFinalizer)
	switch {
	case app.DeletionTimestamp != nil && !has:
		return nil
	case app.DeletionTimestamp != nil:
		if err := clean(); err != nil {
			return err
		}
		return ignoreMissing(p.patch(ctx, app, `{"metadata": {"finalizers": null}}`))
	case !has:
		if err := p.patch(ctx, app, fmt.Sprintf(`{"metadata": {"finalizers": [%q]}}`, appFinalizer)); err != nil {
			return err
		}
	}
	return ensure()
}

// cachePatterns are bugs with caches that are late, or that never had a state.
func cachePatterns() []bugPattern {
	return []bugPattern{{
		name: "change compared with the one seen before", steps: steps(createApp, editApp),
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			before := p.memory["text"]
			p.memory["text"] = app.Data["text"]
			if before == "" || before == app.Data["text"] {
				return nil
			}
			return ignoreExists(p.create(ctx, child(app, "after-"+before, nil)))
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return p.ensure(ctx, child(app, "state", map[string]string{"text": app.Data["text"]}))
		},
	}, {
		name: "each run writes", steps: steps(createApp), needsNoFault: true,
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return p.annotate(ctx, app, time.Now().String())
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.Annotations["done"] != "" {
				return nil
			}
			return p.annotate(ctx, app, time.Now().Format(time.RFC3339))
		},
	}}
}

// cloudPatterns are bugs with a system outside of the cluster.
func cloudPatterns() []bugPattern {
	return []bugPattern{{
		name: "record created twice after a lost response", steps: steps(createApp), wantCloud: []string{"one"},
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.Annotations["done"] != "" {
				return nil
			}
			id, err := p.cloud.create(ctx, app.Data["text"])
			if err != nil {
				return err
			}
			return p.annotate(ctx, app, id)
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return p.cloud.put(ctx, string(app.UID), app.Data["text"])
		},
	}, {
		name: "record created before the finalizer", steps: steps(createApp, deleteApp), wantCloud: []string{},
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.DeletionTimestamp == nil {
				if err := p.cloud.put(ctx, app.Name, app.Data["text"]); err != nil {
					return err
				}
			}
			return finalized(ctx, p, app, func() error { return nil }, func() error { return p.cloud.delete(ctx, app.Name) })
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return finalized(ctx, p, app, func() error { return p.cloud.put(ctx, app.Name, app.Data["text"]) },
				func() error { return p.cloud.delete(ctx, app.Name) })
		},
	}, {
		name: "finalizer removed before the record", steps: steps(createApp, deleteApp), wantCloud: []string{},
		buggy: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.DeletionTimestamp == nil {
				return finalized(ctx, p, app, func() error { return p.cloud.put(ctx, app.Name, app.Data["text"]) }, nil)
			}
			if err := finalized(ctx, p, app, nil, func() error { return nil }); err != nil {
				return err
			}
			return p.cloud.delete(ctx, app.Name)
		},
		corrected: func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return finalized(ctx, p, app, func() error { return p.cloud.put(ctx, app.Name, app.Data["text"]) },
				func() error { return p.cloud.delete(ctx, app.Name) })
		},
	}}
}

// Explore finds each bug, and nothing in the corrected handler.
func TestBugPatterns(t *testing.T) {
	t.Parallel()
	for _, b := range bugPatterns() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			t.Run("buggy", func(t *testing.T) {
				failures := simulation.Failures(t, b.scenario(b.buggy, 0))
				if len(failures) == 0 {
					t.Fatal("the bug was not found")
				}
				if got := strings.HasPrefix(failures[0], "the scenario fails without faults: "); got != b.needsNoFault {
					t.Errorf("found without faults: %v", got)
				}
				t.Log(failures[0])
			})
			t.Run("corrected", func(t *testing.T) {
				simulation.Explore(t, b.scenario(b.corrected, testlength.Count(15, 1000)))
			})
		})
	}
}
