package simulation_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/namespace"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// runOnce runs a controller with a Job that runs once, with the image of the ConfigMap owner.
func runOnce(t *testing.T, do func(c *simulation.Cluster, creations *atomic.Int64)) {
	t.Helper()
	simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
		ctrl, creations := migrations(t, c, owned.Child{Once: true, Recreate: true}, func(job *batchv1.Job) {
			job.Spec.BackoffLimit = new(int32(0))
			job.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(30))
		})
		defer c.Run(ctrl)()
		c.Advance(500 * time.Millisecond)
		do(c, creations)
	})
}

// migrations returns a controller of the ConfigMap owner with a Job, whose image is in the ConfigMap, and the number of
// Jobs that it has created. child has the settings of the Job.
func migrations(t *testing.T, c *simulation.Cluster, child owned.Child, edit func(job *batchv1.Job)) (*controller.Controller[*corev1.ConfigMap], *atomic.Int64) {
	t.Helper()
	c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}, data: {image: one}}`)
	cluster := c.Connect("migrations")
	children, err := watched.New(watched.Config{
		Client: client.Config{Cluster: cluster, FieldOwner: "migrations"},
		Kinds:  []watched.Kind{watched.Of[*batchv1.Job]()},
		Set:    owned.Config{Propagation: metav1.DeletePropagationForeground},
	})
	if err != nil {
		t.Fatal(err)
	}
	creations := &atomic.Int64{}
	ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
		Name: "migrations", Cluster: cluster, Sources: children.Sources, ResyncInterval: 10 * time.Minute,
		Handler: func(ctx context.Context, owner *corev1.ConfigMap) error {
			if owner.Name != "owner" {
				return nil
			}
			job := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: "migrate"},
				Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "migrate", Image: owner.Data["image"]}},
				}}},
			}
			edit(job)
			child := child
			child.Object = job
			report, err := children.Set.Apply(ctx, owner, child)
			for _, result := range report.Results {
				t.Log(time.Now().Format("15:04:05"), result.Outcome, result.Readiness.Status, result.Note, err)
				if result.Outcome == owned.Created {
					creations.Add(1)
				}
			}
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return ctrl, creations
}

// A user deletes the Job in the foreground before it has finished: Child.Once promises that it runs again.
func TestJobThatUserDeletesRunsAgain(t *testing.T) {
	t.Parallel()
	runOnce(t, func(c *simulation.Cluster, creations *atomic.Int64) {
		job := simulation.Get[*batchv1.Job](c, "default/migrate")
		if len(job.Status.Conditions) > 0 {
			t.Fatalf("it has finished already: %v", job.Status.Conditions)
		}
		if err := client.Delete(t.Context(), c.Client(), job, client.Propagation(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
		c.Advance(10 * time.Minute)
		if n := creations.Load(); n != 2 {
			t.Errorf("created %d times, want it to run again; owner %v", n, simulation.Get[*corev1.ConfigMap](c, "default/owner").Annotations)
		}
	})
}

// The owner gets another image: with Recreate, the Job of that image must run.
func TestRecreatedJobRuns(t *testing.T) {
	t.Parallel()
	runOnce(t, func(c *simulation.Cluster, creations *atomic.Int64) {
		c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}, data: {image: two}}`)
		c.Advance(10 * time.Minute)
		if n := creations.Load(); n != 2 {
			t.Errorf("created %d times, want a Job with the new image; owner %v", n, simulation.Get[*corev1.ConfigMap](c, "default/owner").Annotations)
		}
	})
}

type byName struct{ labels.Selector }

func (b byName) GetParsedNamespaceSelector() (labels.Selector, error) { return b.Selector, nil }

// kube-apiserver compares the selector with the object's own labels for the resource namespaces of every group, such as
// namespaces.servicebus.azure.com: with the default selector of SetNamespaces, such a hook is never called.
func TestSelectorOfNamespacesOfAnotherGroup(t *testing.T) {
	t.Parallel()
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	_ = store.Add(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{corev1.LabelMetadataName: "shop"}}})
	m := namespace.Matcher{NamespaceLister: corelisters.NewNamespaceLister(store)}
	selector, _ := labels.Parse(corev1.LabelMetadataName + " in (shop)")
	obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bus"}}
	for _, resource := range []string{"namespaces", "queues"} {
		gvr := schema.GroupVersionResource{Group: "servicebus.azure.com", Version: "v1", Resource: resource}
		attr := admission.NewAttributesRecord(obj, nil, gvr.GroupVersion().WithKind("X"), "shop", "bus", gvr, "", admission.Create, nil, false, nil)
		called, err := m.MatchNamespaceSelector(byName{selector}, attr)
		if err != nil || called != (resource != "namespaces") {
			t.Errorf("%s: called %t, %v", resource, called, err)
		}
	}
}
