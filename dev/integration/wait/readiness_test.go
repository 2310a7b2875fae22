package wait

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// A PodDisruptionBudget that is created before its Pods is ready. For one that cannot be computed the controller
// reports the reason.
func TestPodDisruptionBudgetReadiness(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		budget := func(name string, atLeast intstr.IntOrString) *policyv1.PodDisruptionBudget {
			return &policyv1.PodDisruptionBudget{ObjectMeta: e.Meta(name), Spec: policyv1.PodDisruptionBudgetSpec{
				MinAvailable: &atLeast, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			}}
		}
		clustertest.Must(client.Create(t.Context(), e.Client, budget("early", intstr.FromInt32(2))))(e)
		early := clustertest.Must(client.WaitFor[*policyv1.PodDisruptionBudget](t.Context(), e.Client, e.Key("early"), readiness.Of, patience()))(e)
		if s := early.Status; s.ObservedGeneration != early.Generation || s.DesiredHealthy != 2 || s.CurrentHealthy != 0 {
			t.Errorf("the status is %+v", s)
		}

		// A percentage: the Pods have no controller with a scale.
		owner := clustertest.Must(client.Create(t.Context(), e.Client, &corev1.ConfigMap{ObjectMeta: e.Meta("odd")}))(e)
		pod := &corev1.Pod{ObjectMeta: e.Meta("odd"), Spec: clustertest.PodTemplate(nil).Spec}
		pod.Labels = map[string]string{"app": "odd"}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())}
		clustertest.Must(client.Create(t.Context(), e.Client, pod))(e)
		clustertest.Must(client.Create(t.Context(), e.Client, budget("odd", intstr.FromString("50%"))))(e)
		saysWhy := func(obj kube.Object) readiness.State {
			state := readiness.Of(obj)
			if state.Status == readiness.InProgress && strings.Contains(state.Message, "SyncFailed") {
				return readiness.State{Status: readiness.Current}
			}
			return readiness.State{Status: readiness.InProgress, Message: "it says: " + state.String()}
		}
		clustertest.Must(client.WaitFor[*policyv1.PodDisruptionBudget](t.Context(), e.Client, e.Key("odd"), saysWhy, patience()))(e)
	})
}

// Workloads with a paused or partitioned rollout count as rolled out as far as their spec allows.
func TestPausedRolloutCountsAsRolledOut(t *testing.T) {
	t.Parallel()
	anyCluster.Test(t, func(t *testing.T) {
		e := newEnv(t)
		web := clustertest.Must(client.Create(t.Context(), e.Client, e.deployment("web")))(e)
		clustertest.Must(client.WaitFor[*appsv1.Deployment](t.Context(), e.Client, e.Key("web"), readiness.Of, patience()))(e)
		paused := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true}}`))
		web = clustertest.Must(client.Patch(t.Context(), e.Client, web, paused))(e)
		live := clustertest.Must(client.WaitFor[*appsv1.Deployment](t.Context(), e.Client, e.Key("web"), readiness.Of, patience()))(e)
		if live.Generation != web.Generation || live.Status.ObservedGeneration < web.Generation {
			t.Errorf("waited for generation %d, and the status is %+v", web.Generation, live.Status)
		}
		image := client.RawPatch("application/strategic-merge-patch+json", []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`))
		clustertest.Must(client.Patch(t.Context(), e.Client, web, image))(e)
		stays := func(obj kube.Object) readiness.State {
			state := readiness.Of(obj)
			if state.Status == readiness.InProgress && strings.Contains(state.Message, "0 of 2 replicas are updated (it is paused)") {
				return readiness.State{Status: readiness.Current}
			}
			return readiness.State{Status: readiness.InProgress, Message: "it says: " + state.String()}
		}
		clustertest.Must(client.WaitFor[*appsv1.Deployment](t.Context(), e.Client, e.Key("web"), stays, patience()))(e)

		labels := map[string]string{"app": "db"}
		db := clustertest.Must(client.Create(t.Context(), e.Client, &appsv1.StatefulSet{ObjectMeta: e.Meta("db"), Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: clustertest.PodTemplate(labels), ServiceName: "db",
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
		}}))(e)
		clustertest.Must(client.WaitFor[*appsv1.StatefulSet](t.Context(), e.Client, e.Key("db"), readiness.Of, patience()))(e)
		db = clustertest.Must(client.Patch(t.Context(), e.Client, db, image))(e)
		set := clustertest.Must(client.WaitFor[*appsv1.StatefulSet](t.Context(), e.Client, e.Key("db"), readiness.Of, patience()))(e)
		if s := set.Status; s.ObservedGeneration < db.Generation || s.UpdatedReplicas != 0 || s.AvailableReplicas != 1 {
			t.Errorf("of generation %d the status is %+v", db.Generation, s)
		}
	})
}
