package apiserver

import (
	"slices"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/evenkeel-go/evenkeel/internal/apiserver/applyschema"
)

// typeOther is the type of a kind without a schema: only its metadata has one.
const typeOther = "other"

// newTypes returns the function from a kind to its type for server-side apply. All types are in one schema, which the
// first use builds.
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
	names := []string{applyschema.ObjectMeta, applyschema.Deduced, applyschema.Atomic}
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
	own := append(subresourceTypes(other.Fields), smd.TypeDef{Name: typeOther, Atom: smd.Atom{Map: other}})
	return &typed.Parser{Schema: smd.Schema{Types: append(applyschema.Types(names...), own...)}}
}

// subresourceTypes returns the types of Scale and Binding, which client-go does not have. common are the fields of all
// kinds.
func subresourceTypes(common []smd.StructField) []smd.TypeDef {
	text, number := smd.String, smd.Numeric
	scalar := func(name string, s *smd.Scalar) smd.StructField {
		return smd.StructField{Name: name, Type: smd.TypeRef{Inlined: smd.Atom{Scalar: s}}}
	}
	object := func(name string, fields ...smd.StructField) smd.StructField {
		return smd.StructField{Name: name, Type: smd.TypeRef{Inlined: smd.Atom{Map: &smd.Map{Fields: fields}}}}
	}
	define := func(gvk schema.GroupVersionKind, fields ...smd.StructField) smd.TypeDef {
		return smd.TypeDef{
			Name: applyschema.Name(gvk),
			Atom: smd.Atom{Map: &smd.Map{Fields: slices.Concat(common, fields)}},
		}
	}
	target := smd.StructField{Name: "target", Type: smd.TypeRef{NamedType: new(applyschema.Atomic)}}
	return []smd.TypeDef{
		define(autoscalingv1.SchemeGroupVersion.WithKind("Scale"), object("spec", scalar("replicas", &number)),
			object("status", scalar("replicas", &number), scalar("selector", &text))),
		define(corev1.SchemeGroupVersion.WithKind("Binding"), target),
	}
}
