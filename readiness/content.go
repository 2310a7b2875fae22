package readiness

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// object is the input of rules: an object of any Go type as unstructured content. Rules must not change it,
// because the content of an unstructured object is the caller's.
type object struct {
	kind    schema.GroupKind
	content map[string]any
}

// newObject returns obj as unstructured content. ok is false if the content cannot be read; problem is the
// reason, and empty if obj is a PartialObjectMetadata.
func newObject(obj kube.Object) (o object, problem string, ok bool) {
	o = object{kind: kindOf(obj)}
	switch obj := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return o, "", false
	case *unstructured.Unstructured:
		o.content = obj.Object
		return o, "", true
	}
	if t := reflect.TypeOf(obj); t.Kind() != reflect.Pointer {
		return o, fmt.Sprintf("the object cannot be read: type %s is not a pointer to a struct", t), false
	}
	// apimachinery's converter is not faster, includes unexported fields, and panics for some types.
	var err error
	if o.content, err = difference.ContentExcept(obj, isUnread); err != nil {
		return o, "the object cannot be read: " + err.Error(), false
	}
	return o, "", true
}

// isUnread reports whether rules do not read a field: they read generations, statuses, and specs without the template
// of other objects. In most objects that is the smaller part.
func isUnread(field, inner string) bool {
	switch field {
	case "metadata":
		return inner != "" && inner != "generation"
	case "spec":
		return inner == "template"
	}
	return field != "status"
}

// kindOf returns the kind of obj from its TypeMeta, or else from its Go type. Objects that a program creates
// often have an empty TypeMeta. The result is empty if both sources fail.
func kindOf(obj kube.Object) schema.GroupKind {
	if kind := obj.GetObjectKind().GroupVersionKind(); kind.Kind != "" {
		return kind.GroupKind()
	}
	if kind, ok := apiobject.BuiltinKind(obj); ok {
		return kind.GroupKind()
	}
	// apiobject.BuiltinKind does not cover these two API packages, because each is a separate module.
	t := reflect.TypeOf(obj)
	if t.Kind() != reflect.Pointer {
		return schema.GroupKind{}
	}
	t = t.Elem()
	switch path := t.PkgPath(); {
	case strings.HasPrefix(path, "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/"):
		return schema.GroupKind{Group: groupCRD, Kind: t.Name()}
	case strings.HasPrefix(path, "k8s.io/kube-aggregator/pkg/apis/apiregistration/"):
		return schema.GroupKind{Group: groupAPIService, Kind: t.Name()}
	}
	return schema.GroupKind{}
}

// at returns the value at path, or nil.
func at(content any, path ...string) any {
	for _, name := range path {
		fields, ok := content.(map[string]any)
		if !ok {
			return nil
		}
		content = fields[name]
	}
	return content
}

// string returns the string at path, or "".
func (o object) string(path ...string) string { return stringAt(o.content, path...) }

func stringAt(content any, path ...string) string {
	s, _ := at(content, path...).(string)
	return s
}

// number returns the integer at path, and whether it exists.
func (o object) number(path ...string) (int64, bool) { return numberAt(o.content, path...) }

func numberAt(content any, path ...string) (int64, bool) {
	switch n := at(content, path...).(type) {
	case int64:
		return n, true
	case int32: // this type and the following ones occur in content that a program has built
		return int64(n), true
	case int:
		return int64(n), true
	case float64:
		return int64(n), true
	}
	return 0, false
}

// statusCount returns an integer of the status. A missing field is 0, because the API server omits zeros.
func (o object) statusCount(field string) int64 {
	n, _ := o.number("status", field)
	return n
}

// generation returns metadata.generation, or 0 for kinds that do not have it.
func (o object) generation() int64 {
	n, _ := o.number("metadata", "generation")
	return n
}

// items returns the elements of the list at path that are maps.
func (o object) items(path ...string) []map[string]any {
	list, _ := at(o.content, path...).([]any)
	items := make([]map[string]any, 0, len(list))
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			items = append(items, fields)
		}
	}
	return items
}

// condition is an entry of status.conditions.
type condition struct {
	status  metav1.ConditionStatus
	reason  string
	message string
	// observedGeneration is 0 if the condition does not have it.
	observedGeneration int64
}

// condition returns the condition of this type, and whether it exists.
func (o object) condition(conditionType string) (condition, bool) {
	for _, c := range o.items("status", "conditions") {
		if stringAt(c, "type") == conditionType {
			observed, _ := numberAt(c, "observedGeneration")
			return condition{
				status: metav1.ConditionStatus(stringAt(c, "status")), reason: stringAt(c, "reason"),
				message: stringAt(c, "message"), observedGeneration: observed,
			}, true
		}
	}
	return condition{}, false
}

// isStale reports whether c describes another generation of o: an earlier one, or, after an object was
// restored from a backup with its status, a higher one of the original object.
func (c condition) isStale(o object) bool {
	generation := o.generation()
	return c.observedGeneration != 0 && generation != 0 && c.observedGeneration != generation
}

// hasCondition returns the condition of this type, and whether it has this status and is not stale.
func (o object) hasCondition(conditionType string, status metav1.ConditionStatus) (condition, bool) {
	c, found := o.condition(conditionType)
	return c, found && c.status == status && !c.isStale(o)
}

// describe returns the reason and message of c as a suffix: ": Reason: message", ": message", ": Reason" or "".
func (c condition) describe() string {
	switch {
	case c.message != "" && c.reason != "":
		return ": " + c.reason + ": " + c.message
	case c.message != "" || c.reason != "":
		return ": " + c.message + c.reason
	}
	return ""
}
