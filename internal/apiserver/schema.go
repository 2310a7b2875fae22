package apiserver

import (
	"sync"

	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/evenkeel-go/evenkeel/internal/apiserver/applyschema"
)

// typeOther is the type of a kind without a schema: only its metadata has one.
const typeOther = "other"

// newTypes returns the function from a kind to its type for server-side apply. All types are in one schema, which the first
// use builds.
func newTypes(kinds []*Kind) func(*Kind) typed.ParseableType {
	parser := sync.OnceValue(func() *typed.Parser { return newParser(kinds) })
	return func(k *Kind) typed.ParseableType {
		if k.Types != nil {
			return *k.Types
		}
		if !k.custom() {
			if t := parser().Type(applyschema.Name(k.GroupVersionKind)); t.IsValid() {
				return t
			}
		}
		return parser().Type(typeOther)
	}
}

// newParser returns the types of the built-in kinds, and typeOther.
func newParser(kinds []*Kind) *typed.Parser {
	names := []string{applyschema.ObjectMeta, applyschema.Deduced}
	for _, kind := range kinds {
		if !kind.custom() {
			names = append(names, applyschema.Name(kind.GroupVersionKind))
		}
	}
	text := smd.String
	other := &smd.Map{
		Fields: []smd.StructField{
			{Name: "apiVersion", Type: smd.TypeRef{Inlined: smd.Atom{Scalar: &text}}},
			{Name: "kind", Type: smd.TypeRef{Inlined: smd.Atom{Scalar: &text}}},
			{Name: "metadata", Type: smd.TypeRef{NamedType: new(applyschema.ObjectMeta)}},
		},
		ElementType: smd.TypeRef{NamedType: new(applyschema.Deduced)},
	}
	return &typed.Parser{Schema: smd.Schema{
		Types: append(applyschema.Types(names...), smd.TypeDef{Name: typeOther, Atom: smd.Atom{Map: other}}),
	}}
}
