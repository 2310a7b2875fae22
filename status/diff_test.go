package status

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func decoded(tb testing.TB, text string) map[string]any {
	tb.Helper()
	var content map[string]any
	if err := json.Unmarshal([]byte(text), &content); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return content
}

func TestDifference(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		from, to   string
		fields     string
		conditions []conditionChange
		err        string
	}{
		"nothing":               {from: `{"a":1,"conditions":[{"type":"A"}]}`, to: `{"a":1,"conditions":[{"type":"A"}]}`, fields: `{}`},
		"another order":         {from: `{"conditions":[{"type":"A"},{"type":"B"}]}`, to: `{"conditions":[{"type":"B"},{"type":"A"}]}`, fields: `{}`},
		"an empty list":         {from: `{}`, to: `{"conditions":[]}`, fields: `{}`},
		"a field":               {from: `{"a":1}`, to: `{"a":2}`, fields: `{"a":2}`},
		"conditions of a field": {from: `{"a":{"conditions":[{"type":"A"}]}}`, to: `{}`, fields: `{"a":null}`},
		"conditions": {
			from: `{"conditions":[{"type":"A","status":"True"},{"type":"B"},{"type":"C"}]}`,
			to:   `{"conditions":[{"type":"D"},{"type":"B"},{"type":"A","status":"False"}]}`, fields: `{}`,
			conditions: []conditionChange{
				{"D", nil, map[string]any{"type": "D"}},
				{"A", map[string]any{"type": "A", "status": "True"}, map[string]any{"type": "A", "status": "False"}},
				{"C", map[string]any{"type": "C"}, nil},
			},
		},
		"other conditions": {from: `{"conditions":["A"]}`, to: `{"conditions":["B"]}`, fields: `{"conditions":["B"]}`},
		"no type":          {from: `{}`, to: `{"conditions":[{"type":""}]}`, err: "status.conditions[0] has no type"},
		"two of a type":    {from: `{}`, to: `{"conditions":[{"type":"A"},{"type":"A"}]}`, err: `two of type "A"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := changesOf(decoded(t, test.from), decoded(t, test.to))
			if err != nil || test.err != "" {
				if err == nil || test.err == "" || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %q", err, test.err)
				}
				return
			}
			want := changeSet{decoded(t, test.fields), test.conditions}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(changeSet{}, conditionChange{})); diff != "" {
				t.Errorf("the difference (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApply(t *testing.T) {
	t.Parallel()
	entry := func(conditionType, status string) condition {
		return map[string]any{"type": conditionType, "status": status}
	}
	changes := []conditionChange{
		{"A", entry("A", "1"), entry("A", "2")},
		{"B", entry("B", "1"), nil},
		{"C", nil, entry("C", "2")},
		{"D", nil, entry("D", "2")},
		{"E", entry("E", "1"), nil},
		{"F", entry("F", "1"), entry("F", "2")},
	}
	live := []condition{entry("F", "1"), entry("X", "9"), entry("C", "9"), entry("B", "1"), entry("Y", "9"), entry("A", "1")}
	got := apply(changes, live)
	want := []condition{entry("F", "2"), entry("X", "9"), entry("C", "2"), entry("Y", "9"), entry("A", "2"), entry("D", "2")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if len(live) != 6 || live[0]["status"] != "1" || live[2]["status"] != "9" {
		t.Error("the live list was changed")
	}
}

func TestFilledIgnoresZeros(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		value any
		want  bool
	}{
		{"null", nil, false},
		{"empty string", "", false},
		{"string", "a", true},
		{"false", false, false},
		{"true", true, true},
		{"integer zero", int64(0), false},
		{"integer", int64(1), true},
		{"float zero", float64(0), false}, // from a type with a MarshalJSON that writes 0.0
		{"float", 0.5, true},
		{"empty list", []any{}, false},
		{"list", []any{nil}, true},
		{"empty object", map[string]any{}, false},
		{"object of zeros", map[string]any{"a": int64(0), "b": map[string]any{"c": ""}}, false},
		{"object", map[string]any{"a": int64(0), "b": map[string]any{"c": "d"}}, true},
	} {
		if got := filled(test.value); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
}
