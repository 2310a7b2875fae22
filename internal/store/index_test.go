package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestIndexesFollowChanges(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	put(t, s, simple(t, "a", "1", "app=web", "o1"), simple(t, "b", "1", "app=web", "o1", "o2"), simple(t, "c", "1", ""))
	expectNames(t, s, labelled("app=web"), "a", "b")
	expectNames(t, s, Query{OwnerUID: "o1"}, "a", "b")

	put(t, s, simple(t, "a", "2", "app=db", "o2"))
	expectNames(t, s, labelled("app=web"), "b")
	expectNames(t, s, labelled("app=db"), "a")
	expectNames(t, s, labelled("app in (db,web)"), "a", "b")
	expectNames(t, s, Query{OwnerUID: "o1"}, "b")
	expectNames(t, s, Query{OwnerUID: "o2"}, "a", "b")

	// A newer state with equal labels and owners.
	put(t, s, simple(t, "a", "3", "app=db", "o2"))
	expectNames(t, s, labelled("app=db"), "a")
	expectNames(t, s, Query{OwnerUID: "o2"}, "a", "b")

	// Objects without labels and owners: one that had both, and one that gets both.
	put(t, s, simple(t, "b", "3", ""), simple(t, "c", "2", "app=web", "o2"))
	expectNames(t, s, labelled("app=web"), "c")
	expectNames(t, s, Query{OwnerUID: "o1"})
	expectNames(t, s, Query{OwnerUID: "o2"}, "a", "c")

	// The key and the slot of a deleted object are reused.
	s.Delete(simpleKey("a"))
	expectNames(t, s, labelled("app=db"))
	put(t, s, simple(t, "a", "9", "app=web"))
	expectNames(t, s, labelled("app=web"), "a", "c")
	expectNames(t, s, Query{OwnerUID: "o2"}, "c")
	expectNames(t, s, Query{Namespace: "default"}, "a", "b", "c")
	expectNames(t, s, Query{Namespace: "other"})
}

func TestUserIndexes(t *testing.T) {
	t.Parallel()
	calls := 0
	errBroken := errors.New("broken")
	s := New(Config{Indexes: []Index{
		{Name: "version", Values: func(o *wire.Object) ([]string, error) {
			calls++
			return []string{o.ResourceVersion, "any"}, nil
		}},
		{Name: "moody", Values: func(o *wire.Object) ([]string, error) {
			if o.ResourceVersion == "2" {
				return []string{"lost"}, errBroken
			}
			return []string{"any"}, nil
		}},
	}})
	put(t, s, simple(t, "a", "1", ""), simple(t, "b", "1", ""))
	_, replaced, err := s.Put(simple(t, "a", "2", ""))
	if !errors.Is(err, errBroken) || !replaced || !strings.Contains(err.Error(), `"moody"`) || !strings.Contains(err.Error(), "default/a") {
		t.Errorf("Put with a broken index: replaced %t, error %v", replaced, err)
	}
	expectNames(t, s, Query{Index: "version", Value: "1"}, "b")
	expectNames(t, s, Query{Index: "version", Value: "2"}, "a")
	expectNames(t, s, Query{Index: "version", Value: "any", Namespace: "default"}, "a", "b")
	expectNames(t, s, Query{Index: "moody", Value: "any"}, "b")
	expectNames(t, s, Query{Index: "moody", Value: "lost"})
	if calls != 3 {
		t.Errorf("the function was called %d times for 3 objects that were put", calls)
	}
}

func TestObjectInManyIndexes(t *testing.T) {
	t.Parallel()
	var config Config
	const n = 20
	for i := range n {
		config.Indexes = append(config.Indexes, Index{Name: fmt.Sprint(i), Values: func(o *wire.Object) ([]string, error) {
			return []string{fmt.Sprint(o.ResourceVersion, " in ", i)}, nil
		}})
	}
	s := New(config)
	put(t, s, simple(t, "a", "1", ""), simple(t, "b", "1", ""))
	put(t, s, simple(t, "a", "2", ""))
	for i := range n {
		expectNames(t, s, Query{Index: fmt.Sprint(i), Value: fmt.Sprint("1 in ", i)}, "b")
		expectNames(t, s, Query{Index: fmt.Sprint(i), Value: fmt.Sprint("2 in ", i)}, "a")
	}
	checkAll(t, s)
}

