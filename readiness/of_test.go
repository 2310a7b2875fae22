package readiness_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

func state(status readiness.Status, message string) readiness.State {
	return readiness.State{Status: status, Message: message}
}

func current() readiness.State { return state(readiness.Current, "") }

func progress(message string) readiness.State { return state(readiness.InProgress, message) }

func failed(message string) readiness.State { return state(readiness.Failed, message) }

// at returns the metadata of an object at a generation.
func at(generation int64) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: generation}
}

func TestWorkloads(t *testing.T) {
	t.Parallel()
	deployment := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d := &appsv1.Deployment{
			ObjectMeta: at(2), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3))},
			Status: appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3},
		}
		change(d)
		return d
	}
	condition := func(conditionType, status, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{
			Type: appsv1.DeploymentConditionType(conditionType), Status: corev1.ConditionStatus(status), Reason: reason, Message: message,
		}
	}
	statefulSet := func(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{
			ObjectMeta: at(2), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3))},
			Status: appsv1.StatefulSetStatus{
				ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3, CurrentRevision: "b", UpdateRevision: "b",
			},
		}
		change(s)
		return s
	}
	daemonSet := func(change func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
		d := &appsv1.DaemonSet{ObjectMeta: at(2), Status: appsv1.DaemonSetStatus{
			ObservedGeneration: 2, DesiredNumberScheduled: 4, CurrentNumberScheduled: 4, UpdatedNumberScheduled: 4, NumberAvailable: 4,
		}}
		change(d)
		return d
	}
	check(t, map[string]test{
		"deployment, rolled out": {deployment(func(*appsv1.Deployment) {}), current()},
		"deployment, created with zero replicas": {
			deployment(func(d *appsv1.Deployment) { *d.Spec.Replicas, d.Status = 0, appsv1.DeploymentStatus{} }),
			progress("the controller has not processed it yet"),
		},
		"deployment, changed": {
			deployment(func(d *appsv1.Deployment) { d.Generation = 3 }), progress("the status is about generation 2, and the object is at generation 3"),
		},
		"deployment, one replica by default": {
			deployment(func(d *appsv1.Deployment) {
				d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas = nil, 1, 1, 0
			}),
			progress("0 of 1 replicas are available"),
		},
		"deployment, updating": {
			deployment(func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }), progress("1 of 3 replicas are updated"),
		},
		"deployment, with old replicas": {
			deployment(func(d *appsv1.Deployment) { d.Status.Replicas = 4 }), progress("1 replicas of an earlier template still exist"),
		},
		"deployment, scaled down": {
			deployment(func(d *appsv1.Deployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 5, 5 }),
			progress("2 more than 3 replicas exist"),
		},
		"deployment, not available": {
			deployment(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 2 }), progress("2 of 3 replicas are available"),
		},
		"deployment, not Available": {
			deployment(func(d *appsv1.Deployment) {
				d.Status.Conditions = append(d.Status.Conditions, condition("Available", "False", "MinimumReplicasUnavailable", "too few"))
			}),
			progress("condition Available is False: MinimumReplicasUnavailable: too few"),
		},
		"deployment, without quota": {
			deployment(func(d *appsv1.Deployment) {
				d.Status.UpdatedReplicas = 0
				d.Status.Conditions = append(d.Status.Conditions, condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota"))
			}),
			progress("0 of 3 replicas are updated: FailedCreate: exceeded quota"),
		},
		"deployment, paused in the middle": {
			deployment(func(d *appsv1.Deployment) { d.Spec.Paused, d.Status.UpdatedReplicas = true, 1 }),
			progress("1 of 3 replicas are updated (it is paused)"),
		},
		"deployment, paused at the end": {deployment(func(d *appsv1.Deployment) { d.Spec.Paused = true }), current()},
		"deployment, progressing": {
			deployment(func(d *appsv1.Deployment) {
				d.Status.Conditions = append(d.Status.Conditions, condition("Progressing", "True", "NewReplicaSetAvailable", "it has"))
			}), current(),
		},
		"deployment, past its deadline": {
			deployment(func(d *appsv1.Deployment) {
				d.Status.UpdatedReplicas = 1
				d.Status.Conditions = append(d.Status.Conditions, condition("Progressing", "False", "ProgressDeadlineExceeded", "timed out"))
			}),
			failed("it has made no progress for too long: ProgressDeadlineExceeded: timed out"),
		},
		"deployment, changed after its deadline": {
			deployment(func(d *appsv1.Deployment) {
				d.Generation = 3
				d.Status.Conditions = append(d.Status.Conditions, condition("Progressing", "False", "ProgressDeadlineExceeded", "timed out"))
			}),
			progress("the status is about generation 2, and the object is at generation 3"),
		},

		"statefulset, rolled out": {statefulSet(func(*appsv1.StatefulSet) {}), current()},
		"statefulset, creating": {
			statefulSet(func(s *appsv1.StatefulSet) { s.Status.Replicas = 1 }), progress("1 of 3 replicas are created"),
		},
		"statefulset, scaled down": {
			statefulSet(func(s *appsv1.StatefulSet) { s.Status.Replicas = 4 }), progress("1 more than 3 replicas exist"),
		},
		"statefulset, updating": {
			statefulSet(func(s *appsv1.StatefulSet) { s.Status.UpdatedReplicas, s.Status.CurrentRevision = 2, "a" }),
			progress("2 of 3 replicas are updated"),
		},
		"statefulset, update not complete": {
			statefulSet(func(s *appsv1.StatefulSet) { s.Status.CurrentRevision = "a" }), progress("the update to revision b is not complete"),
		},
		"statefulset, not available": {
			statefulSet(func(s *appsv1.StatefulSet) { s.Status.AvailableReplicas = 0 }), progress("0 of 3 replicas are available"),
		},
		"statefulset, with a partition that has been reached": {
			statefulSet(func(s *appsv1.StatefulSet) {
				partition(s, 2)
				s.Status.UpdatedReplicas, s.Status.CurrentRevision = 1, "a"
			}), current(),
		},
		"statefulset, with a partition that has not been reached": {
			statefulSet(func(s *appsv1.StatefulSet) {
				partition(s, 1)
				s.Status.UpdatedReplicas, s.Status.CurrentRevision = 1, "a"
			}),
			progress("1 of 2 replicas are updated"),
		},
		"statefulset, with a partition above its replicas": {
			statefulSet(func(s *appsv1.StatefulSet) { partition(s, 9); s.Status.UpdatedReplicas = 0 }), current(),
		},
		"statefulset, updated on deletion": {
			statefulSet(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type, s.Status.UpdatedReplicas = "OnDelete", 0 }), current(),
		},
		"statefulset, updated on deletion, not available": {
			statefulSet(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type, s.Status.AvailableReplicas = "OnDelete", 2 }),
			progress("2 of 3 replicas are available"),
		},

		"daemonset, rolled out":   {daemonSet(func(*appsv1.DaemonSet) {}), current()},
		"daemonset, just created": {&appsv1.DaemonSet{ObjectMeta: at(1)}, progress("the controller has not processed it yet")},
		"daemonset, scheduling": {
			daemonSet(func(d *appsv1.DaemonSet) { d.Status.CurrentNumberScheduled = 3 }), progress("3 of 4 nodes have their Pod"),
		},
		"daemonset, updating": {
			daemonSet(func(d *appsv1.DaemonSet) { d.Status.UpdatedNumberScheduled = 1 }), progress("1 of 4 Pods are updated"),
		},
		"daemonset, updated on deletion": {
			daemonSet(func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type, d.Status.UpdatedNumberScheduled = "OnDelete", 1 }), current(),
		},
		"daemonset, not available": {
			daemonSet(func(d *appsv1.DaemonSet) { d.Status.NumberAvailable = 0 }), progress("0 of 4 Pods are available"),
		},

		"replicaset": {&appsv1.ReplicaSet{
			ObjectMeta: at(1), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(2))},
			Status: appsv1.ReplicaSetStatus{ObservedGeneration: 1, Replicas: 2, AvailableReplicas: 1},
		}, progress("1 of 2 replicas are available")},
		"replicationcontroller": {&corev1.ReplicationController{
			ObjectMeta: at(1), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(2))},
			Status: corev1.ReplicationControllerStatus{ObservedGeneration: 1, Replicas: 3},
		}, progress("1 more than 2 replicas exist")},
	})
}

