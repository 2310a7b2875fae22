package store

import (
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// simple returns a Pod in the namespace "default" with labels such as "app=web,tier=a".
func simple(tb testing.TB, name, version, labelled string, owners ...types.UID) *wire.Object {
	tb.Helper()
	set, err := labels.ConvertSelectorToLabelsMap(labelled)
	if err != nil {
		tb.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid of " + name), ResourceVersion: version, Labels: set}}
	for _, owner := range owners {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: "Job", Name: "job", UID: owner})
	}
	return object(tb, pod)
}

func simpleKey(name string) kube.Key { return kube.Key{Namespace: "default", Name: name} }

// names returns the names of the objects that q selects. It fails the test if Count disagrees.
func names(tb testing.TB, s asker, q Query) []string {
	tb.Helper()
	all := []string{}
	for o, err := range objectsOf(s, q) {
		if err != nil {
			tb.Fatalf("Find(%+v): %v", q, err)
		}
		all = append(all, o.Key.Name)
	}
	slices.Sort(all)
	if n, err := s.Count(q); n != len(all) || err != nil {
		tb.Errorf("Count(%+v) is %d, %v, but List has %d", q, n, err, len(all))
	}
	return all
}

func expectNames(tb testing.TB, s asker, q Query, want ...string) {
	tb.Helper()
	if diff := cmp.Diff(append([]string{}, want...), names(tb, s, q)); diff != "" {
		tb.Errorf("Find(%+v) (-want +got):\n%s", q, diff)
	}
}

func labelled(set string) Query {
	selector, err := labels.Parse(set)
	if err != nil {
		panic(err)
	}
	return Query{Labels: selector}
}

// checkAll compares the indexes with the slots.
func checkAll(tb testing.TB, s *Store) {
	tb.Helper()
	live, raw := 0, int64(0)
	owners, values := newInverted(), newInverted()
	for slot := range s.records() {
		r, _ := s.ref(slot, s.pool)
		live++
		got, found := s.Get(r.Key())
		if !found || got != r {
			tb.Errorf("%s is in slot %d, but Get has another: %t", r.Key(), slot, found)
		}
		if !r.namespace.objects.contains(slot) {
			tb.Errorf("%s is not in its namespace", r.Key())
		}
		f := s.mustFacts(r)
		for _, owner := range f.owners {
			owners.add(s.hashes.term(string(owner)), slot)
		}
		h := r.header
		if err := r.Read(func(o *wire.Object) error { raw += int64(len(o.Bytes)); return nil }); err != nil {
			tb.Error(err)
		}
		for i := range h.valueCount() {
			if i > 0 && h.value(i-1) >= h.value(i) {
				tb.Errorf("the values of %s are not sorted", r.Key())
			}
			values.add(h.value(i), slot)
		}
	}
	if live != s.Len() || raw != s.Sizes().Raw {
		tb.Errorf("the slots have %d objects of %d B, but Len is %d, Raw is %d", live, raw, s.Len(), s.Sizes().Raw)
	}
	if diff := cmp.Diff(owners.flat(), s.terms.owners.flat()); diff != "" {
		tb.Errorf("owners (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(values.flat(), s.terms.values.flat()); diff != "" {
		tb.Errorf("values (-want +got):\n%s", diff)
	}
}

func (x *inverted) flat() map[uint64][]uint32 {
	all := map[uint64][]uint32{}
	for term, slot := range x.singles {
		all[term] = []uint32{slot}
	}
	for term, list := range x.lists {
		all[term] = list.appendTo(nil)
	}
	return all
}

// finder is a Store or a Snapshot.
type finder interface {
	Find(q Query) iter.Seq2[*Found, error]
}

// objectsOf iterates over the objects that q selects.
func objectsOf(from finder, q Query) iter.Seq2[*wire.Object, error] {
	return func(yield func(*wire.Object, error) bool) {
		for found, err := range from.Find(q) {
			var o *wire.Object
			if err == nil {
				o, err = found.Object()
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}
