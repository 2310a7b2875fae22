package informer

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	operators "k8s.io/apimachinery/pkg/selection"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// selection describes the objects that a part selects, as far as an object shows whether it is selected. The zero value
// means that the selection is unknown.
type selection struct {
	namespace string               // empty: all
	names     []fields.Requirement // the requirements on metadata.name and metadata.namespace
	fields    []fields.Requirement // the requirements on other fields
	labels    labels.Selector      // nil: all
	known     bool                 // the selection has no other conditions
}

// selects returns the selection of r. Errors in the selection are in r.problem.
func (r *clusterRetriever[T]) selects() selection {
	s := selection{namespace: r.namespace, known: true}
	if selector, err := fields.ParseSelector(r.fields); err == nil {
		for _, requirement := range selector.Requirements() {
			if requirement == (fields.Requirement{Operator: operators.NotEquals, Field: fieldName}) {
				continue // every object has a name
			}
			if requirement.Field == fieldName || requirement.Field == fieldNamespace {
				s.names = append(s.names, requirement)
			} else {
				s.fields = append(s.fields, requirement)
			}
		}
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

// has reports whether the written object is selected, or was selected when it was deleted. content returns the fields
// of the written object, or nil if they are not known.
func (s selection) has(w cache.Write, content func() map[string]any) belongs {
	switch {
	case s.excludes(w.Key):
		return never
	case s.labels == nil && len(s.fields) == 0:
		return perhaps
	case w.Object == nil: // deleted: the cache shows whether it was selected
		return notNow
	case s.labels != nil && !s.labels.Matches(labels.Set(w.Object.Labels())):
		return notNow
	}
	for _, requirement := range s.fields {
		if known := content(); known != nil && !fieldMeets(known, requirement) {
			return notNow
		}
	}
	return perhaps
}

// excludes reports whether no object with this key is selected, in any state. An empty name or namespace means any.
func (s selection) excludes(key kube.Key) bool {
	if s.namespace != "" && key.Namespace != "" && key.Namespace != s.namespace {
		return true
	}
	return slices.ContainsFunc(s.names, func(requirement fields.Requirement) bool {
		isKnown := key.Name != ""
		if requirement.Field == fieldNamespace {
			isKnown = key.Namespace != ""
		}
		return isKnown && !meets(key, requirement)
	})
}

// fieldMeets reports whether a field of an object meets a requirement. The names of selectable fields are their paths.
func fieldMeets(content map[string]any, requirement fields.Requirement) bool {
	var value any = content
	for name := range strings.SplitSeq(requirement.Field, ".") {
		within, _ := value.(map[string]any)
		value = within[name]
	}
	text := fmt.Sprint(value)
	if value == nil {
		text = ""
		if requirement.Value == "false" || requirement.Value == "0" {
			text = requirement.Value // fields that are not pointers are left out when they are zero
		}
	}
	return (text == requirement.Value) == (requirement.Operator != "!=")
}

func meets(key kube.Key, requirement fields.Requirement) bool {
	value := key.Name
	if requirement.Field == fieldNamespace {
		value = key.Namespace
	}
	// Field selectors have only two operators: equal and not equal.
	return (value == requirement.Value) == (requirement.Operator != "!=")
}

// selective reports whether an object can leave the selection without being deleted.
func (s selection) selective() bool { return s.labels != nil || len(s.fields) > 0 }

// covers reports whether s selects all objects in namespace that selector matches.
func (s selection) covers(namespace string, selector labels.Selector) bool {
	if !s.known || len(s.fields) > 0 || s.namespace != "" && s.namespace != namespace {
		return false
	}
	for _, requirement := range s.names {
		if requirement.Field == fieldName || namespace == "" || !meets(kube.Key{Namespace: namespace}, requirement) {
			return false
		}
	}
	return s.labels == nil || selector != nil && implies(selector, s.labels)
}

// implies reports whether narrow contains all requirements of wide.
func implies(narrow, wide labels.Selector) bool {
	demanded, _ := narrow.Requirements()
	all, _ := wide.Requirements()
	return !slices.ContainsFunc(all, func(r labels.Requirement) bool { return !slices.ContainsFunc(demanded, r.Equal) })
}