func partition(s *appsv1.StatefulSet, ordinal int32) {
	s.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: &ordinal}
}

func TestPods(t *testing.T) {
	t.Parallel()
	pod := func(status corev1.PodStatus) *corev1.Pod { return &corev1.Pod{ObjectMeta: at(0), Status: status} }
	notReady := corev1.PodCondition{Type: "Ready", Status: "False", Reason: "ContainersNotReady", Message: "containers with unready status: [web]"}
	waits := func(name, reason, message string) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	crashed := waits("web", "CrashLoopBackOff", "back-off 5m0s")
	crashed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3}
	check(t, map[string]test{
		"just created": {pod(corev1.PodStatus{Phase: "Pending"}), progress("the Pod has not started")},
		"unschedulable": {pod(corev1.PodStatus{Phase: "Pending", Conditions: []corev1.PodCondition{
			{Type: "PodScheduled", Status: "False", Reason: "Unschedulable", Message: "0/3 nodes are available"},
		}}), progress("not scheduled to a node: Unschedulable: 0/3 nodes are available")},
		"starting": {pod(corev1.PodStatus{
			Phase: "Pending", Conditions: []corev1.PodCondition{notReady},
			ContainerStatuses: []corev1.ContainerStatus{waits("web", "ContainerCreating", "")},
		}), progress("condition Ready is False: ContainersNotReady: containers with unready status: [web]")},
		"image missing": {pod(corev1.PodStatus{
			Phase: "Pending", Conditions: []corev1.PodCondition{notReady},
			ContainerStatuses: []corev1.ContainerStatus{waits("web", "ImagePullBackOff", "no such image")},
		}), progress("container web is waiting: ImagePullBackOff: no such image")},
		"ready": {pod(corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}}}), current()},
		"running and not ready": {
			pod(corev1.PodStatus{Phase: "Running", Conditions: []corev1.PodCondition{notReady}}),
			progress("condition Ready is False: ContainersNotReady: containers with unready status: [web]"),
		},
		"crashing": {pod(corev1.PodStatus{
			Phase: "Running", Conditions: []corev1.PodCondition{notReady}, ContainerStatuses: []corev1.ContainerStatus{waits("log", "Odd", ""), crashed},
		}), failed("container web is in CrashLoopBackOff (Error, exit code 3)")},
		"init container crashing": {pod(corev1.PodStatus{
			Phase: "Pending", InitContainerStatuses: []corev1.ContainerStatus{waits("init", "CrashLoopBackOff", "")},
		}), failed("container init is in CrashLoopBackOff")},
		"succeeded": {pod(corev1.PodStatus{Phase: "Succeeded"}), current()},
		"failed": {
			pod(corev1.PodStatus{Phase: "Failed", Reason: "Evicted", Message: "disk pressure"}), failed("the Pod has failed: Evicted: disk pressure"),
		},
		"resized": {
			&corev1.Pod{ObjectMeta: at(2), Status: corev1.PodStatus{
				ObservedGeneration: 1, Phase: "Running", Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}},
			}},
			progress("the status is about generation 1, and the object is at generation 2"),
		},
	})
}

