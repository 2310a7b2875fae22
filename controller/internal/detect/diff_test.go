package detect

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string
		want          []FieldChange
	}{
		"equal":         {before: `{"a":{"b":[1,{"c":2}]}}`, after: `{"a":{"b":[1,{"c":2}]}}`},
		"scalar":        {before: `{"spec":{"replicas":3,"x":true}}`, after: `{"spec":{"replicas":5,"x":true}}`, want: []FieldChange{{"spec.replicas", nil, "3", "5"}}},
		"another type":  {before: `{"port":"80"}`, after: `{"port":80}`, want: []FieldChange{{"port", nil, `"80"`, "80"}}},
		"same number":   {before: `{"ratio":3}`, after: `{"ratio":3.0}`},
		"null is none":  {before: `{"spec":{"a":null}}`, after: `{"spec":{}}`},
		"empty is some": {before: `{"spec":{"a":{}}}`, after: `{"spec":{}}`, want: []FieldChange{{"spec.a", nil, "{}", ""}}},
		"added and removed": {
			before: `{"spec":{"a":{"x":1}}}`, after: `{"spec":{"b":[]}}`,
			want: []FieldChange{{"spec.a", nil, `{"x":1}`, ""}, {"spec.b", nil, "", "[]"}},
		},
		"ignored": {
			before: `{"kind":"A","metadata":{"uid":"1","resourceVersion":"1","generation":1,"creationTimestamp":null,"managedFields":[{}]}}`,
			after:  `{"kind":"B","metadata":{"uid":"2","resourceVersion":"2","generation":2,"creationTimestamp":"2026-11-20T08:00:00Z"}}`,
		},
		"not ignored elsewhere": {before: `{"spec":{"generation":1}}`, after: `{"spec":{"generation":2}}`, want: []FieldChange{{"spec.generation", nil, "1", "2"}}},
		"labels": {
			before: `{"metadata":{"labels":{"app":"a","example.com/team":"x"}}}`, after: `{"metadata":{"labels":{"app":"b","example.com/team":"y"}}}`,
			want: []FieldChange{{"metadata.labels.app", nil, `"a"`, `"b"`}, {"metadata.labels[example.com/team]", nil, `"x"`, `"y"`}},
		},
		"list by name, in another order": {
			before: `{"c":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}`, after: `{"c":[{"name":"b","image":"2"},{"name":"a","image":"1"}]}`,
			want: []FieldChange{{"c[b].image", nil, `"1"`, `"2"`}},
		},
		"list by type, with one more": {
			before: `{"conditions":[{"type":"Ready","status":"True"}]}`,
			after:  `{"conditions":[{"type":"Old","status":"x"},{"type":"Ready","status":"False"}]}`,
			want: []FieldChange{
				{"conditions[Ready].status", nil, `"True"`, `"False"`},
				{"conditions[Old]", nil, "", `{"status":"x","type":"Old"}`},
			},
		},
		"list by place: a name comes twice": {
			before: `{"c":[{"name":"a","x":1},{"name":"a","x":2}]}`, after: `{"c":[{"name":"a","x":1},{"name":"a","x":3},{"name":"b"}]}`,
			want: []FieldChange{{"c[1].x", nil, "2", "3"}, {"c[2]", nil, "", `{"name":"b"}`}},
		},
		"list of values": {before: `{"args":["a","b"]}`, after: `{"args":["b"]}`, want: []FieldChange{{"args", nil, `["a","b"]`, `["b"]`}}},
		"list in another order": {
			before: `{"c":[{"name":"a"},{"name":"b"}]}`, after: `{"c":[{"name":"b"},{"name":"a"}]}`,
			want: []FieldChange{{"c", nil, `[{"name":"a"},{"name":"b"}]`, `[{"name":"b"},{"name":"a"}]`}},
		},
		"list becomes object": {before: `{"x":[{}]}`, after: `{"x":{}}`, want: []FieldChange{{"x", nil, "[{}]", "{}"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var before, after map[string]any
			for text, into := range map[string]*map[string]any{test.before: &before, test.after: &after} {
				if err := json.Unmarshal([]byte(text), into); err != nil {
					t.Fatal(err)
				}
			}
			if test.before == test.after {
				after = before
			}
			got, known := changesOf(before, after)
			for i := range got {
				got[i].At = nil
			}
			if diff := cmp.Diff(test.want, got); diff != "" || !known {
				t.Errorf("known: %t (-want +got):\n%s", known, diff)
			}
		})
	}
}

