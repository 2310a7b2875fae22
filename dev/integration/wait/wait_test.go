package wait

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/dev/integration/internal/fixture"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// patience is the maximum duration of the waits in these tests, for slow machines.
func patience() client.WaitOption { return client.Timeout(2 * time.Minute) }

// notYet calls wait, which must end with its deadline and an error that contains texts. On a slow machine the first
// deadlines pass before the state of the object is known.
func notYet(t *testing.T, wait func(within client.WaitOption) error, texts ...string) {
	t.Helper()
	var err error
	for within := 100 * time.Millisecond; within < 2*time.Minute; within *= 8 {
		err = wait(client.Timeout(within))
		if !errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
			return
		}
	}
	t.Errorf("the error is: %v, want the deadline and %q", err, texts)
}

// deployment returns a Deployment with two replicas.
func (e env) deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: e.Meta(name), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: clustertest.PodTemplate(labels),
	}}
}

func TestRolledOut(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		web := clustertest.Must(client.Create(t.Context(), e.Client, e.deployment("web")))(e)
		for _, image := range []string{"web", "web:2", "web:3"} {
			// The wait starts before the controllers have seen the change.
			web.Spec.Template.Spec.Containers[0].Image = image
			web.ResourceVersion = "" // whatever the controllers write meanwhile
			written := clustertest.Must(client.Update(t.Context(), e.Client, web))(e)
			web = clustertest.Must(client.WaitFor[*appsv1.Deployment](t.Context(), e.Client, e.Key("web"), readiness.Of, patience()))(e)
			s := web.Status
			if s.ObservedGeneration < written.Generation || s.UpdatedReplicas != 2 || s.AvailableReplicas != 2 || s.Replicas != 2 {
				t.Errorf("%s: waited for generation %d, and the status is %+v", image, written.Generation, s)
			}
		}
		// The result is the same for every Go type, and costs one request.
		for name, wait := range map[string]func(ctx context.Context) error{
			"typed": func(ctx context.Context) error {
				_, err := client.WaitFor[*appsv1.Deployment](ctx, e.Client, e.Key("web"), readiness.Of)
				return err
			},
			"unstructured": func(ctx context.Context) error {
				obj, err := client.WaitFor[*unstructured.Unstructured](ctx, e.Client, e.Key("web"), readiness.Of,
					client.OfKind(appsv1.SchemeGroupVersion.WithKind("Deployment")))
				if err == nil && obj.GetKind() != "Deployment" {
					t.Errorf("the kind is %q", obj.GetKind())
				}
				return err
			},
			"metadata only": func(ctx context.Context) error {
				obj, err := client.WaitFor[*metav1.PartialObjectMetadata](ctx, e.Client, e.Key("web"), readiness.When("", func(*metav1.PartialObjectMetadata) bool { return true }),
					client.OfKind(appsv1.SchemeGroupVersion.WithKind("Deployment")))
				if err == nil && (obj.Kind != "Deployment" || obj.UID != web.UID) {
					t.Errorf("the metadata is %v", obj)
				}
				return err
			},
		} {
			calls := &fixture.Calls{Text: fixture.Verb}
			if err := wait(kube.ObserveCalls(t.Context(), calls)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			calls.Want(t, name, "list")
		}
	})
}

func TestStatefulSetAndPod(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		labels := map[string]string{"app": "db"}
		selector := &metav1.LabelSelector{MatchLabels: labels}
		clustertest.Must(client.Create(t.Context(), e.Client, &appsv1.StatefulSet{ObjectMeta: e.Meta("db"), Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: selector, Template: clustertest.PodTemplate(labels), ServiceName: "db",
		}}))(e)
		set := clustertest.Must(client.WaitFor[*appsv1.StatefulSet](t.Context(), e.Client, e.Key("db"), readiness.Of, patience()))(e)
		set.Spec.Template.Spec.Containers[0].Image = "db:2"
		set.ResourceVersion = "" // whatever the controllers write meanwhile
		set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(1))}
		clustertest.Must(client.Update(t.Context(), e.Client, set))(e)
		set = clustertest.Must(client.WaitFor[*appsv1.StatefulSet](t.Context(), e.Client, e.Key("db"), readiness.Of, patience()))(e)
		if set.Status.UpdatedReplicas != 1 || set.Status.AvailableReplicas != 2 {
			t.Errorf("with a partition, the status is %+v", set.Status)
		}
		set.Spec.UpdateStrategy.RollingUpdate = nil
		set.ResourceVersion = ""
		clustertest.Must(client.Update(t.Context(), e.Client, set))(e)
		set = clustertest.Must(client.WaitFor[*appsv1.StatefulSet](t.Context(), e.Client, e.Key("db"), readiness.Of, patience()))(e)
		if set.Status.UpdatedReplicas != 2 || set.Status.CurrentRevision != set.Status.UpdateRevision {
			t.Errorf("without a partition, the status is %+v", set.Status)
		}

		pod := &corev1.Pod{ObjectMeta: e.Meta("pod"), Spec: clustertest.PodTemplate(nil).Spec}
		clustertest.Must(client.Create(t.Context(), e.Client, pod))(e)
		clustertest.Must(client.WaitFor[*corev1.Pod](t.Context(), e.Client, e.Key("pod"), readiness.Condition("Ready", metav1.ConditionTrue), patience()))(e)
	})
}

