package simulation_test

import (
	"context"
	"crypto/rand"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// ensureCopy is a correct handler.
func ensureCopy(ctx context.Context, p *process, app *corev1.ConfigMap) error {
	return p.ensure(ctx, child(app, "copy", map[string]string{"text": app.Data["text"]}))
}

// setText returns a step that creates the app, or changes its text.
func setText(text string) func(c *simulation.Cluster) {
	return func(c *simulation.Cluster) {
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: shop, labels: {app: "true"}}, data: {text: ` + text + `}}`)
	}
}

// Explore reports nothing about correct handlers, whatever they choose and whatever users do.
func TestExploreAcceptsCorrectHandlers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		handle          appHandler
		steps           []func(c *simulation.Cluster)
		withControllers bool
	}{
		"a step that needs the child": {ensureCopy, steps(createApp, func(c *simulation.Cluster) {
			simulation.Delete[*corev1.ConfigMap](c, "default/copy")
		}), false},
		"a step that waits for the programs": {ensureCopy, steps(createApp, func(c *simulation.Cluster) {
			editApp(c)
			c.Settle()
			c.Expect(`{apiVersion: v1, kind: ConfigMap, metadata: {name: copy}, data: {text: two}}`)
		}), false},
		"a step that takes longer than the cluster needs to be idle": {ensureCopy, steps(setText("one"), func(c *simulation.Cluster) {
			time.Sleep(time.Minute)
			setText("two")(c)
		}, setText("three")), false},
		"an app that is created again": {func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return finalized(ctx, p, app, func() error {
				return p.ensure(ctx, child(app, "copy", map[string]string{"text": app.Data["text"], "owner": string(app.UID)}))
			}, func() error {
				// The cache may be late: the copy may belong to the next app already.
				copied, err := p.maps.Get(ctx, "copy", metav1.GetOptions{})
				if err != nil || copied.Data["owner"] != string(app.UID) {
					return ignoreMissing(err)
				}
				return ignoreMissing(p.maps.Delete(ctx, "copy", *metav1.NewPreconditionDeleteOptions(string(copied.UID))))
			})
		}, steps(createApp, deleteApp, createApp, editApp), false},
		"a random name that is reserved first": {func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			reserved := app.Annotations["done"]
			if reserved == "" { // the event of the annotation starts another run
				app = app.DeepCopy()
				metav1.SetMetaDataAnnotation(&app.ObjectMeta, "done", "job-"+strings.ToLower(rand.Text()[:6]))
				_, err := p.maps.Update(ctx, app, metav1.UpdateOptions{})
				return err
			}
			return p.ensure(ctx, child(app, reserved, map[string]string{"text": app.Data["text"]}))
		}, steps(createApp, editApp), false},
		"a name with a uid": {func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return p.ensure(ctx, child(app, "volume-"+string(app.UID), map[string]string{"text": app.Data["text"]}))
		}, steps(createApp, editApp), false},
		"a time in seconds": {func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			if app.Annotations["done"] != "" {
				return nil
			}
			return p.annotate(ctx, app, strconv.FormatInt(time.Now().Unix(), 10))
		}, steps(createApp, editApp), false},
		"names of Pods that contain that of a Job": {ensureCopy, steps(createApp, func(c *simulation.Cluster) {
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "backup-", Namespace: "default"},
				Spec: batchv1.JobSpec{Parallelism: new(int32(3)), Completions: new(int32(3)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: "Never", Containers: []corev1.Container{{Name: "a", Image: "b"}},
				}}},
			}
			if _, err := client.Create(context.Background(), c.Client(), job); err != nil {
				t.Error(err)
			}
		}), true},
		"a Deployment whose first image no run may see": {func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			deployment := `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop"}, "spec": {"replicas": 1,
				"selector": {"matchLabels": {"app": "shop"}}, "template": {"metadata": {"labels": {"app": "shop"}},
				"spec": {"containers": [{"name": "shop", "image": "shop:` + app.Data["text"] + `"}]}}}}`
			_, err := p.clients.AppsV1().Deployments("default").Patch(ctx, "shop", types.ApplyPatchType, []byte(deployment),
				metav1.PatchOptions{FieldManager: "apps", Force: new(true)})
			return err
		}, steps(createApp, editApp), true},
		"a creation that is undone by a finalizer": {func(ctx context.Context, p *process, app *corev1.ConfigMap) error {
			return finalized(ctx, p, app, func() error { return ignoreExists(p.create(ctx, child(app, "job", nil))) }, func() error {
				return ignoreMissing(p.maps.Delete(ctx, "job", metav1.DeleteOptions{}))
			})
		}, steps(createApp, deleteApp), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario := bugPattern{steps: test.steps}.scenario(test.handle, testlength.Count(15, 300))
			simulation.Explore(t, func() simulation.Scenario {
				s := scenario()
				s.Cluster.WithoutControllers = !test.withControllers
				return s
			})
		})
	}
}

// A program that has no watches, and is idle for longer than Config.IdleAfter.
func TestExploreAcceptsProgramThatPolls(t *testing.T) {
	t.Parallel()
	for _, interval := range []time.Duration{time.Second, time.Minute} {
		t.Run(interval.String(), func(t *testing.T) {
			t.Parallel()
			simulation.Explore(t, func() simulation.Scenario {
				return simulation.Scenario{
					Cluster:  simulation.Config{WithoutControllers: true},
					Programs: map[string]func(context.Context, *rest.Config) error{"poll": pollEvery(interval)},
					Steps:    steps(createApp, editApp), Runs: testlength.Count(15, 300),
				}
			})
		})
	}
}

func pollEvery(interval time.Duration) func(ctx context.Context, config *rest.Config) error {
	return func(ctx context.Context, config *rest.Config) error {
		clients, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		objects := clients.CoreV1().ConfigMaps("default")
		for ctx.Err() == nil {
			if app, err := objects.Get(ctx, "shop", metav1.GetOptions{}); err == nil {
				copied, err := objects.Get(ctx, "copy", metav1.GetOptions{})
				if err != nil {
					_, _ = objects.Create(ctx, child(app, "copy", app.Data), metav1.CreateOptions{}) // or at the next poll
				} else if !maps.Equal(copied.Data, app.Data) {
					copied.Data = app.Data
					_, _ = objects.Update(ctx, copied, metav1.UpdateOptions{})
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(interval):
			}
		}
		return nil
	}
}
