package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"unique"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/difference"
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
		got := difference.Project(fromJSON(t, test.configuration), fromJSON(t, test.object))
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
	id := func(i int) appliedID { return appliedID{object: digestOf(fmt.Sprint("object ", i)), applier: by} }
	known := func(i int) bool { _, ok := m.get(id(i)); return ok }
	for i := range generationSize {
		m.store(id(i), appliedState{uid: "u", version: "1"})
	}
	if !known(0) || !known(generationSize-1) {
		t.Error("something was dropped before it was full")
	}
	m.store(id(-1), appliedState{}) // the other objects are now in the old generation
	if !known(5) {
		t.Error("an old entry was dropped at once")
	}
	for i := range generationSize {
		m.store(id(-2-i), appliedState{})
	}
	if !known(5) || !known(-1) || known(6) {
		t.Error("kept are the young ones, and those that were asked for")
	}
	if _, twice := m.old[id(5).object]; twice {
		t.Error("what is young is remembered among the old ones, too")
	}
	if n := len(m.recent) + len(m.old); n > 2*generationSize {
		t.Errorf("it has %d entries, of at most %d", n, 2*generationSize)
	}
	full := len(m.recent) + len(m.old)
	m.forgetAll(id(5).object)
	m.forgetAll(id(-1).object)
	m.forgetAll(id(generationSize).object) // was never stored
	if known(5) || known(-1) {
		t.Error("not forgotten")
	}
	if n := len(m.recent) + len(m.old); n != full-2 {
		t.Errorf("%d entries remain of %d: an object without states needs no entry", n, full)
	}
}

