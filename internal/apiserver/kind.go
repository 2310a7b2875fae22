package apiserver

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is a kind that a server serves. Builtin and Custom create kinds. A Kind must not change after New.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the kind's name in paths, such as configmaps. Singular is its name in discovery.
	Resource, Singular string
	ShortNames         []string
	ClusterScoped      bool
	// Status is true if the kind has the subresource status. Then creates and updates of the object ignore the status, and
	// updates of the subresource ignore the spec (of custom resources: everything but the status).
	Status bool
	// Generation is true if the kind counts changes of everything except metadata and, with Status, the status. All custom
	// resources do; of the built-in kinds, those with a spec that controllers act on.
	Generation bool
	// UnconditionalUpdate is true if an update without a resourceVersion replaces any version.
	UnconditionalUpdate bool
	// CreateOnUpdate is true if an update of a missing object creates it.
	CreateOnUpdate bool

	newObject   func() object // a Go type; nil for custom resources
	addToScheme func(*runtime.Scheme) error
	rules       rules
	schema      string // the type of its objects in newSchema; "": typeOther
}

// rules are the parts of a kind's behaviour that differ between kinds. Each function may be nil.
type rules struct {
	// defaults completes a decoded object.
	defaults func(object)
	// prepare normalizes an object before it is validated; old is nil for a new object.
	prepare func(obj, old object)
	// stored changes a valid object to the form in which the real server reads it back from etcd. It reports whether that
	// form has other bytes than the stored one: then the next write is a change, even if it writes the same object.
	stored func(object) (rewritten bool)
	// canonicalize completes a valid new object, when its name is known.
	canonicalize func(object)
	// validate returns what is wrong with an object; old is nil for a new object. The rules for metadata of all kinds are
	// checked besides. Kinds check them again where the real server does, because its responses contain each cause.
	validate func(obj, old object) field.ErrorList
	// validateSubresource is validate for updates of a subresource. Nil: validate.
	validateSubresource func(subresource string, obj, old object) field.ErrorList
	// fields returns the selectable fields besides metadata.name and metadata.namespace. fieldLabels are their names in
	// requests.
	fields      func(object) fields.Set
	fieldLabels []string
	// warnings are sent with a successful write; old is nil for a new object.
	warnings func(obj, old object) []string
	// returnDeleted is true if the response to a delete contains the object, not a Status.
	returnDeleted bool
}

// Builtin returns a kind with the Go type T, which addToScheme registers, together with its list type. The kind has the
// rules of the real server for metadata, but no defaults and no validation of other fields. The caller sets the remaining
// fields of the Kind.
func Builtin[T any, P interface {
	*T
	object
}](gvk schema.GroupVersionKind, resource string, addToScheme func(*runtime.Scheme) error,
) *Kind {
	return &Kind{
		GroupVersionKind: gvk, Resource: resource, UnconditionalUpdate: true,
		newObject: func() object { return P(new(T)) }, addToScheme: addToScheme,
	}
}

// Custom returns the kind of a custom resource without a schema: all fields are preserved.
func Custom(gvk schema.GroupVersionKind, resource string) *Kind {
	return &Kind{
		GroupVersionKind: gvk, Resource: resource, Generation: true,
		rules: customRules(gvk),
	}
}

func (k *Kind) custom() bool { return k.newObject == nil }

func (k *Kind) namespace() bool { return k.Group == "" && k.Resource == "namespaces" }

// empty returns an object without content, to decode into.
func (k *Kind) empty() object {
	if k.custom() {
		return &unstructured.Unstructured{}
	}
	return k.newObject()
}

// blank returns an object with nothing but its kind.
func (k *Kind) blank() object {
	obj := k.empty()
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return obj
}

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

func (k *Kind) listKind() string { return k.Kind + "List" }

func (k *Kind) singular() string {
	if k.Singular != "" {
		return k.Singular
	}
	return strings.ToLower(k.Kind)
}

func (k *Kind) selectableFields(obj object) fields.Set {
	set := fields.Set{}
	if k.rules.fields != nil {
		set = k.rules.fields(obj)
	}
	set["metadata.name"] = obj.GetName()
	if !k.ClusterScoped {
		set["metadata.namespace"] = obj.GetNamespace()
	}
	return set
}

// internalType returns the name of the Go type of a kind in the real server, which some messages contain.
func (k *Kind) internalType(kind string) string {
	if k.custom() {
		return "*unstructured.Unstructured" + strings.TrimPrefix(kind, k.Kind)
	}
	group, _, _ := strings.Cut(k.Group, ".")
	return "*" + cmp.Or(group, "core") + "." + kind
}

// checkFieldLabel returns an error if requests cannot select by a field.
func (k *Kind) checkFieldLabel(label string) error {
	own := k.custom() || k.rules.fieldLabels != nil // other kinds have the rule of all kinds of apimachinery
	switch {
	case label == "metadata.name", label == "metadata.namespace" && (!own || !k.ClusterScoped), slices.Contains(k.rules.fieldLabels, label):
		return nil
	case own:
		return fmt.Errorf("field label not supported: %s", label)
	}
	return fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
}

// pathSegment is the rule for names of all kinds: a name must be a segment of a path.
func pathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}
