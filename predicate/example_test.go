package predicate_test

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
)

// update returns an Updated as an informer delivers it.
func update(before, after kube.Object) informer.Change {
	c, err := informer.NewChange(informer.Updated, before.GetObjectKind().GroupVersionKind(), before, after)
	if err != nil {
		panic(err)
	}
	return c
}

func deployment(generation int64, ready int32, labels map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Generation: generation, Labels: labels},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: ready},
	}
}

// A handler that reads the spec and the labels does not run for its own writes of the status.
func ExampleGenerationChanged() {
	passes := predicate.Or(predicate.GenerationChanged(), predicate.Changed(kube.ChangedLabels))
	before := deployment(1, 0, nil)
	fmt.Println("status:", passes(update(before, deployment(1, 3, nil))))
	fmt.Println("labels:", passes(update(before, deployment(1, 0, map[string]string{"tier": "front"}))))
	fmt.Println("spec:", passes(update(before, deployment(2, 0, nil))))
	// Output:
	// status: false
	// labels: true
	// spec: true
}

// A handler that waits until another controller removes a finalizer.
func ExampleOr() {
	passes := predicate.Or(predicate.GenerationChanged(), predicate.Changed(kube.ChangedFinalizers))
	before := deployment(1, 0, nil)
	before.Finalizers = []string{"example.com/backup"}
	fmt.Println("finalizer removed:", passes(update(before, deployment(1, 0, nil))))
	// Output:
	// finalizer removed: true
}

// Compare a single field of the status.
func ExampleFunc() {
	readyChanged := predicate.Func(func(before, after *appsv1.Deployment) bool {
		return before == nil || after == nil || before.Status.ReadyReplicas != after.Status.ReadyReplicas
	})
	statusChanged := predicate.StatusChanged[*appsv1.Deployment]()
	passes := func(c informer.Change) bool {
		return statusChanged(c) && readyChanged(c) // in this order, because the first one does not decode
	}
	before := deployment(1, 1, nil)
	available := deployment(1, 1, nil)
	available.Status.AvailableReplicas = 1
	fmt.Println("one is available:", passes(update(before, available)))
	fmt.Println("two are ready:", passes(update(before, deployment(1, 2, nil))))
	// Output:
	// one is available: false
	// two are ready: true
}

// A Node has no generations, and its status changes every few minutes.
func ExampleSpecChanged() {
	passes := predicate.Or(predicate.SpecChanged[*corev1.Node](), predicate.Changed(kube.ChangedLabels))
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "1"}}
	heartbeat, cordoned := before.DeepCopy(), before.DeepCopy()
	heartbeat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Unix(1790000000, 0)}}
	cordoned.Spec.Unschedulable = true
	fmt.Println("heartbeat:", passes(update(before, heartbeat)))
	fmt.Println("cordoned:", passes(update(before, cordoned)))
	// Output:
	// heartbeat: false
	// cordoned: true
}
