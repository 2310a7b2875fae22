package client

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

func TestProject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ configuration, object, want string }{
		"its fields only":      {`{"a":{"b":1}}`, `{"a":{"b":2,"c":3},"d":4}`, `{"a":{"b":2}}`},
		"missing is not null":  {`{"a":1,"b":1}`, `{"a":null}`, `{"a":null}`},
		"lists as a whole":     {`{"a":[{"n":1}]}`, `{"a":[{"n":1,"m":2},{"n":2}]}`, `{"a":[{"n":1,"m":2},{"n":2}]}`},
		"an empty map":         {`{"a":{}}`, `{"a":{"b":1}}`, `{"a":{}}`},
		"a value for a map":    {`{"a":{"b":1}}`, `{"a":"x"}`, `{"a":"x"}`},
		"a map for a value":    {`{"a":"x"}`, `{"a":{"b":1}}`, `{"a":{"b":1}}`},
		"nothing of it":        {`{"a":1}`, `{"b":1}`, `{}`},
		"a quantity as it was": {`{"cpu":"1000m"}`, `{"cpu":"1"}`, `{"cpu":"1"}`},
	} {
		got := project(fromJSON(t, test.configuration), fromJSON(t, test.object))
		if diff := cmp.Diff(fromJSON(t, test.want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDigests(t *testing.T) {
	t.Parallel()
	if !digestOf(map[string]any{"a": 1, "b": []any{}}).same(digestOf(map[string]any{"b": []any{}, "a": 1})) {
		t.Error("the order of keys counts")
	}
	if digestOf(map[string]any{}).same(digestOf(map[string]any{"a": nil})) || digestOf("1").same(digestOf(1)) {
		t.Error("different values have the same digest")
	}
	if (digest{}).same(digest{}) {
		t.Error("nothing is the same as nothing")
	}
	id := func(namespace, name, owner, subresource string) digest {
		return appliedID(schema.GroupKind{Kind: "Pod"}, kube.Key{Namespace: namespace, Name: name}, applier{"v1", owner, subresource})
	}
	ids := map[digest]bool{
		id("a", "b", "c", ""): true, id("ab", "", "c", ""): true, id("a", "b", "", "c"): true, id("a", "", "b", "c"): true,
		id("a", "b", "c", "status"): true,
	}
	if len(ids) != 5 {
		t.Error("two of these are taken for one")
	}
}

func TestAppliedMemory(t *testing.T) {
	t.Parallel()
	m := newAppliedMemory()
	id := func(i int) digest { return digestOf(fmt.Sprint("object ", i)) }
	known := func(i int) bool { _, ok := m.get(id(i)); return ok }
	for i := range generationSize {
		m.note(id(i), applier{}, appliedState{uid: "u", version: "1"})
	}
	if !known(0) || !known(generationSize-1) {
		t.Error("something was dropped before it was full")
	}
	m.note(id(-1), applier{}, appliedState{}) // the others are the old generation now
	if !known(5) {
		t.Error("an old entry was dropped at once")
	}
	for i := range generationSize {
		m.note(id(-2-i), applier{}, appliedState{})
	}
	if !known(5) || !known(-1) || known(6) {
		t.Error("kept are the young ones, and those that were asked for")
	}
	if n := len(m.young) + len(m.old); n > 2*generationSize {
		t.Errorf("it has %d entries, of at most %d", n, 2*generationSize)
	}
	m.forget(id(5))
	m.forget(id(-1))
	if known(5) || known(-1) {
		t.Error("not forgotten")
	}
}

// A write to an object drops what is known of it in every name, and of no other object.
func TestAppliedMemoryOfWrittenObjects(t *testing.T) {
	t.Parallel()
	m := newAppliedMemory()
	pod := schema.GroupKind{Kind: "Pod"}
	a, b := kube.Key{Namespace: "ns", Name: "a"}, kube.Key{Namespace: "ns", Name: "b"}
	me, status, other := applier{"v1", "me", ""}, applier{"v1", "me", "status"}, applier{"v2", "other", ""}
	fill := func() {
		for _, by := range []applier{me, status, other} {
			for _, key := range []kube.Key{a, b} {
				m.note(appliedID(pod, key, by), by, appliedState{uid: "u", version: "1"})
			}
		}
	}
	known := func(want string) {
		t.Helper()
		var got string
		for _, key := range []kube.Key{a, b} {
			for _, by := range []applier{me, status, other} {
				if _, ok := m.get(appliedID(pod, key, by)); ok {
					got += fmt.Sprint(" ", key.Name, by)
				}
			}
		}
		if strings.TrimSpace(got) != want {
			t.Errorf("known are %q, want %q", strings.TrimSpace(got), want)
		}
	}
	fill()
	m.written(pod, a)
	known("b{v1 me } b{v1 me status} b{v2 other }")
	fill()
	m.taken(pod, a, me)
	known("a{v1 me } a{v1 me status} b{v1 me } b{v1 me status} b{v2 other }")
	m.written(schema.GroupKind{Group: "x", Kind: "Pod"}, b)
	known("a{v1 me } a{v1 me status} b{v1 me } b{v1 me status} b{v2 other }")
	for i := range 2 * maxAppliers {
		by := applier{fieldOwner: fmt.Sprint(i)}
		m.note(appliedID(pod, a, by), by, appliedState{uid: "u", version: "1"})
	}
	if n := len(m.appliers); n > maxAppliers {
		t.Errorf("it knows %d appliers, of at most %d", n, maxAppliers)
	}
	known("") // what belonged to appliers that it has dropped
	m.writtenAll()
	if n := len(m.young) + len(m.old); n > 0 {
		t.Errorf("%d are still known", n)
	}
}

// Answers to applies that ran at once are noted in any order: the older one says nothing, and
// neither does the newer one any longer, for nobody knows in which order they were done.
func TestAppliedMemoryOfConcurrentApplies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, second appliedState
		want          string // the version that is remembered
	}{
		"in order":         {appliedState{uid: "u", version: "9"}, appliedState{uid: "u", version: "10"}, "10"},
		"the same version": {appliedState{uid: "u", version: "9"}, appliedState{uid: "u", version: "9"}, "9"},
		"the other way":    {appliedState{uid: "u", version: "10"}, appliedState{uid: "u", version: "9"}, ""},
		"another object":   {appliedState{uid: "u", version: "10"}, appliedState{uid: "v", version: "9"}, "9"},
		"no numbers":       {appliedState{uid: "u", version: "b"}, appliedState{uid: "u", version: "a"}, "a"},
	} {
		m := newAppliedMemory()
		m.note(digest{1}, applier{}, test.first)
		m.note(digest{1}, applier{}, test.second)
		if got, _ := m.get(digest{1}); got.version != test.want {
			t.Errorf("%s: remembered is %q, want %q", name, got.version, test.want)
		}
	}
	m := newAppliedMemory()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { // waited for below
			for j := range 100 {
				m.note(digest{byte(j)}, applier{}, appliedState{version: fmt.Sprint(i + 1)})
				m.get(digest{byte(j)})
				m.forget(digest{byte(i)})
			}
		})
	}
	all.Wait()
}

