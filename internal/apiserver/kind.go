package apiserver

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Kind is a kind that a server serves. Builtin and Custom create kinds. A Kind must not change after New.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the kind's name in paths, such as configmaps. Singular is its name in discovery.
	Resource, Singular string
	// ListKind is the kind of lists of a custom resource. Default: Kind and List.
	ListKind      string
	ShortNames    []string
	Categories    []string // such as all
	ClusterScoped bool
	// Status is true if the kind has the subresource status. Then creates and updates of the object ignore the status,
	// and updates of the subresource ignore the spec (of custom resources: everything but the status).
	Status bool
	// StatusOnCreate is true if creates do not ignore the status.
	StatusOnCreate bool
	// Generation is true if the kind counts changes of everything except metadata and, with Status, the status. All
	// custom resources do; of the built-in kinds, those with a spec that controllers act on.
	Generation bool
	// UnconditionalUpdate is true if an update without a resourceVersion replaces any version.
	UnconditionalUpdate bool
	// CreateOnUpdate is true if an update of a missing object creates it.
	CreateOnUpdate bool
	// Uncached is true if the real server has no cache of the kind: reads and watches have the limits and errors of
	// etcd.
	Uncached bool

	// Scale is nil if the kind does not have the subresource scale.
	Scale *Scale
	// Subresources are further subresources with which clients read and write a part of the object.
	Subresources []string
	// Managed are the fields that a write to a subresource ("": to the object) can make managed. Default: all fields;
	// of writes to the object and to the status, those that they do not ignore.
	Managed map[string]fieldpath.Filter
	// NewObject returns an empty object of the kind's Go type, which AddToScheme registers together with its list type.
	// Both are nil for custom resources.
	NewObject   func() Object
	AddToScheme func(*runtime.Scheme) error
	// Rules are the validation and the defaults of the kind.
	Rules Rules
	// Deprecation is a warning that is sent with each response. Empty: none.
	Deprecation string
	// Storage is the kind as which objects are stored: another version of the same resource, which need not be served.
	// Nil: this kind.
	Storage *Kind
	// From converts an object of another version of the resource, or one that was stored when the kind had another
	// definition, to this kind. It must not change obj. It is required of kinds with several versions, and of kinds
	// that Serve replaces.
	From func(obj Object) (Object, error)
	// External is true if From calls another program: it can fail, and two results for one object can differ. As in the
	// real server, whose watch caches contain converted objects, lists, watches and writes then use the first result
	// for an object, and a get and a delete convert it again.
	External bool
	// Convert is From for parts of objects, whose managed fields are computed: it adds and removes nothing. Nil: From.
	Convert func(obj Object) (Object, error)
	// CheckCreate returns an error if objects cannot be created now, which becomes the reason of a response 403.
	CheckCreate func(*Server) error
	// Committed is called after each committed write of an object of this storage kind, as described at Observe.
	Committed func(*Server, Change)
	// Types is the schema of server-side apply. Default: the built-in kinds of package applyschema have their real
	// schema. In other kinds only metadata has it; lists are atomic, and maps are separable.
	Types *typed.ParseableType
	// review returns the response to a created object, which is not stored: Reviews has such kinds. It calls admit when
	// the object is valid. Nil: the objects are stored.
	review func(r *request, obj Object, admit func() error) (Object, error)
	// OpenAPI is the schema of a custom resource in version 3 of OpenAPI, as JSON. Default: all fields are preserved.
	OpenAPI json.RawMessage
}

// storage returns the kind as which objects are stored.
func (k *Kind) storage() *Kind {
	if k.Storage != nil {
		return k.Storage
	}
	return k
}

// convert returns the object in the form of the kind.
func (k *Kind) convert(obj Object) (Object, error) {
	if k.From == nil {
		return nil, errors.New("the kind has no function From")
	}
	converted, err := k.From(obj)
	switch {
	case err != nil:
		return nil, err
	case converted.GetName() != obj.GetName() || converted.GetNamespace() != obj.GetNamespace() ||
		converted.GetUID() != obj.GetUID():
		return nil, errors.New("the conversion changed the name, the namespace or the uid")
	}
	return converted, nil
}

// subresources returns the subresources with managed fields of their own; "" is the object itself.
func (k *Kind) subresources() []string {
	names := []string{""}
	if k.Status {
		names = append(names, "status")
	}
	// the kind of a subresource
	if slices.Contains([]string{scaleSubresource, bindingSubresource, evictionSubresource, tokenSubresource},
		k.Resource) {
		names = []string{k.Resource}
	}
	if k.namespace() {
		names = append(names, "finalize")
	}
	return append(names, k.Subresources...)
}

