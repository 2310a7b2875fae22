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

// wrapped is an Object that is no pointer.
type wrapped struct{ *corev1.ConfigMap }

// labelled is what some objects are, and others are not.
type labelled interface {
	kube.Object
	Labelled() bool
}

// recipe is of a kind of somebody's own, with fields of the program's own.
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

// What is not exported is not part of the object, whatever its type can do.
func TestFieldsOfTheProgramsOwn(t *testing.T) {
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

// Who waits must not go on because a Check of somebody's has said nothing, or panic because of an
// odd object.
func TestOddChecksAndObjects(t *testing.T) {
	t.Parallel()
	yes := func(kube.Object) readiness.State { return current() }
	silent := func(kube.Object) readiness.State { return readiness.State{} }
	odd := func(kube.Object) readiness.State { return is("Warming", "it is warming up") }
	for name, test := range map[string]struct {
		check readiness.Check
		obj   kube.Object
		want  readiness.State
	}{
		"all, of a check that says nothing":         {readiness.All(yes, silent), nil, progress("a check says nothing of its status")},
		"all, of a check with a status of its own":  {readiness.All(odd, yes), nil, progress("it is warming up")},
		"any, of a check with a status of its own":  {readiness.Any(odd), nil, progress("it is warming up")},
		"when, for an interface":                    {readiness.When("x", func(labelled) bool { return true }), &corev1.Pod{}, failed("the check is for a readiness_test.labelled, and the object is a *v1.Pod")},
		"an object that is no pointer":              {readiness.Of, wrapped{&corev1.ConfigMap{}}, failed("the object cannot be read: it is a readiness_test.wrapped, and no pointer to a struct")},
		"an object that is no pointer, of a kind":   {readiness.RolledOut, wrapped{&corev1.ConfigMap{}}, failed("a readiness_test.wrapped cannot be rolled out")},
		"unstructured, with nothing in it":          {readiness.Of, &unstructured.Unstructured{}, current()},
		"unstructured, with nothing in it, by name": {readiness.Condition("Ready", metav1.ConditionTrue), &unstructured.Unstructured{}, progress("condition Ready is not reported yet")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, test.check(test.obj)); diff != "" {
				t.Errorf("the state (-want +got):\n%s", diff)
			}
		})
	}
}