func TestEntryIn(t *testing.T) {
	t.Parallel()
	a := application{request: &Request{FieldOwner: "me"}}
	entry := func(manager, fields string, change ...func(*metav1.ManagedFieldsEntry)) metav1.ManagedFieldsEntry {
		e := metav1.ManagedFieldsEntry{
			Manager: manager, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsV1: metav1.NewFieldsV1(fields),
		}
		for _, c := range change {
			c(&e)
		}
		return e
	}
	of := func(entries ...metav1.ManagedFieldsEntry) digest {
		return a.entryIn(&metav1.ObjectMeta{ManagedFields: entries})
	}
	mine := of(entry("me", `{"f:a":{},"f:b":{}}`))
	if !mine.same(of(entry("you", `{"f:c":{}}`), entry("me", `{"f:b":{}, "f:a":{}}`))) {
		t.Error("entries of others, or the order of fields count")
	}
	for name, other := range map[string]digest{
		"other fields":    of(entry("me", `{"f:a":{}}`)),
		"of a status":     of(entry("me", `{"f:a":{},"f:b":{}}`, func(e *metav1.ManagedFieldsEntry) { e.Subresource = "status" })),
		"of an update":    of(entry("me", `{"f:a":{},"f:b":{}}`, func(e *metav1.ManagedFieldsEntry) { e.Operation = "Update" })),
		"at another time": of(entry("me", `{"f:a":{},"f:b":{}}`, func(e *metav1.ManagedFieldsEntry) { e.Time = &metav1.Time{} })),
		"of another":      of(entry("you", `{"f:a":{},"f:b":{}}`)),
		"none shown":      of(),
		"not to be read":  of(entry("me", `{`)),
	} {
		if mine.same(other) {
			t.Errorf("%s: taken for the same", name)
		}
	}
	if of() != (digest{}) {
		t.Error("something is known of an object that shows no managedFields")
	}
}

func TestConflictsOf(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`conflict with "kubectl-edit"`: "kubectl-edit",
		`conflict with "kube-controller-manager" with subresource "status" using v1 at 2026-01-02T03:04:05Z`: "kube-controller-manager",
		`conflict with "a \"quoted\" one" using v1`:                                                          `a "quoted" one`,
		`something "else`: `something "else`,
		`nobody`:          `nobody`,
	} {
		err := fmt.Errorf("wrapped: %w", apierrors.NewApplyConflict([]metav1.StatusCause{
			{Type: metav1.CauseTypeFieldManagerConflict, Field: ".spec.replicas", Message: message},
			{Type: metav1.CauseTypeFieldValueInvalid, Field: ".spec.x", Message: `of "another" kind`},
		}, "refused"))
		if diff := cmp.Diff([]FieldConflict{{Manager: want, Field: "spec.replicas"}}, conflictsOf(err)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", message, diff)
		}
	}
	if conflictsOf(errors.New("another one")) != nil || conflictsOf(apierrors.NewConflict(corev1.Resource("pods"), "x", errors.New("changed"))) != nil {
		t.Error("conflicts of errors that name none")
	}
	err := &ConflictError{FieldOwner: "me", Conflicts: []FieldConflict{{"b", "spec.x"}, {"a", "spec.y"}, {"b", "spec.z"}}}
	if text := err.Error(); !strings.Contains(text, `"a" has spec.y; "b" has spec.x, spec.z: option Force`) {
		t.Errorf("the error says %q", text)
	}
}
