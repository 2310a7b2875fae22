package status

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/difference"
)

// changeSet contains the changes of a run to a status.
type changeSet struct {
	// fields is the merge patch of everything except the conditions.
	fields map[string]any
	// conditions are those that the run has changed; other clients may write others in the list.
	conditions []conditionChange
}

// conditionChange is the change of the condition of one type. from is nil for a new condition, to for a removed one.
type conditionChange struct {
	conditionType string
	from, to      condition
}

// condition has the fields of a condition; nil: it does not exist.
type condition = map[string]any

// conditionsField is the field of the conditions in the status.
const conditionsField = "conditions"

// Fields of conditions. A status may have observedField too.
const (
	sinceField    = "lastTransitionTime"
	observedField = "observedGeneration"
)

func (s changeSet) empty() bool { return len(s.fields) == 0 && len(s.conditions) == 0 }

// changesOf returns the changes that turn from into to.
func changesOf(from, to map[string]any) (changeSet, error) {
	before, listed := conditionList(from)
	after, stillListed := conditionList(to)
	if !listed || !stillListed {
		// The field has another type, so it is handled like any other field.
		return changeSet{fields: difference.MergePatch(from, to)}, nil
	}
	if err := errors.Join(checkTypes(before, after, "before the run"), checkTypes(after, before, "now")); err != nil {
		return changeSet{}, err
	}
	return changeSet{
		fields: difference.MergePatch(difference.Without(from, []string{conditionsField}),
			difference.Without(to, []string{conditionsField})),
		conditions: conditionChanges(before, after),
	}, nil
}

// conditionList returns the conditions of a status. It returns false if the field is not a list of objects, or none
// of them has a type. A missing list is empty.
func conditionList(status map[string]any) (list []condition, ok bool) {
	value := status[conditionsField]
	if value == nil {
		return nil, true
	}
	entries, ok := value.([]any)
	typed := len(entries) == 0
	for _, entry := range entries {
		c, isObject := entry.(condition)
		_, isText := c["type"].(string)
		ok, typed = ok && isObject, typed || isText
		list = append(list, c)
	}
	return list, ok && typed
}

func typeOf(c condition) string {
	conditionType, _ := c["type"].(string)
	return conditionType
}

// checkTypes returns an error if changed conditions, compared to other, have no type or a type that occurs twice.
func checkTypes(list, other []condition, when string) error {
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

// allOf returns the conditions of a type: at most one, unless the list is invalid.
func allOf(list []condition, conditionType string) []condition {
	return slices.DeleteFunc(slices.Clone(list), func(c condition) bool { return typeOf(c) != conditionType })
}

func indexOf(list []condition, conditionType string) int {
	return slices.IndexFunc(list, func(c condition) bool { return typeOf(c) == conditionType })
}

func find(list []condition, conditionType string) condition {
	if i := indexOf(list, conditionType); i >= 0 {
		return list[i]
	}
	return nil
}

func conditionChanges(before, after []condition) []conditionChange {
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

// appliedTo returns a condition with the change applied. Fields that the run has never read stay.
func (c conditionChange) appliedTo(current condition) condition {
	if c.to == nil || current == nil {
		return c.to
	}
	changed := maps.Clone(current)
	for _, name := range c.removed() {
		delete(changed, name)
	}
	maps.Copy(changed, c.written(current))
	return changed
}

// written returns the fields that the change writes to a condition: those of the run except lastTransitionTime. The
// existing time stays if the condition already has the run's status. It becomes now if the run has not changed the
// status and another client has.
func (c conditionChange) written(current condition) condition {
	from, to := c.from, c.to
	if current[sinceField] == nil || to[sinceField] == nil {
		return to
	}
	since := to[sinceField]
	keptStatus := reflect.DeepEqual(from["status"], to["status"])
	switch {
	case keptStatus && !reflect.DeepEqual(from[sinceField], since): // the run's own correction
	case reflect.DeepEqual(current["status"], to["status"]):
		since = current[sinceField]
	case keptStatus:
		since = now().Format(time.RFC3339)
	}
	to = maps.Clone(to)
	to[sinceField] = since
	return to
}

// isOutdated reports whether the current condition in the cluster is about a later generation than both the change
// and the condition in before. generation is that of the change, unless its condition has an observedGeneration.
func (c conditionChange) isOutdated(current condition, generation int64) bool {
	if own := generationIn(c.to); own > 0 {
		generation = own
	}
	return generation > 0 && generationIn(current) > max(generation, generationIn(c.from))
}

// generationIn returns the observedGeneration of a condition or a status; 0 if it has none.
func generationIn(fields map[string]any) int64 {
	switch observed := fields[observedField].(type) {
	case int64:
		return observed
	case float64:
		return int64(observed)
	}
	return 0
}

// removed returns the fields that the change removes from the condition, sorted.
func (c conditionChange) removed() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.from)), func(name string) bool {
		_, remains := c.to[name]
		return remains
	})
}

// contains reports whether a condition has all fields of another one with the same values.
func contains(got, want condition) bool {
	if got == nil || want == nil {
		return got == nil && want == nil
	}
	for name, value := range want {
		if !reflect.DeepEqual(got[name], value) {
			return false
		}
	}
	return true
}

// apply returns list with the changes applied. Conditions keep their positions, and new ones are appended.
func apply(changes []conditionChange, list []condition) []condition {
	list = slices.Clone(list)
	for _, change := range changes {
		i := indexOf(list, change.conditionType)
		switch {
		case i < 0 && change.to != nil:
			list = append(list, change.to)
		case i >= 0 && change.to == nil:
			list = slices.Delete(list, i, i+1)
		case i >= 0:
			list[i] = change.appliedTo(list[i])
		}
	}
	return list
}

// contested returns the path of a field that the run changes in a merge patch and that another client has changed to
// another value since from; "" if no field is contested.
func contested(patch, from, live map[string]any, path string) string {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		value, old, current := patch[name], from[name], live[name]
		at := path + "." + name
		if inner, isObject := value.(map[string]any); isObject {
			oldFields, _ := old.(map[string]any)
			currentFields, _ := current.(map[string]any)
			if field := contested(inner, oldFields, currentFields, at); field != "" {
				return field
			}
			continue
		}
		if !reflect.DeepEqual(current, old) && !reflect.DeepEqual(current, value) && (filled(current) || filled(old)) {
			return at
		}
	}
	return ""
}
