package client

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unique"

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
	id := func(group, kind, namespace, name string) digest {
		return objectID(schema.GroupKind{Group: group, Kind: kind}, kube.Key{Namespace: namespace, Name: name})
	}
	ids := map[digest]bool{
		id("a", "b", "c", "d"): true, id("ab", "", "c", "d"): true, id("a", "b", "cd", ""): true, id("a", "b", "", "cd"): true,
		id("", "b", "c", "d"): true,
	}
	if len(ids) != 5 {
		t.Error("two of these are taken for one")
	}
}

func TestAppliedMemory(t *testing.T) {
	t.Parallel()
	m := newAppliedMemory()
	by := unique.Make(applier{fieldOwner: "me"})
	id := func(i int) appliedID { return appliedID{object: digestOf(fmt.Sprint("object ", i)), by: by} }
	known := func(i int) bool { _, ok := m.get(id(i)); return ok }
	for i := range generationSize {
		m.note(id(i), appliedState{uid: "u", version: "1"})
	}
	if !known(0) || !known(generationSize-1) {
		t.Error("something was dropped before it was full")
	}
	m.note(id(-1), appliedState{}) // the others are the old generation now
	if !known(5) {
		t.Error("an old entry was dropped at once")
	}
	for i := range generationSize {
		m.note(id(-2-i), appliedState{})
	}
	if !known(5) || !known(-1) || known(6) {
		t.Error("kept are the young ones, and those that were asked for")
	}
	if _, twice := m.old[id(5).object]; twice {
		t.Error("what is young is remembered among the old ones, too")
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
	me, status, other := applier{"v1", "me", ""}, applier{"v1", "me", "status"}, applier{"v2", "other", ""}
	pods, jobs := collection{schema.GroupKind{Kind: "Pod"}, "ns"}, collection{schema.GroupKind{Kind: "Job"}, "ns"}
	id := func(name string, by applier) appliedID {
		in := pods
		if name == "job" {
			in = jobs
		}
		return appliedID{
			object: objectID(in.kind, kube.Key{Namespace: in.namespace, Name: name}), in: unique.Make(in), by: unique.Make(by),
		}
	}
	fill := func() {
		for _, by := range []applier{me, status, other} {
			for _, name := range []string{"a", "b", "job"} {
				m.note(id(name, by), appliedState{uid: "u", version: "1", configured: digestOf(by.fieldOwner)})
			}
		}
	}
	want := func(a, b, job string) {
		t.Helper()
		for name, want := range map[string]string{"a": a, "b": b, "job": job} {
			var got []string
			for _, by := range []applier{me, status, other} {
				state, ok := m.get(id(name, by))
				if ok {
					got = append(got, fmt.Sprint(by))
				}
				if ok && state.configured != digestOf(by.fieldOwner) {
					t.Errorf("of %s by %v something is known that is another's", name, by)
				}
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("of %s is known what %q have applied, want %q", name, text, want)
			}
		}
	}
	const all = "{v1 me } {v1 me status} {v2 other }"
	fill()
	want(all, all, all)
	m.written(id("a", me).object)
	want("", all, all)
	fill()
	m.taken(id("a", me))
	want("{v1 me } {v1 me status}", all, all)
	m.taken(id("b", status))
	want("{v1 me } {v1 me status}", all, all)
	m.forget(id("b", me))
	want("{v1 me } {v1 me status}", "{v1 me status} {v2 other }", all)
	m.writtenAll(collection{pods.kind, "elsewhere"})
	want("{v1 me } {v1 me status}", "{v1 me status} {v2 other }", all)
	m.writtenAll(pods)
	want("", "", all)
	m.writtenAll(jobs)
	if n := len(m.young) + len(m.old); n > 0 {
		t.Errorf("%d objects are still known", n)
	}
}

// Of one object the latest appliers are remembered, and of others nothing is lost for that.
func TestAppliedMemoryOfManyAppliers(t *testing.T) {
	t.Parallel()
	m := newAppliedMemory()
	id := func(object, by int) appliedID {
		return appliedID{object: digest{byte(object + 1)}, by: unique.Make(applier{fieldOwner: fmt.Sprint(by)})}
	}
	m.note(id(1, 0), appliedState{uid: "u"})
	for by := range 2 * maxAppliers {
		m.note(id(0, by), appliedState{uid: "u"})
		m.note(id(0, by), appliedState{uid: "u"}) // again is not another one
	}
	known := func(id appliedID) bool { _, ok := m.get(id); return ok }
	if n := len(m.of(digest{1}).states); n != maxAppliers {
		t.Errorf("%d are remembered, of at most %d", n, maxAppliers)
	}
	if known(id(0, maxAppliers-1)) || !known(id(0, maxAppliers)) || !known(id(0, 2*maxAppliers-1)) || !known(id(1, 0)) {
		t.Error("remembered are others than the latest ones of one object, and what there is of the other one")
	}
}

// What an informer shows in a later version counts for the state that it was compared with.
func TestAppliedMemoryOfLaterVersions(t *testing.T) {
	t.Parallel()
	m := newAppliedMemory()
	id, other := appliedID{by: unique.Make(applier{fieldOwner: "me"})}, appliedID{by: unique.Make(applier{fieldOwner: "other"})}
	m.note(id, appliedState{uid: "u", version: "5"})
	m.note(other, appliedState{uid: "u", version: "5"})
	state, _ := m.get(id)
	m.saw(id, state, "4")
	m.saw(id, state, "9")
	m.saw(id, state, "12") // of a state that is no longer what is known
	mine, _ := m.get(id)
	others, _ := m.get(other)
	if mine.version != "9" || others.version != "5" {
		t.Errorf("the versions are %s and %s, want 9 and 5", mine.version, others.version)
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
		m, id := newAppliedMemory(), appliedID{by: unique.Make(applier{})}
		m.note(id, test.first)
		m.note(id, test.second)
		if got, _ := m.get(id); got.version != test.want {
			t.Errorf("%s: remembered is %q, want %q", name, got.version, test.want)
		}
	}
	m := newAppliedMemory()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { // waited for below
			for j := range 100 {
				id := appliedID{object: digest{byte(j)}, by: unique.Make(applier{fieldOwner: fmt.Sprint(i % 2)})}
				m.note(id, appliedState{version: fmt.Sprint(i + 1)})
				state, _ := m.get(id)
				m.saw(id, state, fmt.Sprint(i+2))
				m.taken(id)
				m.forget(appliedID{object: digest{byte(i)}})
				m.written(digest{byte(i)})
				m.writtenAll(collection{namespace: fmt.Sprint(j)})
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
