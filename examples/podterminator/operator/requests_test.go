package operator

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
)

func TestAPodThatTookTheNameOfAVictimIsNotTouched(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1)
	op, err := New(asOperator(t, nil), Config{})
	if err != nil {
		t.Fatal(err)
	}
	pt := f.terminator(100, time.Hour)
	another := []v1alpha1.PodReference{{Name: "web-0", UID: "another"}}

	if err := op.mark(t.Context(), pt, another); err != nil {
		t.Errorf("mark: %v", err)
	}
	if marked := f.marked(); len(marked) > 0 {
		t.Errorf("Pods %v are marked", marked)
	}
	if err := op.end(t.Context(), pt, another); err != nil {
		t.Errorf("end: %v", err)
	}
	if n := len(f.alive(t.Context())); n != 1 {
		t.Error("the other Pod was ended")
	}
	own := `{"metadata":{"annotations":{"chaos.evenkeel.dev/victim-of":"chaos"}}}`
	if _, err := f.pods.Patch(t.Context(), "web-0", types.MergePatchType, []byte(own), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := op.unmark(t.Context(), pt, another); err != nil {
		t.Errorf("unmark: %v", err)
	}
	if n := len(f.marked()); n != 1 {
		t.Error("the mark was taken off the other Pod")
	}
}

func TestAStatusIsOnlyWrittenOverTheOneThatWasRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 0)
	op, err := New(asOperator(t, nil), Config{})
	if err != nil {
		t.Fatal(err)
	}
	read := f.create(f.terminator(100, time.Hour))
	f.patch(types.MergePatchType, `{"spec":{"percent":1}}`)
	if _, err := op.writeStatus(t.Context(), read, &v1alpha1.PodTerminatorStatus{Rounds: 9}); !apierrors.IsConflict(err) {
		t.Errorf("writing over a newer object: %v, want a conflict", err)
	}
	if _, err := op.ensureFinalizer(t.Context(), read); !apierrors.IsInvalid(err) {
		t.Errorf("adding a finalizer to a newer object: %v, want the patch's test to fail", err)
	}
	if got := f.get(t.Context()); got.Status.Rounds != 0 || len(got.Finalizers) != 0 {
		t.Errorf("the object has changed: %+v", got)
	}
}
