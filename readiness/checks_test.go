package readiness_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

func TestChecks(t *testing.T) {
	t.Parallel()
	yes := func(kube.Object) readiness.State { return current() }
	no := func(kube.Object) readiness.State { return progress("not yet") }
	never := func(kube.Object) readiness.State { return failed("never") }
	terminating := func(kube.Object) readiness.State { return state(readiness.Terminating, "terminating") }
	warm := readiness.Condition("Warm", metav1.ConditionTrue)
	cold := readiness.Condition("Warm", metav1.ConditionFalse)
	hasData := readiness.When("it has no data", func(obj *corev1.ConfigMap) bool { return len(obj.Data) > 0 })
	deleted := custom(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"conditions":[{"type":"Warm","status":"True"}]}}`)
	for name, test := range map[string]struct {
		check readiness.Check
		obj   kube.Object
		want  readiness.State
	}{
		"condition": {warm, custom(`{"status":{"conditions":[{"type":"Warm","status":"True"}]}}`), current()},
		"condition, with another status": {
			warm, custom(`{"status":{"conditions":[{"type":"Warm","status":"False","reason":"Off"}]}}`), progress("condition Warm is False: Off"),
		},
		"condition False":   {cold, custom(`{"status":{"conditions":[{"type":"Warm","status":"False"}]}}`), current()},
		"condition missing": {cold, custom(`{}`), progress("condition Warm is not reported yet")},
		"condition of an earlier generation": {
			warm, custom(`{"metadata":{"generation":2},"status":{"conditions":[{"type":"Warm","status":"True","observedGeneration":1}]}}`),
			progress("condition Warm is about generation 1, and the object is at generation 2"),
		},
		"condition in a status of an earlier generation": {
			warm, custom(`{"metadata":{"generation":2},"status":{"observedGeneration":1,"conditions":[{"type":"Warm","status":"True"}]}}`),
			progress("the status is about generation 1, and the object is at generation 2"),
		},
		"condition that is newer than the rest of the status": {
			warm, custom(`{"metadata":{"generation":2},"status":{"observedGeneration":1,"conditions":[{"type":"Warm","status":"True","observedGeneration":2}]}}`),
			current(),
		},
		"ready": {readiness.Ready, custom(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), current()},
		"not ready": {
			readiness.Ready, custom(`{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Busy","message":"working"}]}}`), progress("condition Ready is False: Busy: working"),
		},
		"ready, condition missing": {readiness.Ready, custom(`{}`), progress("condition Ready is not reported yet")},
		"ready, stalled": {
			readiness.Ready, custom(`{"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Stalled","status":"True","message":"no such bucket"}]}}`),
			failed("stalled: no such bucket"),
		},
		"condition of a terminating object": {warm, deleted, state(readiness.Terminating, "it is being deleted")},
		"condition of metadata": {
			warm, &metav1.PartialObjectMetadata{},
			progress("the status is unknown, because only the metadata was read: read the Go type or unstructured"),
		},
		"condition, nil": {warm, nil, progress("object does not exist")},

		"when":                  {hasData, &corev1.ConfigMap{Data: map[string]string{"a": "b"}}, current()},
		"when, false":           {hasData, &corev1.ConfigMap{}, progress("it has no data")},
		"when, of another type": {hasData, &corev1.Pod{}, failed("the check requires a *v1.ConfigMap, the object is a *v1.Pod")},
		"when, nil function":    {readiness.When[*corev1.Pod]("x", nil), &corev1.Pod{}, failed(`the function of the check ("x") is nil`)},
		"when, nil object":      {hasData, (*corev1.ConfigMap)(nil), progress("object does not exist")},

		"all":                  {readiness.All(yes, yes), nil, current()},
		"all without checks":   {readiness.All(), nil, current()},
		"all, one in progress": {readiness.All(yes, no), nil, progress("not yet")},
		"all, the worst":       {readiness.All(no, never, terminating), nil, failed("not yet; never; terminating")},
		"all, terminating":     {readiness.All(no, terminating), nil, state(readiness.Terminating, "not yet; terminating")},
		"all, with a nil":      {readiness.All(yes, nil), nil, failed("check 2 of 2 is nil")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.check(test.obj)); diff != "" {
				t.Errorf("the state (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStateString(t *testing.T) {
	t.Parallel()
	if got := current().String(); got != "Current" || !current().Ready() {
		t.Errorf("current is %q, ready %v", got, current().Ready())
	}
	if got := progress("working").String(); got != "InProgress: working" || progress("working").Ready() {
		t.Errorf("in progress is %q, ready %v", got, progress("working").Ready())
	}
}

func ExampleOf() {
	web := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Generation: 4},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3))},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 2},
	}
	fmt.Println(readiness.Of(web))

	web.Status.AvailableReplicas = 3
	fmt.Println(readiness.Of(web))

	web.Generation = 5 // the spec has changed, and the status describes the old one
	fmt.Println(readiness.Of(web))
	// Output:
	// InProgress: 2 of 3 replicas are available
	// Current
	// InProgress: the status is about generation 4, and the object is at generation 5
}

func ExampleAll() {
	hasAddress := readiness.When("it has no address", func(s *corev1.Service) bool { return s.Spec.ClusterIP != "" })
	notPaused := readiness.When("it is paused", func(s *corev1.Service) bool {
		return s.Annotations["shop.example.com/paused"] == ""
	})
	check := readiness.All(readiness.Of, hasAddress, notPaused)

	web := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"shop.example.com/paused": "yes"}}}
	fmt.Println(check(web))
	// Output:
	// InProgress: it has no address; it is paused
}