func TestJobs(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		spec := clustertest.PodTemplate(nil)
		spec.Spec.RestartPolicy = corev1.RestartPolicyNever
		clustertest.Must(client.Create(t.Context(), e.Client, &batchv1.Job{ObjectMeta: e.Meta("migration"), Spec: batchv1.JobSpec{Template: spec}}))(e)
		job := clustertest.Must(client.WaitFor[*batchv1.Job](t.Context(), e.Client, e.Key("migration"), readiness.Of, patience()))(e)
		if job.Status.Succeeded != 1 {
			t.Errorf("the Job's status is %+v", job.Status)
		}
		delayed := spec.DeepCopy()
		delayed.Spec.NodeSelector = map[string]string{"no-node": "has-this"}
		clustertest.Must(client.Create(t.Context(), e.Client, &batchv1.Job{
			ObjectMeta: e.Meta("late"), Spec: batchv1.JobSpec{Template: *delayed, ActiveDeadlineSeconds: new(int64(1))},
		}))(e)
		_, err := client.WaitFor[*batchv1.Job](t.Context(), e.Client, e.Key("late"), readiness.Of, patience())
		if !errors.Is(err, client.ErrFailed) || !strings.Contains(err.Error(), "DeadlineExceeded") {
			t.Errorf("the error is: %v", err)
		}
	})
}

func TestDeploymentWithoutProgressFails(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		stuck := e.deployment("stuck")
		stuck.Spec.ProgressDeadlineSeconds = new(int32(2))
		stuck.Spec.Template.Spec.NodeSelector = map[string]string{"no-node": "has-this"}
		clustertest.Must(client.Create(t.Context(), e.Client, stuck))(e)
		_, err := client.WaitFor[*appsv1.Deployment](t.Context(), e.Client, e.Key("stuck"), readiness.Of, patience())
		if !errors.Is(err, client.ErrFailed) || !strings.Contains(err.Error(), "ProgressDeadlineExceeded") {
			t.Errorf("the error is: %v", err)
		}
	})
}

// A wait can start before the kind, or the object, exists.
func TestWaitForKindInstalledLater(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		d := e.definition("widgets", "Widget")
		kind := schema.GroupVersionKind{Group: e.Namespace + ".example.com", Version: "v1", Kind: "Widget"}
		type result struct {
			obj *unstructured.Unstructured
			err error
		}
		ended := make(chan result, 1)
		go func() { // waited for below
			obj, err := client.WaitFor[*unstructured.Unstructured](t.Context(), e.Client, e.Key("w"),
				readiness.Condition("Ready", metav1.ConditionTrue), client.OfKind(kind), patience())
			ended <- result{obj, err}
		}()
		created := clustertest.Must(client.Create(t.Context(), e.Client, d))(e)
		ofDefinitions := client.OfKind(created.GroupVersionKind())
		key := kube.Key{Name: created.GetName()}
		clustertest.Must(client.WaitFor[*unstructured.Unstructured](t.Context(), e.Client, key, readiness.Of, ofDefinitions, patience()))(e)

		w := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(1)}}}
		w.SetGroupVersionKind(kind)
		w.SetNamespace(e.Namespace)
		w.SetName("w")
		clustertest.Eventually(t, func() string { // discovery is a little behind
			if _, err := client.Create(t.Context(), e.Client, w); err != nil {
				return err.Error()
			}
			return ""
		})
		live := clustertest.Must(client.Get[*unstructured.Unstructured](t.Context(), e.Client, e.Key("w"), client.OfKind(kind)))(e)
		live.Object["spec"] = map[string]any{"size": int64(2)}
		live = clustertest.Must(client.Update(t.Context(), e.Client, live))(e)
		report := func(generation int64) {
			live.Object["status"] = map[string]any{"conditions": []any{
				map[string]any{"type": "Ready", "status": "True", "observedGeneration": generation},
			}}
			live = clustertest.Must(client.Update(t.Context(), e.Client, live, client.Subresource("status")))(e)
		}
		report(1)
		notYet(t, func(within client.WaitOption) error {
			_, err := client.WaitFor[*unstructured.Unstructured](t.Context(), e.Client, e.Key("w"),
				readiness.Condition("Ready", metav1.ConditionTrue), client.OfKind(kind), within)
			return err
		}, "condition Ready is about generation 1, and the object is at generation 2")
		report(2)
		got := <-ended
		if got.err != nil || got.obj.GetUID() != live.GetUID() || got.obj.GetResourceVersion() != live.GetResourceVersion() {
			t.Fatalf("waited for %v: %v", got.obj, got.err)
		}

		// Another definition has the same kind.
		clustertest.Must(client.Create(t.Context(), e.Client, e.definition("gadgets", "Widget")))(e)
		_, err := client.WaitFor[*unstructured.Unstructured](t.Context(), e.Client,
			kube.Key{Name: "gadgets." + kind.Group}, readiness.Of, ofDefinitions, patience())
		if !errors.Is(err, client.ErrFailed) || !strings.Contains(err.Error(), "its names are not accepted") {
			t.Errorf("the error is: %v", err)
		}
	})
}

