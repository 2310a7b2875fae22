package operator

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/examples/podterminator/api/v1alpha1"
)

func TestPodWithNameOfVictimIsNotChanged(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
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
		ended, err := op.deletePods(t.Context(), pt, append(another, v1alpha1.PodReference{Name: "gone", UID: "gone"}))
		if err != nil || len(ended) != 0 {
			t.Errorf("deletePods returned %v and the error %v; want neither", ended, err)
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
			t.Error("the mark of the other Pod was removed")
		}
	})
}

func TestUnmarkKeepsForeignMarks(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 1)
		writes := 0
		refusing := func(config *rest.Config) {
			config.Wrap(func(next http.RoundTripper) http.RoundTripper {
				return roundTripper(func(request *http.Request) (*http.Response, error) {
					if request.Method == http.MethodGet {
						return next.RoundTrip(request)
					}
					writes++
					return &http.Response{
						StatusCode: http.StatusUnprocessableEntity, Request: request, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":422,"reason":"Invalid","message":"refused by a webhook"}`)),
					}, nil
				})
			})
		}
		op, err := New(asOperator(t, refusing), Config{})
		if err != nil {
			t.Fatal(err)
		}
		pods := f.references()
		pt := f.terminator(100, time.Hour)
		if err := op.unmark(t.Context(), pt, pods); err != nil || writes != 0 {
			t.Errorf("unmark a Pod without a mark: %d writes, error %v; want neither", writes, err)
		}
		own := `{"metadata":{"annotations":{"chaos.evenkeel.dev/victim-of":"chaos"}}}`
		if _, err := f.pods.Patch(t.Context(), "web-0", types.MergePatchType, []byte(own), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := op.unmark(t.Context(), pt, pods); !apierrors.IsInvalid(err) {
			t.Errorf("unmark with a rejected patch: %v, want the rejection", err)
		}
	})
}

func TestCensusIsCurrent(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 4)
		op, err := New(asOperator(t, nil), Config{})
		if err != nil {
			t.Fatal(err)
		}
		pt := f.terminator(100, time.Hour)
		pt.Status.Plan = &v1alpha1.Plan{Victims: f.references()}
		// One Pod was deleted, one is not selected any more: neither is alive, and one of them exists.
		if err := f.pods.Delete(t.Context(), "web-0", *metav1.NewDeleteOptions(0)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.pods.Patch(t.Context(), "web-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"db"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		pods, err := op.count(t.Context(), pt, labels.SelectorFromSet(labels.Set{"app": "web"}))
		if err != nil {
			t.Fatal(err)
		}
		end, gone, spare := classifyVictims(pt.Status.Plan.Victims, pods, 1)
		got := map[string][]string{"alive": names(pods.alive), "end": names(end), "gone": names(gone), "spare": names(spare)}
		want := map[string][]string{"alive": {"web-2", "web-3"}, "end": {"web-2"}, "gone": {"web-0"}, "spare": {"web-1", "web-3"}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("census and quota (-want +got):\n%s", diff)
		}
	})
}

func names(pods []v1alpha1.PodReference) []string {
	var out []string
	for _, p := range pods {
		out = append(out, p.Name)
	}
	return out
}

func TestWriteStatusDetectsConcurrentChange(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t place) {
		f := newFixture(t, 0)
		op, err := New(asOperator(t, nil), Config{})
		if err != nil {
			t.Fatal(err)
		}
		read := f.create(f.terminator(100, time.Hour))
		f.patch(types.MergePatchType, `{"spec":{"percent":1}}`)
		if _, err := op.writeStatus(t.Context(), read, &v1alpha1.PodTerminatorStatus{Rounds: 9}); !apierrors.IsConflict(err) {
			t.Errorf("write over a newer object: %v, want a conflict", err)
		}
		if _, err := op.ensureFinalizer(t.Context(), read); !apierrors.IsInvalid(err) {
			t.Errorf("add a finalizer to a newer object: %v, want the patch's test to fail", err)
		}
		if got := f.get(t.Context()); got.Status.Rounds != 0 || len(got.Finalizers) != 0 {
			t.Errorf("the object has changed: %+v", got)
		}
	})
}