// A write to an object drops its states of all appliers, and no state of other objects.
func TestAppliedMemoryForgetsWrittenObjects(t *testing.T) {
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
			object: objectID(in.kind, kube.Key{Namespace: in.namespace, Name: name}), collection: unique.Make(in), applier: unique.Make(by),
		}
	}
	fill := func() {
		for _, by := range []applier{me, status, other} {
			for _, name := range []string{"a", "b", "job"} {
				m.store(id(name, by), appliedState{uid: "u", version: "1", configured: digestOf(by.fieldOwner)})
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
	m.forgetWritten(id("a", me).object)
	want("", all, all)
	fill()
	m.forgetForced(id("a", me))
	want("{v1 me } {v1 me status}", all, all)
	m.forgetForced(id("b", status))
	want("{v1 me } {v1 me status}", all, all)
	m.forgetCollection(collection{pods.kind, "elsewhere"})
	want("{v1 me } {v1 me status}", all, all)
	m.forget(id("b", me))
	forgotten, _ := m.get(id("b", me))
	if other, _ := m.get(id("b", status)); forgotten.configured != (digest{}) || other.configured == (digest{}) {
		t.Error("a refused apply drops the configuration of the same applier, and of no other one")
	}
	m.forgetCollection(pods)
	want("", "", all)
	m.forgetCollection(jobs)
	if n := len(m.recent) + len(m.old); n > 0 {
		t.Errorf("%d objects are still known", n)
	}
}

// If an object has too many appliers, the latest ones stay stored, and states of other objects are not dropped.
func TestAppliedMemoryLimitsAppliers(t *testing.T) {
	t.Parallel()
	m := newAppliedMemory()
	id := func(object, by int) appliedID {
		return appliedID{object: digest{byte(object + 1)}, applier: unique.Make(applier{fieldOwner: fmt.Sprint(by)})}
	}
	m.store(id(1, 0), appliedState{uid: "u"})
	for by := range 2 * maxAppliers {
		m.store(id(0, by), appliedState{uid: "u"})
		m.store(id(0, by), appliedState{uid: "u"}) // the same applier again
	}
	known := func(id appliedID) bool { _, ok := m.get(id); return ok }
	if n := len(m.of(digest{1}).states); n != maxAppliers {
		t.Errorf("%d are remembered, of at most %d", n, maxAppliers)
	}
	if known(id(0, maxAppliers-1)) || !known(id(0, maxAppliers)) || !known(id(0, 2*maxAppliers-1)) || !known(id(1, 0)) {
		t.Error("remembered are others than the latest ones of one object, and what there is of the other one")
	}
}

// If an informer shows an object in a later version, the stored state gets that version.
func TestAppliedMemoryConfirmsLaterVersions(t *testing.T) {
	t.Parallel()
	m := newAppliedMemory()
	id, other := appliedID{applier: unique.Make(applier{fieldOwner: "me"})}, appliedID{applier: unique.Make(applier{fieldOwner: "other"})}
	m.store(id, appliedState{uid: "u", version: "5"})
	m.store(other, appliedState{uid: "u", version: "5"})
	state, _ := m.get(id)
	m.confirm(id, state, "4", digest{}, digest{})
	m.confirm(id, state, "9", digest{}, digest{})
	m.confirm(id, state, "12", digest{}, digest{}) // for a state that is not stored anymore
	mine, _ := m.get(id)
	rest, _ := m.get(other)
	if mine.version != "9" || rest.version != "5" {
		t.Errorf("the versions are %s and %s, want 9 and 5", mine.version, rest.version)
	}
}

// A state that an informer shows is stored, unless the client has written or applied in between: the informer may not
// show that yet.
func TestAppliedMemoryReplace(t *testing.T) {
	t.Parallel()
	id := appliedID{object: digest{1}, collection: unique.Make(collection{namespace: "shop"}), applier: unique.Make(applier{fieldOwner: "me"})}
	other := appliedID{object: id.object, collection: id.collection, applier: unique.Make(applier{fieldOwner: "other"})}
	for name, test := range map[string]struct {
		known     bool // a state is stored when the informer is read
		meanwhile func(m *appliedMemory)
		want      string // the stored version at the end
	}{
		"nothing":                                     {false, func(*appliedMemory) {}, "9"},
		"nothing, of an object that is known":         {true, func(*appliedMemory) {}, "9"},
		"a write":                                     {false, func(m *appliedMemory) { m.forgetWritten(id.object) }, ""},
		"a write of an object that is known":          {true, func(m *appliedMemory) { m.forgetWritten(id.object) }, ""},
		"a deletion of all":                           {false, func(m *appliedMemory) { m.forgetCollection(id.collection.Value()) }, ""},
		"an apply":                                    {false, func(m *appliedMemory) { m.store(id, appliedState{uid: "u", version: "10"}) }, "10"},
		"an apply to an object that is known":         {true, func(m *appliedMemory) { m.store(id, appliedState{uid: "u", version: "10"}) }, "10"},
		"a forced apply by another field owner":       {false, func(m *appliedMemory) { m.forgetForced(other) }, ""},
		"a forced apply by another owner, when known": {true, func(m *appliedMemory) { m.forgetForced(other) }, ""},
		"a refused apply":                             {true, func(m *appliedMemory) { m.forget(id) }, "7"},
	} {
		m := newAppliedMemory()
		var last *appliedState
		if test.known {
			m.store(id, appliedState{uid: "u", version: "7", configured: digest{1}})
			state, _ := m.get(id)
			last = &state
		}
		test.meanwhile(m)
		m.replace(id, last, appliedState{uid: "u", version: "9"})
		if got, _ := m.get(id); got.version != test.want {
			t.Errorf("%s: version %q is remembered, want %q", name, got.version, test.want)
		}
	}
}

// An apply with the same input as the previous one has the same configuration. The Go type and the annotation of the
// hash are part of the input.
func TestDigestOfInput(t *testing.T) {
	t.Parallel()
	shapes := &difference.Shapes{}
	typed := func() kube.Object { return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web"}} }
	untyped := &unstructured.Unstructured{Object: map[string]any{}}
	encoded, err := json.Marshal(typed())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &untyped.Object); err != nil {
		t.Fatal(err)
	}
	want := digestOfInput(shapes, typed(), "hash")
	if want == (digest{}) || want != digestOfInput(shapes, typed(), "hash") {
		t.Errorf("the digests of equal inputs are %s and %s", want, digestOfInput(shapes, typed(), "hash"))
	}
	if want == digestOfInput(shapes, untyped, "hash") {
		t.Error("an unstructured object has the digest of a typed one")
	}
	if want == digestOfInput(shapes, typed(), "another") || want == digestOfInput(shapes, typed(), "") {
		t.Error("the annotation of the hash is not in the digest")
	}
	if got := digestOfInput(shapes, &unstructured.Unstructured{Object: map[string]any{"a": func() {}}}, ""); got != (digest{}) {
		t.Errorf("an object that cannot be encoded has the digest %s, want none", got)
	}
}

// Responses to concurrent applies may be stored in any order. The older response is not stored, and the newer one is
// dropped, because the order of the applies is unknown.
func TestAppliedMemoryOfConcurrentApplies(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, second appliedState
		want          string // the stored version
	}{
		"in order":         {appliedState{uid: "u", version: "9"}, appliedState{uid: "u", version: "10"}, "10"},
		"the same version": {appliedState{uid: "u", version: "9"}, appliedState{uid: "u", version: "9"}, "9"},
		"the other way":    {appliedState{uid: "u", version: "10"}, appliedState{uid: "u", version: "9"}, ""},
		"another object":   {appliedState{uid: "u", version: "10"}, appliedState{uid: "v", version: "9"}, "9"},
		"no numbers":       {appliedState{uid: "u", version: "b"}, appliedState{uid: "u", version: "a"}, "a"},
	} {
		m, id := newAppliedMemory(), appliedID{applier: unique.Make(applier{})}
		m.store(id, test.first)
		m.store(id, test.second)
		if got, _ := m.get(id); got.version != test.want {
			t.Errorf("%s: remembered is %q, want %q", name, got.version, test.want)
		}
	}
	m := newAppliedMemory()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() { // waited for below
			for j := range 100 {
				id := appliedID{object: digest{byte(j)}, applier: unique.Make(applier{fieldOwner: fmt.Sprint(i % 2)})}
				m.store(id, appliedState{version: fmt.Sprint(i + 1)})
				state, _ := m.get(id)
				m.confirm(id, state, fmt.Sprint(i+2), digest{}, digest{})
				m.forgetForced(id)
				m.forget(appliedID{object: digest{byte(i)}})
				m.forgetWritten(digest{byte(i)})
				m.forgetCollection(collection{namespace: fmt.Sprint(j)})
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
	digestOf := func(entries ...metav1.ManagedFieldsEntry) digest {
		return a.entryIn(&metav1.ObjectMeta{ManagedFields: entries})
	}
	mine := digestOf(entry("me", `{"f:a":{},"f:b":{}}`))
	if !mine.same(digestOf(entry("you", `{"f:c":{}}`), entry("me", `{"f:b":{}, "f:a":{}}`))) {
		t.Error("entries of others, or the order of fields count")
	}
	for name, other := range map[string]digest{
		"other fields":    digestOf(entry("me", `{"f:a":{}}`)),
		"of a status":     digestOf(entry("me", `{"f:a":{},"f:b":{}}`, func(e *metav1.ManagedFieldsEntry) { e.Subresource = "status" })),
		"of an update":    digestOf(entry("me", `{"f:a":{},"f:b":{}}`, func(e *metav1.ManagedFieldsEntry) { e.Operation = "Update" })),
		"at another time": digestOf(entry("me", `{"f:a":{},"f:b":{}}`, func(e *metav1.ManagedFieldsEntry) { e.Time = &metav1.Time{} })),
		"of another":      digestOf(entry("you", `{"f:a":{},"f:b":{}}`)),
		"none shown":      digestOf(),
		"not to be read":  digestOf(entry("me", `{`)),
	} {
		if mine.same(other) {
			t.Errorf("%s: taken for the same", name)
		}
	}
	if digestOf() != (digest{}) {
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

// Two values with the same encoding are different input when they have different content.
func TestAppendZerosDistinguishesContents(t *testing.T) {
	t.Parallel()
	type part struct {
		Limit resource.Quantity `json:"limit,omitempty"` //nolint:modernize // as the types of Kubernetes have it
	}
	type lists struct {
		Names []string `json:"names,omitempty"`
		Mode  string   `json:"mode"`
	}
	type whole struct {
		Inner   part            `json:"inner"`
		Pointer *part           `json:"pointer,omitempty"`
		Parts   []part          `json:"parts,omitempty"`
		Named   map[string]part `json:"named,omitempty"`
		Any     any             `json:"any,omitempty"`
		Lists   lists           `json:"lists,omitempty"` //nolint:modernize // as the types of Kubernetes have it
	}
	zero := part{resource.MustParse("0")}
	for name, pair := range map[string][2]whole{
		"struct":    {{}, {Inner: zero}},
		"pointer":   {{Pointer: &part{}}, {Pointer: &zero}},
		"slice":     {{Parts: []part{zero, {}}}, {Parts: []part{{}, zero}}},
		"map":       {{Named: map[string]part{"a": zero, "b": {}}}, {Named: map[string]part{"a": {}, "b": zero}}},
		"interface": {{Any: part{}}, {Any: map[string]any{"limit": "0"}}},
		"lists":     {{}, {Lists: lists{Names: []string{}}}},
	} {
		shapes := &difference.Shapes{}
		var encoded, contents, zeros [2]string
		for i, value := range pair {
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			content := map[string]any{}
			if err := json.Unmarshal(text, &content); err != nil {
				t.Fatal(err)
			}
			shapes.DropUnset(reflect.ValueOf(value), content)
			encoded[i], contents[i], zeros[i] = string(text), fmt.Sprint(content), string(shapes.AppendZeros(nil, reflect.ValueOf(value)))
		}
		if encoded[0] != encoded[1] || contents[0] == contents[1] {
			t.Errorf("%s: %s and %s have the contents %s and %s", name, encoded[0], encoded[1], contents[0], contents[1])
		}
		if zeros[0] == zeros[1] {
			t.Errorf("%s: contents %s and %s are not distinguished", name, contents[0], contents[1])
		}
	}
}
