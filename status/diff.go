package status

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// changeSet is what a run has changed in a status.
type changeSet struct {
	// fields is the merge patch of everything but the conditions.
	fields map[string]any
	// conditions are the run's own; others may write to the list too.
	conditions []conditionChange
}

// conditionChange is what a run did to the condition of one type. from is nil for one that is
// new, to for one that was removed.
type conditionChange struct {
	conditionType string
	from, to      any
}

// conditionsField is where the conditions are.
const conditionsField = "conditions"

// Fields of conditions; observedField is one of the status too.
const (
	sinceField    = "lastTransitionTime"
	observedField = "observedGeneration"
)

func (s changeSet) empty() bool { return len(s.fields) == 0 && len(s.conditions) == 0 }

// difference returns what makes to of from.
func difference(from, to map[string]any) (changeSet, error) {
	before, listed := conditionList(from)
	after, stillListed := conditionList(to)
	if !listed || !stillListed {
		// Something else of that name: a field as any.
		return changeSet{fields: mergePatch(from, to)}, nil
	}
	if err := errors.Join(checkTypes(before, after, "before the run"), checkTypes(after, before, "now")); err != nil {
		return changeSet{}, err
	}
	return changeSet{fields: mergePatch(without(from, conditionsField), without(to, conditionsField)), conditions: conditionChanges(before, after)}, nil
}

// conditionList returns the conditions of a status; false when what is there is no list of
// objects, or none of them has a type. A list that is missing is an empty one.
func conditionList(status map[string]any) ([]any, bool) {
	value := status[conditionsField]
	if value == nil {
		return nil, true
	}
	list, ok := value.([]any)
	typed := len(list) == 0
	for _, entry := range list {
		c, isObject := entry.(map[string]any)
		_, isText := c["type"].(string)
		ok, typed = ok && isObject, typed || isText
	}
	return list, ok && typed
}

func typeOf(condition any) string {
	c, _ := condition.(map[string]any)
	conditionType, _ := c["type"].(string)
	return conditionType
}

// checkTypes finds what would make it unclear which condition is whose, among those that are not
// the same in other.
func checkTypes(list, other []any, when string) error {
	for i, entry := range list {
		switch conditionType := typeOf(entry); {
		case reflect.DeepEqual(allOf(list, conditionType), allOf(other, conditionType)):
		case conditionType == "":
			return fmt.Errorf("status.conditions[%d] has no type %s: set one", i, when)
		case indexOf(list, conditionType) != i:
			return fmt.Errorf("status.conditions has two of type %q %s: remove one", conditionType, when)
		}
	}
	return nil
}

// allOf returns the conditions of a type: one, or none, unless somebody has been sloppy.
func allOf(list []any, conditionType string) []any {
	return slices.DeleteFunc(slices.Clone(list), func(entry any) bool { return typeOf(entry) != conditionType })
}

func indexOf(list []any, conditionType string) int {
	return slices.IndexFunc(list, func(entry any) bool { return typeOf(entry) == conditionType })
}

func find(list []any, conditionType string) any {
	if i := indexOf(list, conditionType); i >= 0 {
		return list[i]
	}
	return nil
}

func conditionChanges(before, after []any) []conditionChange {
	var changes []conditionChange
	for _, to := range after {
		if !reflect.DeepEqual(allOf(before, typeOf(to)), allOf(after, typeOf(to))) {
			changes = append(changes, conditionChange{typeOf(to), find(before, typeOf(to)), to})
		}
	}
	for _, from := range before {
		if indexOf(after, typeOf(from)) < 0 {
			changes = append(changes, conditionChange{typeOf(from), from, nil})
		}
	}
	return changes
}

// made returns what the change makes of a condition; nil is one that is not there. What the run
// has never seen in it stays.
func (c conditionChange) made(condition any) any {
	_, isObject := c.to.(map[string]any)
	is, there := condition.(map[string]any)
	if !isObject || !there {
		return c.to
	}
	made := maps.Clone(is)
	for _, name := range c.removed() {
		delete(made, name)
	}
	maps.Copy(made, c.written(is))
	return made
}

