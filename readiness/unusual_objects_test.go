package readiness_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// wrapped is an Object that is not a pointer.
type wrapped struct{ *corev1.ConfigMap }

// labelled is an interface that Pods do not implement.
type labelled interface {
	kube.Object
	Labelled() bool
}

// recipe is a custom kind with unexported fields.
type recipe struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	seen   metav1.Time
	amount resource.Quantity
	Status struct {
		Total      uint64             `json:"total,omitempty"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status"`
}

func (r *recipe) DeepCopyObject() runtime.Object { copied := *r; return &copied }

// Unexported fields are not part of the object, even if their types implement json.Marshaler.
func TestUnexportedFieldsIgnored(t *testing.T) {
	t.Parallel()
	r := &recipe{ObjectMeta: at(3), seen: metav1.Now(), amount: resource.MustParse("3")}
	r.Status.Total = 1 << 63
	r.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 2}}
	want := progress("condition Ready is about generation 2, and the object is at generation 3")
	if diff := cmp.Diff(want, readiness.Of(r)); diff != "" {
		t.Errorf("the state (-want +got):\n%s", diff)
	}
	r.Status.Conditions[0].ObservedGeneration = 3
	if got := readiness.Ready(r); !got.Ready() {
		t.Errorf("the state is %s", got)
	}
}

// A Check without a status must not end a wait, and an unusual object must not cause a panic.
func TestInvalidStatesAndUnusualObjects(t *testing.T) {
	t.Parallel()
	yes := func(kube.Object) readiness.State { return current() }
	silent := func(kube.Object) readiness.State { return readiness.State{} }
	custom := func(kube.Object) readiness.State { return state("Warming", "it is warming up") }
	for name, test := range map[string]struct {
		check readiness.Check
		obj   kube.Object
		want  readiness.State
	}{
		"all, check without a status":       {readiness.All(yes, silent), nil, progress("a check returned no status")},
		"all, check with an unknown status": {readiness.All(custom, yes), nil, progress("it is warming up")},
		"when, interface type":              {readiness.When("x", func(labelled) bool { return true }), &corev1.Pod{}, failed("the check requires a readiness_test.labelled, the object is a *v1.Pod")},
		"object is not a pointer":           {readiness.Of, wrapped{&corev1.ConfigMap{}}, failed("the object cannot be read: type readiness_test.wrapped is not a pointer to a struct")},
		"empty unstructured":                {readiness.Of, &unstructured.Unstructured{}, current()},
		"empty unstructured, condition":     {readiness.Condition("Ready", metav1.ConditionTrue), &unstructured.Unstructured{}, progress("condition Ready is not reported yet")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.check(test.obj)); diff != "" {
				t.Errorf("the state (-want +got):\n%s", diff)
			}
		})
	}
}