func TestOtherBuiltinKinds(t *testing.T) {
	t.Parallel()
	started := metav1.Now()
	ended := func(conditionType batchv1.JobConditionType, reason string) batchv1.JobStatus {
		return batchv1.JobStatus{StartTime: &started, Conditions: []batchv1.JobCondition{{Type: conditionType, Status: "True", Reason: reason}}}
	}
	job := func(spec batchv1.JobSpec, status batchv1.JobStatus) *batchv1.Job {
		return &batchv1.Job{ObjectMeta: at(1), Spec: spec, Status: status}
	}
	check(t, map[string]test{
		"job, created":   {job(batchv1.JobSpec{}, batchv1.JobStatus{}), progress("the Job has not started")},
		"job, suspended": {job(batchv1.JobSpec{Suspend: new(true)}, batchv1.JobStatus{}), progress("the Job is suspended")},
		"job, running": {
			job(batchv1.JobSpec{Completions: new(int32(3))}, batchv1.JobStatus{StartTime: &started, Active: 1, Succeeded: 1, Failed: 2}),
			progress("1 of 3 completions are done: 1 Pods are active, 2 have failed"),
		},
		"job, running, with a work queue": {
			job(batchv1.JobSpec{Parallelism: new(int32(3))}, batchv1.JobStatus{StartTime: &started, Active: 3}),
			progress("3 Pods are active, 0 have failed"),
		},
		"job, done":             {job(batchv1.JobSpec{}, ended("Complete", "")), current()},
		"job, failed":           {job(batchv1.JobSpec{}, ended("Failed", "BackoffLimitExceeded")), failed("the Job has failed: BackoffLimitExceeded")},
		"job, conditions False": {job(batchv1.JobSpec{}, batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: "Complete", Status: "False"}, {Type: "Failed", Status: "False"}}}), progress("the Job has not started")},
		"job, about to fail":    {job(batchv1.JobSpec{}, ended("FailureTarget", "")), progress("0 Pods are active, 0 have failed")},
		"cronjob":               {&batchv1.CronJob{ObjectMeta: at(1)}, current()},
		"claim, pending":        {&corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: "Pending"}}, progress("not bound to a volume: phase Pending")},
		"claim, new":            {&corev1.PersistentVolumeClaim{}, progress("not bound to a volume")},
		"claim, bound":          {&corev1.PersistentVolumeClaim{Status: corev1.PersistentVolumeClaimStatus{Phase: "Bound"}}, current()},
		"claim, lost":           {&corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v"}, Status: corev1.PersistentVolumeClaimStatus{Phase: "Lost"}}, failed("volume v is lost")},
		"service":               {&corev1.Service{}, current()},
		"load balancer, waits":  {&corev1.Service{Spec: corev1.ServiceSpec{Type: "LoadBalancer"}}, progress("the load balancer has no address")},
		"load balancer":         {&corev1.Service{Spec: corev1.ServiceSpec{Type: "LoadBalancer"}, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}}}, current()},
		"budget, met":           {&policyv1.PodDisruptionBudget{ObjectMeta: at(1), Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 2, CurrentHealthy: 3}}, current()},
		"budget, without Pods":  {&policyv1.PodDisruptionBudget{ObjectMeta: at(1), Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DesiredHealthy: 2}}, current()},
		"budget, not processed": {&policyv1.PodDisruptionBudget{ObjectMeta: at(1)}, progress("the controller has not processed it yet")},
		"budget, changed":       {&policyv1.PodDisruptionBudget{ObjectMeta: at(2), Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1}}, progress("the status is about generation 1, and the object is at generation 2")},
		"budget, Pods without controller": {
			&policyv1.PodDisruptionBudget{ObjectMeta: at(1), Status: policyv1.PodDisruptionBudgetStatus{Conditions: []metav1.Condition{
				{Type: policyv1.DisruptionAllowedCondition, Status: "False", Reason: policyv1.SyncFailedReason, Message: "found no controllers for pod web"},
			}}},
			progress("the number of allowed disruptions is unknown: SyncFailed: found no controllers for pod web"),
		},
		"budget, no disruption allowed": {
			&policyv1.PodDisruptionBudget{ObjectMeta: at(1), Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, Conditions: []metav1.Condition{
				{Type: policyv1.DisruptionAllowedCondition, Status: "False", Reason: policyv1.InsufficientPodsReason, ObservedGeneration: 1},
			}}},
			current(),
		},
		"namespace":         {&corev1.Namespace{Status: corev1.NamespaceStatus{Phase: "Active"}}, current()},
		"namespace, ending": {&corev1.Namespace{Status: corev1.NamespaceStatus{Phase: "Terminating"}}, state(readiness.Terminating, "it is being deleted")},
		"node":              {&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown"}}}}, progress("condition Ready is Unknown: NodeStatusUnknown")},
		"configmap":         {&corev1.ConfigMap{}, current()},
		"secret":            {&corev1.Secret{}, current()},
	})
}