// written returns the fields that the change writes into a condition: the run's, but for the time of
// the last transition. That stays where the condition has the run's status already. It is now where
// the run has not changed the status, and others have.
func (c conditionChange) written(is map[string]any) map[string]any {
	to, _ := c.to.(map[string]any)
	from, _ := c.from.(map[string]any)
	if is[sinceField] == nil || to[sinceField] == nil {
		return to
	}
	since := to[sinceField]
	keptStatus := reflect.DeepEqual(from["status"], to["status"])
	switch {
	case keptStatus && !reflect.DeepEqual(from[sinceField], since): // the run's own correction
	case reflect.DeepEqual(is["status"], to["status"]):
		since = is[sinceField]
	case keptStatus:
		since = now().Format(time.RFC3339)
	}
	to = maps.Clone(to)
	to[sinceField] = since
	return to
}

// isOutdated reports whether a condition, as it is in the cluster, is about a later generation of the
// object than the change, which was made for the given one unless it says otherwise, and than the
// condition that the run has found.
func (c conditionChange) isOutdated(is any, generation int64) bool {
	condition, _ := is.(map[string]any)
	from, _ := c.from.(map[string]any)
	to, _ := c.to.(map[string]any)
	if own := generationIn(to); own > 0 {
		generation = own
	}
	return generation > 0 && generationIn(condition) > max(generation, generationIn(from))
}

// generationIn returns the observedGeneration of a condition, or of a status; 0 when it has none.
func generationIn(fields map[string]any) int64 {
	switch observed := fields[observedField].(type) {
	case int64:
		return observed
	case float64:
		return int64(observed)
	}
	return 0
}

// removed returns the fields that the change takes from the condition, in order.
func (c conditionChange) removed() []string {
	to, _ := c.to.(map[string]any)
	from, _ := c.from.(map[string]any)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(from)) {
		if _, stays := to[name]; !stays {
			names = append(names, name)
		}
	}
	return names
}

// says reports whether a condition has what another one has, and perhaps more; nil is one that is not
// there.
func says(condition, other any) bool {
	is, there := condition.(map[string]any)
	fields, was := other.(map[string]any)
	if !there || !was {
		return there == was
	}
	for name, value := range fields {
		if !reflect.DeepEqual(is[name], value) {
			return false
		}
	}
	return true
}

// apply returns list with the changes made: each condition keeps its place, new ones come last.
func apply(changes []conditionChange, list []any) []any {
	list = slices.Clone(list)
	for _, change := range changes {
		i := indexOf(list, change.conditionType)
		switch {
		case i < 0 && change.to != nil:
			list = append(list, change.to)
		case i >= 0 && change.to == nil:
			list = slices.Delete(list, i, i+1)
		case i >= 0:
			list[i] = change.made(list[i])
		}
	}
	return list
}

// contested returns the path of a field that a run changes by a merge patch, and that others have
// changed to something else since it was as in from; "" when there is none.
func contested(patch, from, live map[string]any, path string) string {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		value, was, is := patch[name], from[name], live[name]
		at := path + "." + name
		if inner, isObject := value.(map[string]any); isObject {
			wasFields, _ := was.(map[string]any)
			isFields, _ := is.(map[string]any)
			if field := contested(inner, wasFields, isFields, at); field != "" {
				return field
			}
			continue
		}
		if !reflect.DeepEqual(is, was) && !reflect.DeepEqual(is, value) && (filled(is) || filled(was)) {
			return at
		}
	}
	return ""
}

// mergePatch returns the JSON merge patch (RFC 7386) that makes to of from.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name, value := range to {
		old, was := from[name]
		if was && reflect.DeepEqual(old, value) || !was && value == nil {
			continue
		}
		oldFields, wasObject := old.(map[string]any)
		fields, isObject := value.(map[string]any)
		if wasObject && isObject {
			if inner := mergePatch(oldFields, fields); len(inner) > 0 { // else they differ in nulls
				patch[name] = inner
			}
			continue
		}
		patch[name] = value
	}
	for name, value := range from {
		if _, is := to[name]; !is && value != nil {
			patch[name] = nil
		}
	}
	return patch
}

func without(fields map[string]any, name string) map[string]any {
	rest := maps.Clone(fields)
	delete(rest, name)
	return rest
}
