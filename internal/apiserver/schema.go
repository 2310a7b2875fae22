package apiserver

import (
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Names of types in the schema. The types of kinds have the name of the kind.
const (
	typeMetadata  = "ObjectMeta"
	typeOwner     = "OwnerReference"
	typeCondition = "Condition"
	typeDeduced   = "deduced" // maps are separable, lists are atomic
	typeAtomic    = "atomic"
	typeOther     = "other" // a kind without a schema of its own
)

// newSchema returns the types of server-side apply: which fields, elements of lists and entries of maps can have managers
// of their own. It has the built-in kinds with complete rules, and a type for all other kinds. client-go has a schema of
// all built-in kinds; the parsing of its YAML takes too long for each process of tests.
func newSchema() *typed.Parser {
	text, number, boolean, time := scalar(smd.String), scalar(smd.Numeric), scalar(smd.Boolean), scalar(smd.Untyped)
	texts := separable(text)
	object := func(fields ...smd.StructField) smd.Atom {
		return structure(append(fields, member("apiVersion", text), member("kind", text), member("metadata", typeRef(typeMetadata)))...)
	}
	other := object()
	other.Map.ElementType = typeRef(typeDeduced)
	return &typed.Parser{Schema: smd.Schema{Types: []smd.TypeDef{
		{Name: "ConfigMap", Atom: object(member("data", texts), member("binaryData", texts), member("immutable", boolean))},
		{Name: "Secret", Atom: object(member("data", texts), member("stringData", texts), member("immutable", boolean), member("type", text))},
		{Name: "Namespace", Atom: object(
			member("spec", inline(structure(member("finalizers", list(text, smd.Atomic))))),
			member("status", inline(structure(member("phase", text), member("conditions", list(typeRef(typeCondition), smd.Associative, "type"))))),
		)},
		{Name: typeCondition, Atom: structure(member("type", text), member("status", text), member("reason", text), member("message", text),
			member("lastTransitionTime", time))},
		{Name: "Lease", Atom: object(member("spec", inline(structure(
			member("holderIdentity", text), member("leaseDurationSeconds", number), member("acquireTime", time), member("renewTime", time),
			member("leaseTransitions", number), member("strategy", text), member("preferredHolder", text),
		))))},
		{Name: typeOther, Atom: other},
		{Name: typeMetadata, Atom: structure(
			member("name", text), member("generateName", text), member("namespace", text), member("selfLink", text), member("uid", text),
			member("resourceVersion", text), member("generation", number), member("creationTimestamp", time), member("deletionTimestamp", time),
			member("deletionGracePeriodSeconds", number), member("labels", texts), member("annotations", texts),
			member("ownerReferences", list(typeRef(typeOwner), smd.Associative, "uid")), member("finalizers", list(text, smd.Associative)),
			member("managedFields", list(typeRef(typeDeduced), smd.Atomic)),
		)},
		{Name: typeOwner, Atom: ownerReference(text, boolean)},
		{Name: typeDeduced, Atom: untyped(typeDeduced, smd.Separable)},
		{Name: typeAtomic, Atom: untyped(typeAtomic, smd.Atomic)},
	}}}
}

func ownerReference(text, boolean smd.TypeRef) smd.Atom {
	owner := structure(member("apiVersion", text), member("kind", text), member("name", text), member("uid", text),
		member("controller", boolean), member("blockOwnerDeletion", boolean))
	owner.Map.ElementRelationship = smd.Atomic
	return owner
}

// untyped is any value. Its maps have elements of the type named elements.
func untyped(elements string, relationship smd.ElementRelationship) smd.Atom {
	value := smd.Untyped
	return smd.Atom{
		Scalar: &value,
		List:   &smd.List{ElementType: typeRef(typeAtomic), ElementRelationship: smd.Atomic},
		Map:    &smd.Map{ElementType: typeRef(elements), ElementRelationship: relationship},
	}
}

func structure(fields ...smd.StructField) smd.Atom { return smd.Atom{Map: &smd.Map{Fields: fields}} }

func member(name string, ref smd.TypeRef) smd.StructField {
	return smd.StructField{Name: name, Type: ref}
}

func scalar(kind smd.Scalar) smd.TypeRef { return inline(smd.Atom{Scalar: &kind}) }

func separable(element smd.TypeRef) smd.TypeRef {
	return inline(smd.Atom{Map: &smd.Map{ElementType: element}})
}

func list(element smd.TypeRef, relationship smd.ElementRelationship, keys ...string) smd.TypeRef {
	return inline(smd.Atom{List: &smd.List{ElementType: element, ElementRelationship: relationship, Keys: keys}})
}

func inline(atom smd.Atom) smd.TypeRef { return smd.TypeRef{Inlined: atom} }

func typeRef(name string) smd.TypeRef { return smd.TypeRef{NamedType: &name} }
