package readiness

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/kube"
)

// object is what rules read: the same for objects of every Go type.
type object struct {
	kind    schema.GroupKind
	content map[string]any
}

// read returns obj as content. ok is false when nothing but obj's metadata is known; why says
// the reason, and is empty when obj is metadata only.
func read(obj kube.Object) (o object, why string, ok bool) {
	o = object{kind: kindOf(obj)}
	switch obj := obj.(type) {
	case *metav1.PartialObjectMetadata:
		return o, "", false
	case *unstructured.Unstructured:
		o.content = obj.Object
		return o, "", true
	}
	if t := reflect.TypeOf(obj); t.Kind() != reflect.Pointer {
		return o, fmt.Sprintf("the object cannot be read: it is a %s, and no pointer to a struct", t), false
	}
	content, err := contentOf(obj)
	if err != nil {
		return o, "the object cannot be read: " + err.Error(), false
	}
	o.content = content
	return o, "", true
}

// contentOf returns the fields of an object of a Go type, as JSON has them. The converter of
// apimachinery is no faster, takes fields along that are not exported, and panics at some.
func contentOf(obj kube.Object) (map[string]any, error) {
	encoded, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var content map[string]any
	if err := utiljson.Unmarshal(encoded, &content); err != nil {
		return nil, err
	}
	return content, nil
}

// kindOf returns the kind of obj, as far as obj or its Go type tells: objects that were read
// from a cluster carry it, those that a program has made often do not.
func kindOf(obj kube.Object) schema.GroupKind {
	if kind := obj.GetObjectKind().GroupVersionKind(); kind.Kind != "" {
		return kind.GroupKind()
	}
	if kind, ok := kube.BuiltinKind(obj); ok {
		return kind.GroupKind()
	}
	// The two API packages of Kubernetes that are modules of their own.
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

// at returns what is at a path; nil when there is nothing.
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

// text returns the string at a path; "" when there is none.
func (o object) text(path ...string) string { return textAt(o.content, path...) }

func textAt(content any, path ...string) string {
	s, _ := at(content, path...).(string)
	return s
}

// number returns the integer at a path, and whether there is one.
func (o object) number(path ...string) (int64, bool) { return numberAt(o.content, path...) }

func numberAt(content any, path ...string) (int64, bool) {
	switch n := at(content, path...).(type) {
	case int64:
		return n, true
	case int32: // in content that a program has made; the following too
		return int64(n), true
	case int:
		return int64(n), true
	case float64:
		return int64(n), true
	}
	return 0, false
}

// count returns a number of the status; 0 when it is not there, as the API server leaves zeros
// out.
func (o object) count(field string) int64 {
	n, _ := o.number("status", field)
	return n
}

// generation counts the changes of the object's spec; 0 for kinds that do not count.
func (o object) generation() int64 {
	n, _ := o.number("metadata", "generation")
	return n
}

// items returns the maps of the list at a path.
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
	// observed is the generation that it is about; 0: it does not say.
	observed int64
}

// condition returns the condition of a type, and whether there is one.
func (o object) condition(conditionType string) (condition, bool) {
	for _, c := range o.items("status", "conditions") {
		if textAt(c, "type") == conditionType {
			observed, _ := numberAt(c, "observedGeneration")
			return condition{
				status: metav1.ConditionStatus(textAt(c, "status")), reason: textAt(c, "reason"), message: textAt(c, "message"), observed: observed,
			}, true
		}
	}
	return condition{}, false
}

// isStale reports whether c is about another generation of o: an earlier one or, where an object
// was restored together with its status, one of its former life.
func (c condition) isStale(o object) bool {
	generation := o.generation()
	return c.observed != 0 && generation != 0 && c.observed != generation
}

// is reports whether the condition of a type has a status, and is not about another generation.
func (o object) is(conditionType string, status metav1.ConditionStatus) (condition, bool) {
	c, found := o.condition(conditionType)
	return c, found && c.status == status && !c.isStale(o)
}

// why returns what c says in words: ": message", ": Reason" or "".
func (c condition) why() string {
	switch {
	case c.message != "" && c.reason != "":
		return ": " + c.reason + ": " + c.message
	case c.message != "" || c.reason != "":
		return ": " + c.message + c.reason
	}
	return ""
}
