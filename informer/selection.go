package informer

import (
	"slices"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// selection describes the objects that a part selects, as far as an object shows whether it is selected. The zero value
// means that the selection is unknown.
type selection struct {
	namespace string               // empty: all
	names     []fields.Requirement // the requirements on metadata.name and metadata.namespace
	labels    labels.Selector      // nil: all
	fields    bool                 // there is a field selector for other fields than metadata.namespace
	known     bool                 // the selection has no other conditions
}

// selects returns the selection of r. Errors in the selection are in r.problem.
func (r *clusterRetriever[T]) selects() selection {
	s := selection{namespace: r.namespace, fields: r.fields != "", known: true}
	if selector, err := fields.ParseSelector(r.fields); err == nil {
		hasOtherFields := false
		for _, requirement := range selector.Requirements() {
			if requirement.Field == fieldName || requirement.Field == fieldNamespace {
				s.names = append(s.names, requirement)
			}
			hasOtherFields = hasOtherFields || requirement.Field != fieldNamespace
		}
		s.fields = hasOtherFields
	}
	if selector, err := labels.Parse(r.labels); err == nil && !selector.Empty() {
		s.labels = selector
	}
	return s
}

// The fields by which objects of all kinds can be selected.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// belongs is the result of checking whether an object is selected.
type belongs int

const (
	// perhaps: it is selected, or that is unknown.
	perhaps belongs = iota
	// notNow: it is not selected in this state.
	notNow
	// never: it is not selected in any state.
	never
)

// has reports whether the written object is selected, or was selected when it was deleted.
func (s selection) has(w cache.Write) belongs {
	if s.namespace != "" && w.Key.Namespace != s.namespace {
		return never
	}
	for _, requirement := range s.names {
		if !meets(w.Key, requirement) {
			return never
		}
	}
	if s.labels != nil && w.Object != nil && !s.labels.Matches(labels.Set(w.Object.Labels())) {
		return notNow
	}
	return perhaps
}

func meets(key kube.Key, requirement fields.Requirement) bool {
	value := key.Name
	if requirement.Field == fieldNamespace {
		value = key.Namespace
	}
	// Field selectors have only two operators: equal and not equal.
	return (value == requirement.Value) == (requirement.Operator != "!=")
}

// covers reports whether s selects all objects in namespace that selector matches.
func (s selection) covers(namespace string, selector labels.Selector) bool {
	if !s.known || s.fields || s.namespace != "" && s.namespace != namespace {
		return false
	}
	for _, requirement := range s.names { // on the namespace
		if namespace == "" || !meets(kube.Key{Namespace: namespace}, requirement) {
			return false
		}
	}
	return s.labels == nil || selector != nil && implies(selector, s.labels)
}

// implies reports whether narrow contains all requirements of wide.
func implies(narrow, wide labels.Selector) bool {
	demanded := requirements(narrow)
	for _, requirement := range requirements(wide) {
		if !slices.ContainsFunc(demanded, requirement.Equal) {
			return false
		}
	}
	return true
}

func requirements(selector labels.Selector) labels.Requirements {
	all, _ := selector.Requirements()
	return all
}