func TestInvalidQueries(t *testing.T) {
	t.Parallel()
	s := New(Config{Indexes: modelIndexes()})
	put(t, s, simple(t, "a", "1", ""))
	for name, q := range map[string]Query{
		"an unknown index":      {Index: "missing", Value: "x"},
		"a value without index": {Value: "x"},
	} {
		for _, from := range []asker{s, s.Snapshot()} {
			if n, err := from.Count(q); err == nil || n != 0 {
				t.Errorf("%s: Count is %d, error %v", name, n, err)
			}
			yields := 0
			for o, err := range objectsOf(from, q) {
				if yields++; o != nil || err == nil {
					t.Errorf("%s: List has %v, error %v", name, o, err)
				}
			}
			if yields != 1 {
				t.Errorf("%s: List yields %d times", name, yields)
			}
		}
	}
}

// TestWritesDuringIndexBuild writes before, during and after the build of an index.
func TestWritesDuringIndexBuild(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before", "after"} {
		s := New(Config{})
		for _, name := range []string{"same", "other", "without", "with", "gone", "again"} {
			put(t, s, simple(t, name, "1", map[bool]string{true: "app=web", false: ""}[name != "with"]))
		}
		write := func() {
			put(t, s, simple(t, "same", "2", "app=web"), simple(t, "other", "2", "app=db"), simple(t, "without", "2", ""),
				simple(t, "with", "2", "app=web"), simple(t, "new", "1", "app=web"))
			s.Delete(simpleKey("gone"))
			s.Delete(simpleKey("again"))
			put(t, s, simple(t, "in the slot of again", "1", "app=db"), simple(t, "again", "2", "app=web"))
		}
		requirements, _, _ := indexable(labelled("app=web").Labels)
		b := s.beginBuild(requirements)
		if when == "before" {
			write()
		}
		b.enter()
		if when == "after" {
			write()
		}
		b.finish()
		expectNames(t, s, labelled("app=web"), "again", "new", "same", "with")
		expectNames(t, s, labelled("app=db"), "in the slot of again", "other")
		if s.beginBuild(requirements) != nil {
			t.Error("the index is built twice")
		}
		put(t, s, simple(t, "other", "3", "app=web"))
		expectNames(t, s, labelled("app=web"), "again", "new", "other", "same", "with")
	}
}

func TestLabelIndexesAreLimited(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	put(t, s, simple(t, "a", "1", "last=x"), simple(t, "b", "1", "last=y"))
	for i := range maxLabelIndexes + 3 {
		expectNames(t, s, labelled(fmt.Sprint("k", i, "=x")))
	}
	expectNames(t, s, labelled("last=x"), "a") // without an index
	if n := len(s.terms.labels); n != maxLabelIndexes {
		t.Errorf("there are %d indexes of labels, want %d", n, maxLabelIndexes)
	}
}

// TestLabelsAreIndexedOnFirstUse also checks that Count reads no objects if indexes are sufficient.
func TestLabelsAreIndexedOnFirstUse(t *testing.T) {
	t.Parallel()
	s := New(Config{Indexes: modelIndexes()})
	put(t, s, simple(t, "a", "1", "app=web", "o1"), simple(t, "b", "1", "app=web,tier=x"))
	expectNames(t, s, Query{Namespace: "default"}, "a", "b")
	expectNames(t, s, labelled("app!=web"))
	expectNames(t, s, labelled("app"), "a", "b")
	if len(s.terms.labels) != 0 {
		t.Errorf("unused labels are indexed: %v", s.terms.labels)
	}
	expectNames(t, s, labelled("app=web,tier=x"), "b")
	for slot, record := range s.records() { // from now on no object can be read
		h := parse(record)
		s.setRecord(slot, record[:len(record)-len(h.payload)])
	}
	for want, q := range map[int]Query{
		2: {Namespace: "default"}, 1: {OwnerUID: "o1"}, 0: {Index: "first", Value: "v1"},
	} {
		if n, err := s.Count(q); n != want || err != nil {
			t.Errorf("Count(%+v) is %d, %v; want %d, without reading", q, n, err, want)
		}
	}
	q := labelled("app=web,tier in (x,y)")
	q.Namespace = "default"
	if n, err := s.Count(q); n != 1 || err != nil {
		t.Errorf("Count of labels is %d, %v; want 1, without reading", n, err)
	}
}

