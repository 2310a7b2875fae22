// Package applyschema has the schema of server-side apply of built-in kinds: which fields, elements of lists and
// entries of maps can have managers of their own. client-go has it for all kinds as YAML, which takes 100 ms to parse.
// This package has the types of some kinds in a short form, from which a process builds only the types that it uses.
//
// The package generate writes the short form. It has a line for each type, such as "core.v1.ServicePort name:s port:n=0
// protocol:s="TCP" targetPort:<util.intstr.IntOrString>": the type's name, and its fields with their types. An
// exclamation mark after the name makes the type atomic. The line of a type without fields has its type after the name.
// Types are
//
//   - s, n, b, u: a string, a number, a boolean, any scalar
//   - ?, *: any value, with separable maps and atomic lists; any value as a whole
//   - <name>: the type with that name
//   - [T], [T|], [T|key,key]: an atomic list of T, a set of T, a list of T that have these keys
//   - {T}, {T|}: a map of T, an atomic map of T
//
// Only fields that are keys of a list have a default; no other defaults matter for apply.
package applyschema

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
)

//go:generate go run ./generate

// Names of types that are not kinds.
const (
	ObjectMeta = "meta.v1.ObjectMeta"
	// Deduced is any value: maps are separable, lists are atomic.
	Deduced = "deduced"
	// Atomic is any value as a whole.
	Atomic = "atomic"
)

// Name returns the name of a kind's type.
func Name(gvk schema.GroupVersionKind) string {
	group, _, _ := strings.Cut(gvk.Group, ".")
	if group == "" {
		group = "core"
	}
	return group + "." + gvk.Version + "." + gvk.Kind
}

// Types returns types and all types that they refer to. It ignores names that the package does not have.
func Types(names ...string) []smd.TypeDef {
	b := builder{lines: lines(), names: map[string]*string{}, scalars: map[byte]*smd.Scalar{}}
	for _, scalar := range []smd.Scalar{smd.String, smd.Numeric, smd.Boolean, smd.Untyped} {
		b.scalars[scalar[0]] = &scalar
	}
	for _, name := range names {
		if _, exists := b.lines[name]; exists {
			b.refer(name)
		}
	}
	return b.types
}

// lines returns the fields of each type in the short form, after the type's name.
func lines() map[string]string {
	all := make(map[string]string, 256)
	for line := range strings.SplitSeq(source, "\n") {
		name, fields, _ := strings.Cut(line, " ")
		if atomic, isAtomic := strings.CutSuffix(name, "!"); isAtomic {
			name, fields = atomic, "! "+fields
		}
		all[name] = fields
	}
	return all
}

// builder builds types from their short form.
type builder struct {
	lines   map[string]string
	names   map[string]*string   // of the types that were referred to
	scalars map[byte]*smd.Scalar // by their first letter
	types   []smd.TypeDef
}

// refer returns a reference to a type, which it builds the first time.
func (b *builder) refer(name string) smd.TypeRef {
	pointer := b.names[name]
	if pointer == nil {
		pointer = &name
		b.names[name] = pointer
		index := len(b.types)
		b.types = append(b.types, smd.TypeDef{Name: name})
		atom := b.define(b.lines[name]) // may grow b.types
		b.types[index].Atom = atom
	}
	return smd.TypeRef{NamedType: pointer}
}

// define returns a type with the given fields.
func (b *builder) define(text string) smd.Atom {
	text, atomic := strings.CutPrefix(text, "! ")
	if !strings.Contains(text, ":") {
		t, _ := b.parse(text)
		return t.Inlined
	}
	m := &smd.Map{Fields: make([]smd.StructField, 0, strings.Count(text, " ")+1)}
	if atomic {
		m.ElementRelationship = smd.Atomic
	}
	for field := range strings.SplitSeq(text, " ") {
		name, rest, _ := strings.Cut(field, ":")
		f := smd.StructField{Name: name}
		f.Type, rest = b.parse(rest)
		if value, exists := strings.CutPrefix(rest, "="); exists {
			f.Default = strings.Trim(value, `"`)
			if number, err := strconv.Atoi(value); err == nil {
				f.Default = number
			}
		}
		m.Fields = append(m.Fields, f)
	}
	return smd.Atom{Map: m}
}

// parse returns the type at the start of text, and the rest of text.
func (b *builder) parse(text string) (t smd.TypeRef, rest string) {
	kind, text := text[0], text[1:]
	switch kind {
	case '<':
		name, rest, _ := strings.Cut(text, ">")
		return b.refer(name), rest
	case '[':
		element, rest := b.parse(text)
		inside, rest, _ := strings.Cut(rest, "]")
		l := &smd.List{ElementType: element, ElementRelationship: smd.Atomic}
		if keys, associative := strings.CutPrefix(inside, "|"); associative {
			l.ElementRelationship = smd.Associative
			if keys != "" {
				l.Keys = strings.Split(keys, ",")
			}
		}
		return smd.TypeRef{Inlined: smd.Atom{List: l}}, rest
	case '{':
		element, rest := b.parse(text)
		inside, rest, _ := strings.Cut(rest, "}")
		m := &smd.Map{ElementType: element}
		if inside == "|" {
			m.ElementRelationship = smd.Atomic
		}
		return smd.TypeRef{Inlined: smd.Atom{Map: m}}, rest
	case '?':
		return smd.TypeRef{Inlined: b.untyped(Deduced, "")}, text
	case '*':
		return smd.TypeRef{Inlined: b.untyped(Atomic, smd.Atomic)}, text
	}
	return smd.TypeRef{Inlined: smd.Atom{Scalar: b.scalars[kind]}}, text
}

// untyped is any value. Its maps have elements of the type named elements. The relationship "" is separable.
func (b *builder) untyped(elements string, relationship smd.ElementRelationship) smd.Atom {
	return smd.Atom{
		Scalar: b.scalars['u'],
		List:   &smd.List{ElementType: b.refer(Atomic), ElementRelationship: smd.Atomic},
		Map:    &smd.Map{ElementType: b.refer(elements), ElementRelationship: relationship},
	}
}