func TestCustomKinds(t *testing.T) {
	t.Parallel()
	check(t, map[string]test{
		"without a status":   {custom(`{"metadata":{"generation":1},"spec":{}}`), current()},
		"without conditions": {custom(`{"metadata":{"generation":1},"status":{"observedGeneration":1}}`), current()},
		"not processed":      {custom(`{"metadata":{"generation":1},"status":{"observedGeneration":0}}`), progress("the controller has not processed it yet")},
		"kind without generation": {
			custom(`{"status":{"observedGeneration":4,"conditions":[{"type":"Ready","status":"True","observedGeneration":4}]}}`), current(),
		},
		"restored with its status": {
			custom(`{"metadata":{"generation":1},"status":{"observedGeneration":7}}`), progress("the status is about generation 7, and the object is at generation 1"),
		},
		"restored with its conditions": {
			custom(`{"metadata":{"generation":1},"status":{"conditions":[{"type":"Ready","status":"True","observedGeneration":7},{"type":"Stalled","status":"True","observedGeneration":7}]}}`),
			progress("condition Ready is about generation 7, and the object is at generation 1"),
		},
		"ready unknown": {
			custom(`{"metadata":{"generation":1},"status":{"conditions":[{"type":"Ready","status":"Unknown","observedGeneration":1}]}}`), progress("condition Ready is Unknown"),
		},
		"status of an earlier generation": {custom(`{"metadata":{"generation":3},"status":{"observedGeneration":2}}`), progress("the status is about generation 2, and the object is at generation 3")},
		"ready":                           {custom(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), current()},
		"not ready":                       {custom(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"NoDisk"}]}}`), progress("condition Ready is False: NoDisk")},
		"ready at an earlier generation": {
			custom(`{"metadata":{"generation":3},"status":{"conditions":[{"type":"Ready","status":"True","observedGeneration":2}]}}`),
			progress("condition Ready is about generation 2, and the object is at generation 3"),
		},
		"reconciling": {
			custom(`{"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Reconciling","status":"True","message":"working"}]}}`),
			progress("the controller is reconciling it: working"),
		},
		"stalled": {custom(`{"status":{"conditions":[{"type":"Stalled","status":"True","reason":"NoQuota"}]}}`), failed("stalled: NoQuota")},
		"stalled and reconciling": {
			custom(`{"status":{"conditions":[{"type":"Stalled","status":"True"},{"type":"Reconciling","status":"True"}]}}`), progress("the controller is reconciling it"),
		},
		"stalled at an earlier generation": {
			custom(`{"metadata":{"generation":3},"status":{"conditions":[{"type":"Stalled","status":"True","observedGeneration":2},{"type":"Ready","status":"False","observedGeneration":3}]}}`),
			progress("condition Ready is False"),
		},
		"not stalled": {custom(`{"status":{"conditions":[{"type":"Stalled","status":"False"},{"type":"Reconciling","status":"Unknown"}]}}`), current()},
		"being deleted": {
			custom(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["shop.example.com/disk"]},"status":{"conditions":[{"type":"Stalled","status":"True"}]}}`),
			state(readiness.Terminating, `it is being deleted, held by finalizers ["shop.example.com/disk"]`),
		},
		"unexpected types": {custom(`{"status":{"conditions":["yes",{"type":7}],"observedGeneration":"one"}}`), current()},

		"definition, established": {definition(`[{"type":"NamesAccepted","status":"True"},{"type":"Established","status":"True"}]`), current()},
		"definition, new":         {definition(`[]`), progress("condition Established is not reported yet")},
		"definition, installing":  {definition(`[{"type":"Established","status":"False","reason":"Installing"}]`), progress("condition Established is False: Installing")},
		"definition, refused": {
			definition(`[{"type":"NamesAccepted","status":"False","reason":"ListKindConflict"},{"type":"Established","status":"False"}]`),
			failed("its names are not accepted: ListKindConflict"),
		},
		"api service": {
			object(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","status":{"conditions":[{"type":"Available","status":"False","reason":"MissingEndpoints"}]}}`),
			progress("condition Available is False: MissingEndpoints"),
		},
		"same kind name in another group": {
			object(`{"apiVersion":"shop.example.com/v1","kind":"Deployment","metadata":{"generation":1}}`), current(),
		},
	})
}