// A write with more than maxFields changes is not part of a loop.
func TestManyChangesAreNotCompared(t *testing.T) {
	t.Parallel()
	for count, want := range map[int]bool{maxFields: true, maxFields + 1: false} {
		before, after := map[string]any{}, map[string]any{}
		for i := range count {
			after[fmt.Sprint("field-", i)] = true
		}
		if changes, known := changesOf(before, after); known != want || len(changes) != maxFields {
			t.Errorf("%d changes: known %t, %d returned", count, known, len(changes))
		}
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for encoded, want := range map[string]bool{
		`"2026-11-20T08:30:15Z"`:        true,
		`"2026-11-20T08:30:15.123456Z"`: true,
		`"2026-11-20T08:30:15+01:00"`:   true,
		`"2026-11-20"`:                  false,
		`"this is noT a time at all"`:   false,
		`"2026-99-20T08:30:15Z"`:        false,
		"":                              false,
		"5":                             false,
	} {
		if looksLikeTime(encoded) != want {
			t.Errorf("%s: a time %t, want %t", encoded, !want, want)
		}
	}
}

// TestContent checks that Protobuf and JSON of the same state have the same fields.
func TestContent(t *testing.T) {
	t.Parallel()
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u", ResourceVersion: "1"},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		}},
	}
	asProto, err := wire.FromObject(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	changed := d.DeepCopy()
	changed.Spec.Template.Spec.Containers[0].Image, changed.ResourceVersion = "web:2", "2"
	encoded, err := json.Marshal(changed)
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := wire.Parse(encoded, nil)
	if err != nil {
		t.Fatal(err)
	}
	twin := func() kube.Object { return &appsv1.Deployment{} }
	before, err := wire.Content(asProto, twin)
	if err != nil || asProto.Format != wire.Protobuf {
		t.Fatal(asProto.Format, err)
	}
	after, err := wire.Content(asJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := changesOf(before, after)
	at := difference.Path(nil).Field("spec").Field("template").Field("spec").Field("containers")
	at = append(at, difference.Step{Name: "web"}).Field("image")
	want := []FieldChange{{"spec.template.spec.containers[web].image", at, `"web:1"`, `"web:2"`}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := wire.Content(asProto, nil); err == nil {
		t.Error("protobuf was decoded without knowing its type")
	}
}

// TestOnlyMetadataDiffer checks that the fields of the metadata are compared one by one, if one state has none of those
// that differ.
func TestOnlyMetadataDiffer(t *testing.T) {
	t.Parallel()
	state := func(version int, metadata string) *wire.Object {
		o, err := wire.Parse(fmt.Appendf(nil, `{"metadata":{"name":"a","uid":"1","resourceVersion":"%d"%s}}`, version, metadata), nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	with, without := state(1, `,"annotations":{"shop/token":"x"}`), state(2, "")
	for _, states := range [][2]*wire.Object{{with, without}, {without, with}} {
		changes, known := compare(&Step{}, states[0], states[1])
		if !known || len(changes) != 1 || changes[0].Path != "metadata.annotations" {
			t.Errorf("the changes are %+v, want one of metadata.annotations", changes)
		}
	}
	// Another client removes the handler's annotation each time, and every other time also its label.
	h := NewHotLoops(4096, 0)
	now, began, last := time.Unix(0, 0), 0, without
	for i := range 20 {
		now = now.Add(time.Second)
		label := ""
		if i%2 == 0 {
			label = `,"labels":{"a":"b"}`
		}
		undone := state(2*i+3, label)
		h.Changed(shopWeb, &Step{Kind: site, Object: shopWeb, Before: last, After: undone, Manager: "other"}, now)
		last = state(2*i+4, `,"labels":{"a":"b"},"annotations":{"shop/token":"x"}`)
		e, begins := h.Wrote(shopWeb, &Step{
			Kind: site, Object: shopWeb, Before: undone, After: last, Run: uint64(i + 1), //nolint:gosec // positive
			Causes: []Cause{{Changed: true, Kind: site, Object: shopWeb, ResourceVersion: undone.ResourceVersion}},
		}, now)
		if begins {
			began++
			if e.Pattern != PatternUndone || !strings.Contains(e.Message, "metadata.annotations") {
				t.Errorf("found %+v", e)
			}
		}
	}
	if began != 1 {
		t.Errorf("%d episodes, want one", began)
	}
}

// TestStatesOfOtherObjectsAreNotCompared checks that states in different API versions or of different objects are not
// compared, because every difference would look like a change.
func TestStatesOfOtherObjectsAreNotCompared(t *testing.T) {
	t.Parallel()
	parse := func(text string) *wire.Object {
		o, err := wire.Parse([]byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	before := parse(`{"apiVersion":"example.com/v1","kind":"Site","metadata":{"name":"a","uid":"1"},"spec":{"x":1}}`)
	for name, test := range map[string]struct {
		after string
		known bool
	}{
		"the same":        {after: `{"apiVersion":"example.com/v1","kind":"Site","metadata":{"name":"a","uid":"1"},"spec":{"x":2}}`, known: true},
		"no version":      {after: `{"metadata":{"name":"a","uid":"1"},"spec":{"x":2}}`, known: true}, // as in protobuf
		"another version": {after: `{"apiVersion":"example.com/v2","kind":"Site","metadata":{"name":"a","uid":"1"},"spec":{"y":1}}`},
		"another object":  {after: `{"apiVersion":"example.com/v1","kind":"Site","metadata":{"name":"a","uid":"2"},"spec":{"x":2}}`},
	} {
		changes, known := compare(&Step{}, before, parse(test.after))
		if known != test.known || known != (len(changes) == 1) {
			t.Errorf("%s: known %t, changes %v", name, known, changes)
		}
	}
}