// Rules are the parts of a kind's behaviour that differ between kinds. Each function may be nil. The functions must not
// keep or change old objects.
type Rules struct {
	// Coerce removes from a decoded custom resource what its schema does not have, and returns a text for each unknown
	// field if strict is true. It runs before Default.
	Coerce func(obj Object, strict bool) (unknown []error, err error)
	// Default completes a decoded object.
	Default func(Object)
	// Admit does what admission plugins of the real server do to a written object before webhooks review it, and again
	// after they have changed it; old is nil for a new object.
	Admit func(obj, old Object)
	// Allocate completes an object before Prepare with values that no other object has; old is nil for a new object.
	Allocate func(obj, old Object, stored Stored) error
	// Prepare normalizes an object before it is validated; old is nil for a new object.
	Prepare func(obj, old Object)
	// Blank sets the fields that the object of a bookmark has besides its metadata.
	Blank func(Object)
	// PrepareStatus normalizes an object in an update of the status. Its spec is that of old already.
	PrepareStatus func(obj, old Object)
	// PrepareSubresource normalizes an object in an update of one of Kind.Subresources: it keeps the rest of old.
	PrepareSubresource func(subresource string, obj, old Object)
	// StatusIgnores are the fields of metadata that PrepareStatus does not let change, such as labels.
	StatusIgnores []string
	// StatusIgnoresMetadata is true if updates of the status change no metadata, besides the managed fields.
	StatusIgnoresMetadata bool
	// Stored changes a valid object to the form in which the real server reads it back from etcd. It reports whether
	// that form has other bytes than the stored one: then the next write is a change, even if it writes the same
	// object.
	Stored func(Object) (rewritten bool)
	// Canonicalize completes a valid new object, when its name is known.
	Canonicalize func(Object)
	// Validate returns what is wrong with an object; old is nil for a new object. The rules for metadata of all kinds
	// are checked besides. Kinds check them again where the real server does, because its responses contain each cause.
	Validate func(obj, old Object) field.ErrorList
	// ValidateSubresource is Validate for updates of a subresource. Nil: Validate.
	ValidateSubresource func(subresource string, obj, old Object) field.ErrorList
	// Check replaces Validate and ValidateSubresource if validation can add warnings. subresource is empty for the
	// object.
	Check func(subresource string, obj, old Object, warn func(text ...string)) field.ErrorList
	// Permit returns why an admission plugin of the real server forbids a valid update, and the reason that the
	// response has as a cause, if any. find returns a Node, or nil without an error if nodes exist without an object.
	Permit func(
		subresource string, obj, old Object, find func(node string) (Object, error),
	) (cause metav1.CauseType, err error)
	// Fields returns the selectable fields besides metadata.name and metadata.namespace. FieldLabels are their names in
	// requests.
	Fields      func(Object) fields.Set
	FieldLabels []string
	// UnknownField is the format of the message about another field. Default: the one of most kinds.
	UnknownField string
	// Warnings are sent with a successful write; old is nil for a new object.
	Warnings func(obj, old Object) []string
	// GracePeriod returns the seconds for which a deleted object stays, and which another client can shorten; requested
	// is nil or not negative. Nil: an object without finalizers is deleted at once.
	GracePeriod func(obj Object, requested *int64) int64
	// Terminate changes an object when its deletion begins: it gets a deletion timestamp, and stays. Nil: only objects
	// with finalizers or a grace period stay.
	Terminate func(Object)
	// OrphanDependents is true if a deletion without a policy orphans the dependents. OrphanWarning is sent with it.
	OrphanDependents bool
	OrphanWarning    string
	// NoGarbageCollection is true if a deletion ignores the policy for dependents, and removes the finalizers of the
	// garbage collector.
	NoGarbageCollection bool
	// ReturnDeleted is true if the response to a delete contains the object, not a Status.
	ReturnDeleted bool
}

// Stored is what Rules.Allocate needs of the server.
type Stored struct {
	Objects []Object      // of the kind, also those of requests that have allocated values and not stored them yet
	Random  func() uint64 // returns the next random number for the object
	DryRun  bool          // the object will not be stored
}

// Builtin returns a kind with the Go type T, which addToScheme registers, together with its list type. The kind has the
// rules of the real server for metadata, but no defaults and no validation of other fields. The caller sets the
// remaining fields of the Kind.
func Builtin[T any, P interface {
	*T
	Object
}](gvk schema.GroupVersionKind, resource string, addToScheme func(*runtime.Scheme) error,
) *Kind {
	return &Kind{
		GroupVersionKind: gvk, Resource: resource, UnconditionalUpdate: true,
		NewObject: func() Object { return P(new(T)) }, AddToScheme: addToScheme,
	}
}

// Custom returns the kind of a custom resource without a schema: all fields are preserved.
func Custom(gvk schema.GroupVersionKind, resource string) *Kind {
	return &Kind{
		GroupVersionKind: gvk, Resource: resource, Generation: true,
		Rules: customRules(gvk),
	}
}

func (k *Kind) custom() bool { return k.NewObject == nil }

func (k *Kind) namespace() bool { return k.Group == "" && k.Resource == "namespaces" }

// empty returns an object without content, to decode into.
func (k *Kind) empty() Object {
	if k.custom() {
		return &unstructured.Unstructured{}
	}
	return k.NewObject()
}

// blank returns an object with nothing but its kind.
func (k *Kind) blank() Object {
	obj := k.empty()
	obj.GetObjectKind().SetGroupVersionKind(k.GroupVersionKind)
	return obj
}

func (k *Kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}
}

func (k *Kind) listKind() string { return cmp.Or(k.ListKind, k.Kind+"List") }

func (k *Kind) singular() string {
	if k.Singular != "" {
		return k.Singular
	}
	return strings.ToLower(k.Kind)
}

func (k *Kind) selectableFields(obj Object) fields.Set {
	set := fields.Set{}
	if k.Rules.Fields != nil {
		set = k.Rules.Fields(obj)
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
		if kind == k.Kind {
			return "*unstructured.Unstructured"
		}
		return "*unstructured.UnstructuredList"
	}
	group, _, _ := strings.Cut(k.storage().Group, ".")
	return "*" + cmp.Or(group, "core") + "." + kind
}

// checkFieldLabel returns an error if requests cannot select by a field.
func (k *Kind) checkFieldLabel(label string) error {
	own := k.custom() || k.Rules.FieldLabels != nil // other kinds have the rule of all kinds of apimachinery
	switch {
	case label == "metadata.name", label == "metadata.namespace" && (!own || !k.ClusterScoped),
		slices.Contains(k.Rules.FieldLabels, label):
		return nil
	case k.Rules.UnknownField != "":
		return fmt.Errorf(k.Rules.UnknownField, label)
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
