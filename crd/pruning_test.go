package crd_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"

	"github.com/evenkeel-go/evenkeel/crd"
	"github.com/evenkeel-go/evenkeel/internal/crdtest"
)

// FuzzCompareReportsPruning prunes objects with the API server's own code after a schema change: if it drops
// a field, Compare must report the change as Lossy.
func FuzzCompareReportsPruning(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		for i := range uint64(25) {
			compareAndPrune(t, maker{rand.New(rand.NewPCG(seed, i))})
		}
	})
}

func compareAndPrune(t *testing.T, generator maker) {
	t.Helper()
	spec := generator.schema(3)
	before := definition(t, nil, crdtest.Version{Name: "v1", Schema: objectOf(spec)})
	after := definition(t, nil, crdtest.Version{Name: "v1", Schema: objectOf(generator.changed(spec, 3))})
	problems := crd.Compare(before, after)
	if slices.ContainsFunc(problems, func(p crd.Problem) bool { return strings.HasPrefix(p.String(), "lossy: ") }) {
		return
	}
	stored, next := structural(t, before), structural(t, after)
	for range 10 {
		objectBefore := map[string]any{"spec": generator.value(spec)}
		pruning.Prune(objectBefore, stored, true)
		objectAfter := copied(t, objectBefore)
		pruning.Prune(objectAfter, next, true)
		if diff := cmp.Diff(objectBefore, objectAfter); diff != "" {
			t.Fatalf("Compare did not report this loss, but %v (-stored +read):\n%s\nthe schemas (-before +after):\n%s", problems, diff,
				cmp.Diff(before.Spec.Versions[0].Schema, after.Spec.Versions[0].Schema))
		}
	}
}

func objectOf(spec apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
	return &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec}}
}

// structural returns the form of a schema that the API server uses to prune.
func structural(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) *schema.Structural {
	t.Helper()
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(d.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	s, err := schema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	if errs := schema.ValidateStructural(nil, s); len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return s
}

func copied(t *testing.T, value map[string]any) (out map[string]any) {
	t.Helper()
	encoded, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(encoded, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// maker generates random schemas and values.
type maker struct{ *rand.Rand }

// oneOf returns true with probability 1/n.
func (m maker) oneOf(n int) bool { return m.IntN(n) == 0 }

// schema returns a random schema with at most depth nested levels.
func (m maker) schema(depth int) (s apiextensionsv1.JSONSchemaProps) {
	kind := m.IntN(8)
	if depth == 0 {
		kind = 4 + m.IntN(4)
	}
	switch kind {
	case 0, 1:
		s.Type, s.Properties = "object", map[string]apiextensionsv1.JSONSchemaProps{}
		for _, name := range []string{"a", "b"} {
			if !m.oneOf(3) {
				s.Properties[name] = m.schema(depth - 1)
			}
		}
		s.XPreserveUnknownFields = m.perhaps()
	case 2:
		values := m.schema(depth - 1)
		s.Type, s.AdditionalProperties = "object", &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &values}
		if m.oneOf(4) {
			s.AdditionalProperties.Schema = nil
		}
	case 3:
		items := m.schema(depth - 1)
		s.Type, s.Items = "array", &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}
		s.XPreserveUnknownFields = m.perhaps()
	case 4:
		s.XPreserveUnknownFields = new(true)
		if depth > 0 && m.oneOf(2) {
			s.Properties = map[string]apiextensionsv1.JSONSchemaProps{"a": m.schema(depth - 1)}
		}
	case 5:
		s.XIntOrString = true
	default:
		s.Type = []string{"string", "integer", "object"}[m.IntN(3)]
	}
	return s
}

func (m maker) perhaps() *bool {
	if m.oneOf(4) {
		return new(true)
	}
	return nil
}

// changed returns a copy of the schema with a random change.
func (m maker) changed(s apiextensionsv1.JSONSchemaProps, depth int) apiextensionsv1.JSONSchemaProps {
	s = *s.DeepCopy()
	values := s.AdditionalProperties
	switch {
	case m.oneOf(3):
		return m.schema(max(depth, 0))
	case s.Properties != nil && !m.oneOf(4):
		name := []string{"a", "b"}[m.IntN(2)]
		if before, ok := s.Properties[name]; !ok {
			s.Properties[name] = m.schema(max(depth-1, 0))
		} else if s.Properties[name] = m.changed(before, depth-1); m.oneOf(4) {
			delete(s.Properties, name)
		}
	case s.Items != nil && !m.oneOf(4):
		*s.Items.Schema = m.changed(*s.Items.Schema, depth-1)
	case values != nil && values.Schema != nil && !m.oneOf(4):
		*values.Schema = m.changed(*values.Schema, depth-1)
	case s.Type == "object" || s.Type == "array":
		if s.XPreserveUnknownFields == nil {
			s.XPreserveUnknownFields = new(true)
		} else {
			s.XPreserveUnknownFields = nil
		}
	}
	return s
}

// value returns a random JSON value that the schema accepts.
func (m maker) value(s apiextensionsv1.JSONSchemaProps) any {
	kept := s.XPreserveUnknownFields != nil
	switch {
	case s.Type == "integer" || s.XIntOrString && m.oneOf(2):
		return 1.0
	case s.Type == "string" || s.XIntOrString:
		return "x"
	case s.Type == "array":
		items := *s.Items.Schema
		if kept && reflect.DeepEqual(items, apiextensionsv1.JSONSchemaProps{Type: "object"}) {
			items.XPreserveUnknownFields = new(true) // inherited from the list
		}
		return []any{m.value(items), m.value(items)}
	case s.Type == "" && len(s.Properties) == 0 && m.oneOf(2):
		return m.anything()
	}
	fields := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !m.oneOf(4) {
			fields[name] = m.value(s.Properties[name])
		}
	}
	for _, name := range []string{"a", "b", "more"} {
		_, named := s.Properties[name]
		values := s.AdditionalProperties
		switch {
		case named || m.oneOf(2):
		case values != nil && values.Schema != nil:
			fields[name] = m.value(*values.Schema)
		case values != nil || kept:
			fields[name] = m.anything()
		}
	}
	return fields
}

func (m maker) anything() any {
	return []any{
		"x", 1.0, map[string]any{"a": 1.0, "more": map[string]any{"a": "x"}}, []any{map[string]any{"a": 1.0}}, []any{[]any{map[string]any{"more": 1.0}}},
	}[m.IntN(5)]
}
