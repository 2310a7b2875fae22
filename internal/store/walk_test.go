package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// walk applies the same random operations to a store and to its model.
type walk struct {
	*testing.T
	random  *rand.Rand
	store   *Store
	model   model
	indexed []Index
	exact   bool // no hashes of terms collide
	added   bool // an index was added

	refs      []keptRef
	snapshots []keptSnapshot
}

type keptRef struct {
	ref  Ref
	want *wire.Object
}

type keptSnapshot struct {
	snapshot *Snapshot
	model    *model
}

func (w *walk) pick(values ...string) string { return values[w.random.IntN(len(values))] }

func (w *walk) key() kube.Key {
	return kube.Key{Namespace: w.pick("", "a", "b", "default", "kube-system"), Name: fmt.Sprint(w.pick("x", "web-", "a-long-name-that-says-little-"), w.random.IntN(40))}
}

// some returns a random object.
func (w *walk) some() *wire.Object {
	key := w.key()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Generation: w.random.Int64N(5) - 1,
		UID:             types.UID(w.pick("", "odd", "0a0b0c0d-0001-4002-8003-0123456789ab", "0A0B0C0D-0001-4002-8003-0123456789AB", "0a0b0c0d-0001-4002-8003-0123456789ax")),
		ResourceVersion: w.pick("", "7", "007", "12345678", "18446744073709551615", "99999999999999999999", "rv"),
		Labels:          map[string]string{}, Annotations: map[string]string{"note": key.Name + " " + key.Name + strings.Repeat(" text", w.random.IntN(400))},
	}}
	for _, label := range []string{"app", "tier", "zone"} {
		if w.random.IntN(3) > 0 {
			pod.Labels[label] = w.pick("", "one", "two", "three")
		}
	}
	for range w.random.IntN(3) {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: "Job", Name: "j", UID: types.UID(w.pick("", "o1", "o2", "0a0b0c0d-0001-4002-8003-0123456789ab"))})
	}
	for _, index := range []string{"first", "second"} {
		pod.Annotations[index] = w.pick("", "v1", "v2", "v1 v2 v2", "fail")
	}
	switch w.random.IntN(4) {
	case 0:
		id := "containerd://" + strings.Repeat(w.pick("0123456789abcdef", "07", "fedcba9876543210f"), 1+w.random.IntN(12))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{ContainerID: id + w.pick("", "g", " ")}, {ContainerID: id}}
	case 1:
		pod.Annotations["uids"] = string(pod.UID) + string(pod.UID) + pod.ResourceVersion + "://"
	}
	if w.random.IntN(4) == 0 {
		now := metav1.Unix(1_790_000_000, 0)
		pod.DeletionTimestamp = &now
	}
	if w.random.IntN(3) > 0 {
		return object(w, pod)
	}
	return object(w, &jsonPod{*pod})
}

// jsonPod is a Pod that is encoded as JSON, because its type has no protobuf encoding.
type jsonPod struct{ corev1.Pod }

func (w *walk) query() Query {
	var q Query
	if w.random.IntN(3) == 0 {
		q.Namespace = w.pick("a", "b", "default", "missing")
	}
	if w.random.IntN(3) == 0 {
		selector, err := labels.Parse(w.pick("app=one", "app=one,tier=two", "zone in (one,two)", "zone in (one,two,three),app", "tier!=one", "!zone", "app=", "app==missing", "tier notin (one),zone=two", ""))
		if err != nil {
			w.Fatal(err)
		}
		q.Labels = selector
	}
	if w.random.IntN(20) == 0 {
		q.Labels = labels.Nothing()
	}
	if w.random.IntN(4) == 0 {
		q.OwnerUID = types.UID(w.pick("o1", "o2", "missing"))
	}
	if len(w.indexed) > 0 && w.random.IntN(4) == 0 {
		q.Index, q.Value = w.pick("first", "second"), w.pick("v1", "v2", "missing", "")
	}
	return q
}