// These updates must not read labels and owners.
func TestUpdatesWithoutIndexChange(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: "a", UID: "u", ResourceVersion: "1", Generation: 1, Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{{UID: "o1"}},
	}}
	s := New(Config{})
	for format, object := range map[string]func(*corev1.Pod) *wire.Object{
		"protobuf": func(p *corev1.Pod) *wire.Object { return object(t, p) },
		"JSON":     func(p *corev1.Pod) *wire.Object { return object(t, &jsonPod{*p}) },
	} {
		state := func(change func(*corev1.Pod)) uint64 {
			changed := pod.DeepCopy()
			change(changed)
			f, err := s.facts(object(changed))
			if err != nil || f.read {
				t.Fatalf("%s: labels and owners were decoded (%t), %v", format, f.read, err)
			}
			return f.state
		}
		before := state(func(*corev1.Pod) {})
		for name, same := range map[string]func(*corev1.Pod){
			"resource version": func(p *corev1.Pod) { p.ResourceVersion = "123456" },
			"annotations":      func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
			"generation":       func(p *corev1.Pod) { p.Generation++ },
			"status":           func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
			"spec":             func(p *corev1.Pod) { p.Spec.NodeName = "n" },
		} {
			if state(same) != before {
				t.Errorf("%s: a change of %s changes the indexes", format, name)
			}
		}
		for name, other := range map[string]func(*corev1.Pod){
			"labels":    func(p *corev1.Pod) { p.Labels["app"] = "db" },
			"no labels": func(p *corev1.Pod) { p.Labels = nil },
			"owners":    func(p *corev1.Pod) { p.OwnerReferences[0].UID = "o2" },
			"no owners": func(p *corev1.Pod) { p.OwnerReferences = nil },
		} {
			if state(other) == before {
				t.Errorf("%s: a change of %s does not change the indexes", format, name)
			}
		}
	}
}

func TestPostings(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	var p posting
	model := map[uint32]bool{}
	for i := range 100_000 {
		slot := random.Uint32N(20_000)
		if i > 50_000 && i < 85_000 || random.IntN(3) == 0 {
			p.remove(slot)
			delete(model, slot)
		} else {
			p.add(slot)
			model[slot] = true
		}
		if p.contains(slot) != model[slot] || p.n != len(model) {
			t.Fatalf("%d: contains %t, want %t; %d slots, want %d", slot, p.contains(slot), model[slot], p.n, len(model))
		}
	}
	if diff := cmp.Diff(slices.Sorted(maps.Keys(model)), p.appendTo(nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, block := range p.blocks {
		if len(block) == 0 || len(block) > blockSize {
			t.Errorf("a block has %d slots", len(block))
		}
	}
	var rising posting
	for slot := range uint32(10_000) {
		rising.add(slot)
	}
	if got := len(rising.blocks); got > 10_000/blockSize+1 {
		t.Errorf("10000 rising slots take %d blocks", got)
	}
}

// TestFullBlocksAreSplit inserts at every position of a full block.
func TestFullBlocksAreSplit(t *testing.T) {
	t.Parallel()
	for place := range uint32(blockSize + 1) {
		var p posting
		var want []uint32
		for slot := range uint32(blockSize + 9) { // even slots, so that there is room between
			p.add(2 * slot)
			want = append(want, 2*slot)
		}
		slot := 2*place + 1
		p.add(slot)
		want = slices.Sorted(slices.Values(append(want, slot)))
		if diff := cmp.Diff(want, p.appendTo(nil)); diff != "" || p.n != len(want) {
			t.Fatalf("%d is put at %d (-want +got):\n%s", slot, place, diff)
		}
	}
}

func TestRemoveKeepsTermsOfOtherSlots(t *testing.T) {
	t.Parallel()
	x := newInverted()
	x.add(1, 5)
	x.remove(1, 6)
	if !x.of(1).contains(5) || x.of(1).contains(6) || x.of(2).contains(5) {
		t.Error("the slot of another term was removed")
	}
	x.remove(1, 5)
	if x.of(1).size() != 0 {
		t.Error("the slot was not removed")
	}
}

func TestRequirementWithDuplicateValue(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	put(t, s, simple(t, "a", "1", "app=web"), simple(t, "b", "1", "app=api"), simple(t, "c", "1", ""))
	r, err := labels.NewRequirement("app", selection.In, []string{"web", "api", "web"})
	if err != nil {
		t.Fatal(err)
	}
	expectNames(t, s, Query{Labels: labels.NewSelector().Add(*r)}, "a", "b")
}

// Equal bytes of owner references may be read differently, depending on the rest of the object. An index must not keep
// the old owners then.
func TestOwnersThatDependOnOtherFields(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	// The typed decoder reads the owner u here. Below it fails because of the annotation, and the other decoder is
	// used, which reads no owner.
	put(t, s, parsed(t, `{"metadata":{"name":"a","ownerReferences":[{"uid":"u"}],"ownerReferences":[{"name":"x"}]}}`))
	expectNames(t, s, Query{OwnerUID: "u"}, "a")
	put(t, s, parsed(t, `{"metadata":{"name":"a","ownerReferences":[{"uid":"u"}],"ownerReferences":[{"name":"x"}],"annotations":{"b":1}}}`))
	expectNames(t, s, Query{OwnerUID: "u"})
	s.Delete(kube.Key{Name: "a"})
	expectNames(t, s, Query{OwnerUID: "u"})
}

func parsed(tb testing.TB, data string) *wire.Object {
	tb.Helper()
	o, err := wire.Parse([]byte(data), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}