func TestUnreadableObjects(t *testing.T) {
	t.Parallel()
	deleted := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
	check(t, map[string]test{
		"metadata only": {
			&metav1.PartialObjectMetadata{},
			progress("the status is unknown, because only the metadata was read: read the Go type or unstructured"),
		},
		"metadata only, being deleted": {deleted, state(readiness.Terminating, "it is being deleted")},
		"nil":                          {nil, progress("object does not exist")},
		"nil pointer":                  {(*corev1.Pod)(nil), progress("object does not exist")},
	})
}

type test struct {
	obj  kube.Object
	want readiness.State
}

// check compares the result of Of for the object and, if it is typed, for its unstructured form.
func check(t *testing.T, tests map[string]test) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, readiness.Of(test.obj)); diff != "" {
				t.Errorf("the state (-want +got):\n%s", diff)
			}
			kind, ok := apiobject.BuiltinKind(test.obj)
			if !ok || test.obj == kube.Object((*corev1.Pod)(nil)) {
				return
			}
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(test.obj)
			if err != nil {
				t.Fatal(err)
			}
			dynamic := &unstructured.Unstructured{Object: content}
			dynamic.SetGroupVersionKind(kind)
			if diff := cmp.Diff(test.want, readiness.Of(dynamic)); diff != "" {
				t.Errorf("the state as unstructured (-want +got):\n%s", diff)
			}
		})
	}
}

func object(content string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(content), &obj.Object); err != nil {
		panic(err)
	}
	return obj
}

func custom(content string) *unstructured.Unstructured {
	obj := object(content)
	obj.SetAPIVersion("shop.example.com/v1")
	obj.SetKind("Database")
	return obj
}

func definition(conditions string) *unstructured.Unstructured {
	return object(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","status":{"conditions":` + conditions + `}}`)
}