func (w *walk) step() {
	switch n := w.random.IntN(100); {
	case n < 45:
		w.put(w.some())
	case n < 60:
		w.delete(w.key())
	case n < 70:
		w.get(w.key())
	case n < 85:
		w.ask("store", w.store, &w.model)
		w.askAdded()
	case n < 87:
		w.takeSnapshot()
	case n < 90:
		w.keys()
	case n < 95:
		w.mark()
	default:
		w.checkKept()
	}
}

// askAdded adds an index, or queries it.
func (w *walk) askAdded() {
	if len(w.indexed) == 0 {
		return
	}
	const name = "added"
	if !w.added {
		w.added = w.random.IntN(20) == 0
		if w.added {
			failed, first, err := w.store.AddIndex(Index{Name: name, Values: func(o *wire.Object) ([]string, error) { return tryIndexValues("first", o) }})
			if err != nil || failed > 0 != errors.Is(first, errIndex) {
				w.Fatalf("AddIndex: %d failed, %v, %v", failed, first, err)
			}
		}
		return
	}
	value := w.pick("v1", "v2", "missing")
	want := w.model.query(Query{Index: "first", Value: value})
	for _, from := range []asker{w.store, w.store.Snapshot()} {
		got := []string{}
		for o, err := range objectsOf(from, Query{Index: name, Value: value}) {
			if err != nil {
				w.Fatal(err)
			}
			got = append(got, describe(o))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			w.Fatalf("the added index has %q for %s, want %q", got, value, want)
		}
	}
}

func (w *walk) put(o *wire.Object) {
	w.Helper()
	want := o.Clone()
	before, replaces := w.model.objects[o.Key]
	old, replaced, err := w.store.Put(o)
	for i := range o.Bytes { // the caller may reuse the buffer
		o.Bytes[i] = 0xff
	}
	fails := len(w.indexed) > 0 && (want.Annotations()["first"] == "fail" || want.Annotations()["second"] == "fail")
	if fails != errors.Is(err, errIndex) {
		w.Fatalf("Put of %s: %v", want.Key, err)
	}
	w.expectRef("result of Put", old, replaced, before, replaces)
	w.model.objects[want.Key] = want
	if w.model.marked != nil {
		w.model.marked[want.Key] = true
	}
	if replaced {
		w.keep(keptRef{old, before})
	}
}

func (w *walk) delete(key kube.Key) {
	before, exists := w.model.objects[key]
	old, found := w.store.Delete(key)
	w.expectRef("result of Delete", old, found, before, exists)
	delete(w.model.objects, key)
	delete(w.model.marked, key)
}

func (w *walk) get(key kube.Key) {
	want, exists := w.model.objects[key]
	got, found := w.store.Get(key)
	w.expectRef("Get", got, found, want, exists)
	if w.store.Len() != len(w.model.objects) {
		w.Fatalf("Len is %d, want %d", w.store.Len(), len(w.model.objects))
	}
	if found {
		w.keep(keptRef{got, want})
	}
}

func (w *walk) keep(r keptRef) {
	w.refs = append(w.refs, r)
	if len(w.refs) > 30 {
		w.refs = slices.Delete(w.refs, 0, 10)
	}
}