func TestWaitDeleted(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		held := &corev1.ConfigMap{ObjectMeta: e.Meta("held")}
		held.Finalizers = []string{"tests.example.com/disk"}
		held = clustertest.Must(client.Create(t.Context(), e.Client, held))(e)
		deleted := func(within client.WaitOption) error { return client.WaitDeleted(t.Context(), e.Client, held, within) }
		notYet(t, deleted, "was not deleted")
		if err := client.Delete(t.Context(), e.Client, held); err != nil {
			t.Fatal(err)
		}
		notYet(t, deleted, `held by finalizers ["tests.example.com/disk"]`)
		ended := make(chan error, 1)
		go func() { ended <- client.WaitDeleted(t.Context(), e.Client, held, patience()) }() // waited for below
		live := clustertest.Must(client.Get[*corev1.ConfigMap](t.Context(), e.Client, e.Key("held")))(e)
		live.Finalizers = nil
		clustertest.Must(client.Update(t.Context(), e.Client, live))(e)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		clustertest.Must(client.Create(t.Context(), e.Client, &corev1.ConfigMap{ObjectMeta: e.Meta("held")}))(e)
		if err := client.WaitDeleted(t.Context(), e.Client, held); err != nil {
			t.Errorf("another one has come: %v", err)
		}

		// The deletion of a namespace takes some seconds.
		namespace := clustertest.Must(client.Get[*corev1.Namespace](t.Context(), e.Client, kube.Key{Name: e.Namespace}))(e)
		if state := readiness.Of(namespace); !state.Ready() {
			t.Errorf("the namespace is %s", state)
		}
		if err := client.Delete(t.Context(), e.Client, namespace); err != nil {
			t.Fatal(err)
		}
		if err := client.WaitDeleted(t.Context(), e.Client, namespace, patience()); err != nil {
			t.Error(err)
		}
		if exists := clustertest.Must(client.Exists[*corev1.Namespace](t.Context(), e.Client, kube.Key{Name: e.Namespace}))(e); exists {
			t.Error("the namespace is still there")
		}
	})
}

// TestWaitForObjects: a Deployment's Pods are ready, and after its deletion none is left.
func TestWaitForObjects(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		labels := map[string]string{"app": "many"}
		selection := kube.Selection{Namespaces: []string{e.Namespace}, LabelSelector: "app=many"}
		_, err := client.WaitForObjects[*corev1.Pod](t.Context(), e.Client, selection, 1, readiness.Of, client.Timeout(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `no object exists, selected by labels "app=many"`) {
			t.Errorf("without Pods: %v", err)
		}
		deployment := clustertest.Must(client.Create(t.Context(), e.Client, &appsv1.Deployment{
			ObjectMeta: e.Meta("many"),
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: clustertest.PodTemplate(labels),
			},
		}))(e)
		pods := clustertest.Must(client.WaitForObjects[*corev1.Pod](t.Context(), e.Client, selection, 3, readiness.Of, patience()))(e)
		if len(pods) != 3 || !readiness.Of(pods[2]).Ready() {
			t.Errorf("the Pods are %v", pods)
		}
		if err := client.Delete(t.Context(), e.Client, deployment); err != nil {
			t.Fatal(err)
		}
		if err := client.WaitForNone[*corev1.Pod](t.Context(), e.Client, selection, patience()); err != nil {
			t.Error(err)
		}
		if left := clustertest.Must(client.Keys[*corev1.Pod](t.Context(), e.Client, kube.Selection{Namespaces: []string{e.Namespace}}))(e); len(left) > 0 {
			t.Errorf("the Pods %v are left", left)
		}
	})
}
