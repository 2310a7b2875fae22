package predicate_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/predicate"
)

func TestTypes(t *testing.T) {
	t.Parallel()
	passes := predicate.Types(informer.Added, informer.Deleted)
	var got []informer.ChangeType
	for _, kind := range []informer.ChangeType{informer.Listed, informer.Added, informer.Updated, informer.Deleted} {
		if passes(informer.Change{Type: kind}) {
			got = append(got, kind)
		}
	}
	if diff := cmp.Diff([]informer.ChangeType{informer.Added, informer.Deleted}, got); diff != "" {
		t.Errorf("types that pass (-want +got):\n%s", diff)
	}
}

func TestFuncReceivesDecodedStates(t *testing.T) {
	t.Parallel()
	for format, encode := range encodings() {
		before, after := encode(t, newPod()), encode(t, changedPod(func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }))
		for name, test := range map[string]struct {
			change informer.Change
			want   string
		}{
			"listed":  {change(informer.Listed, nil, after), "- node-2"},
			"updated": {change(informer.Updated, before, after), "node-1 node-2"},
			"deleted": {change(informer.Deleted, before, nil), "node-1 -"},
		} {
			t.Run(format+"/"+name, func(t *testing.T) {
				t.Parallel()
				node := func(p *corev1.Pod) string {
					if p == nil {
						return "-"
					}
					return p.Spec.NodeName
				}
				for _, answer := range []bool{true, false} {
					var got string
					passes := predicate.Func(func(before, after *corev1.Pod) bool {
						got = node(before) + " " + node(after)
						return answer
					})
					if passes(test.change) != answer || got != test.want {
						t.Errorf("it was asked about %q, want %q, and has to answer %v", got, test.want, answer)
					}
				}
			})
		}
	}
}

func TestFuncPassesUndecodableChange(t *testing.T) {
	t.Parallel()
	wrong := encode(t, &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web"}, "spec": "not an object",
	}})
	passes := predicate.Func(func(_, _ *corev1.Pod) bool {
		t.Error("it was asked about what cannot be decoded")
		return false
	})
	if !passes(change(informer.Added, nil, wrong)) {
		t.Error("what cannot be decoded is dropped")
	}
}

func TestOrPassesWhatOnePasses(t *testing.T) {
	t.Parallel()
	yes, no := predicate.Types(informer.Added), predicate.Types(informer.Deleted)
	c := change(informer.Added, nil, encode(t, newPod()))
	for name, test := range map[string]struct {
		predicate informer.Predicate
		want      bool
	}{
		"without predicates": {predicate.Or(), false},
		"of false":           {predicate.Or(no, no), false},
		"stops at a true":    {predicate.Or(no, yes, mustNotRead(t)), true},
	} {
		if got := test.predicate(c); got != test.want {
			t.Errorf("%s: passes: %v, want %v", name, got, test.want)
		}
	}
}

// The caller may change its slice later.
func TestConstructorsCopySlices(t *testing.T) {
	t.Parallel()
	types := []informer.ChangeType{informer.Added}
	list := []informer.Predicate{predicate.Types(informer.Added)}
	predicates := []informer.Predicate{predicate.Types(types...), predicate.Or(list...)}
	types[0], list[0] = informer.Deleted, predicate.Types(informer.Deleted)
	for i, passes := range predicates {
		if !passes(change(informer.Added, nil, encode(t, newPod()))) {
			t.Errorf("number %d has changed", i)
		}
	}
}

func TestConstructorsPanicOnNil(t *testing.T) {
	t.Parallel()
	for want, make := range map[string]func(){
		"predicate.Func: the function is nil": func() { predicate.Func[*corev1.Pod](nil) },
		"predicate.Or: a predicate is nil":    func() { predicate.Or(nil) },
	} {
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("panic: %v, want %q", got, want)
				}
			}()
			make()
		}()
	}
}