func (w *walk) expectRef(what string, got Ref, found bool, want *wire.Object, exists bool) {
	w.Helper()
	if found != exists {
		w.Fatalf("%s: found %t, want %t", what, found, exists)
	}
	if !exists {
		if got != (Ref{}) {
			w.Fatalf("%s: a Ref without a state", what)
		}
		return
	}
	if got.Key() != want.Key || got.UID() != want.UID || got.ResourceVersion() != want.ResourceVersion {
		w.Fatalf("%s: %s %s %s, want %s %s %s", what, got.Key(), got.UID(), got.ResourceVersion(), want.Key, want.UID, want.ResourceVersion)
	}
	if same := want.ResourceVersion != ""; got.Same(want) != same {
		w.Fatalf("%s: Same is %t for %s", what, !same, describe(want))
	}
	other := *want
	other.UID += "1"
	newer := *want
	newer.ResourceVersion += "1"
	if got.Same(&other) || got.Same(&newer) {
		w.Fatalf("%s: Same as an object with another UID or version", what)
	}
	if err := got.Read(func(o *wire.Object) error {
		if diff := cmp.Diff(describe(want), describe(o)); diff != "" {
			w.Fatalf("%s (-want +got):\n%s", what, diff)
		}
		clear(o.Bytes) // a reader must not affect the store through the buffer
		return nil
	}); err != nil {
		w.Fatal(err)
	}
}

// asker is implemented by stores and snapshots.
type asker interface {
	finder
	Count(q Query) (int, error)
}

func (w *walk) ask(what string, a asker, m *model) {
	w.Helper()
	q := w.query()
	want := m.query(q)
	var got []string
	for o, err := range objectsOf(a, q) {
		if err != nil {
			w.Fatal(err)
		}
		got = append(got, describe(o))
		clear(o.Bytes)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("%s: Find(%+v) (-want +got):\n%s", what, q, diff)
	}
	n, err := a.Count(q)
	if err != nil || w.exact && n != len(want) {
		w.Fatalf("%s: Count(%+v) is %d, error %v, want %d", what, q, n, err, len(want))
	}
}

func (w *walk) takeSnapshot() {
	w.snapshots = append(w.snapshots, keptSnapshot{w.store.Snapshot(), w.model.snapshot()})
	if len(w.snapshots) > 4 {
		w.snapshots = slices.Delete(w.snapshots, 0, 1)
	}
}

// checkKept checks that earlier Refs and snapshots have not changed.
func (w *walk) checkKept() {
	for _, r := range w.refs {
		w.expectRef("an earlier Ref", r.ref, true, r.want, true)
	}
	for _, s := range w.snapshots {
		w.ask("snapshot", s.snapshot, s.model)
		key := w.key()
		want, exists := s.model.objects[key]
		got, found := s.snapshot.Get(key)
		w.expectRef("Get of a snapshot", got, found, want, exists)
		if s.snapshot.Len() != len(s.model.objects) {
			w.Fatalf("Len of a snapshot is %d, want %d", s.snapshot.Len(), len(s.model.objects))
		}
	}
}

func (w *walk) keys() {
	want := map[kube.Key]int{}
	for key := range w.model.objects {
		want[key] = 1
	}
	got := map[kube.Key]int{}
	parts := 1 + w.random.IntN(5)
	for part := range parts {
		for r := range w.store.RefsIn(part, parts) {
			got[r.Key()]++
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("keys in %d parts (-want +got):\n%s", parts, diff)
	}
	got = map[kube.Key]int{}
	for key := range w.store.Keys() {
		got[key]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("keys (-want +got):\n%s", diff)
	}
}

func (w *walk) mark() {
	switch w.random.IntN(8) {
	case 0:
		w.store.BeginList()
		w.model.marked = map[kube.Key]bool{}
	case 1:
		w.store.EndList()
		w.model.marked = nil
	case 2:
		want := map[kube.Key]bool{}
		for key := range w.model.objects {
			if w.model.marked != nil && !w.model.marked[key] {
				want[key] = true
			}
		}
		got := map[kube.Key]bool{}
		for key := range w.store.Unmarked() {
			got[key] = true
			if w.random.IntN(2) == 0 {
				w.delete(key)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			w.Fatalf("unmarked (-want +got):\n%s", diff)
		}
	default:
		key := w.key()
		_, exists := w.model.objects[key]
		if found := w.store.Mark(key); found != exists {
			w.Fatalf("Mark of %s is %t, want %t", key, found, exists)
		}
		if exists && w.model.marked != nil {
			w.model.marked[key] = true
		}
	}
}
