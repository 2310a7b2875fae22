package difference

import (
	"reflect"
	"slices"
)

// Walker finds the fields that differ between two values as they are decoded from JSON. A null equals a missing field.
// It is used by one goroutine.
type Walker struct {
	// Report is called for each difference: for fields in the order of their names, for elements in the order of the
	// list before, and then for new ones. path is valid during the call. If all elements of a list with names are
	// equal, but in another order, the whole list differs.
	Report func(path Path, before, after any)
	// Expand compares an object that only one of the values has field by field. Default: it is one difference. Elements
	// that only one list has are always one difference.
	Expand bool
	// WholeLists compares each list as one value. Default: lists of objects are compared element by element.
	WholeLists bool

	path  Path
	count int // of reports
}

// Walk compares two values, and calls Report for each difference.
func (w *Walker) Walk(before, after any) {
	from, fromObject := before.(map[string]any)
	to, toObject := after.(map[string]any)
	if fromObject && toObject || w.Expand && len(from)+len(to) > 0 && (before == nil || after == nil) {
		w.fields(from, to)
		return
	}
	fromList, isList := before.([]any)
	toList, areLists := after.([]any)
	if isList && areLists && !w.WholeLists && w.lists(fromList, toList) {
		return
	}
	if !Equal(before, after) {
		w.report(before, after)
	}
}

func (w *Walker) report(before, after any) {
	w.count++
	w.Report(w.path, before, after)
}

// at calls do with the path of a part of the current value.
func (w *Walker) at(step Step, do func(before, after any), before, after any) {
	w.path = append(w.path, step)
	do(before, after)
	w.path = w.path[:len(w.path)-1]
}

func (w *Walker) fields(from, to map[string]any) {
	var names []string // of the fields that may differ: most values are equal scalars
	for name, value := range from {
		if other := to[name]; !isScalar(value) || !Equal(value, other) {
			names = append(names, name)
		}
	}
	for name, value := range to {
		if _, both := from[name]; !both && value != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		w.at(Step{name, -1}, w.Walk, from[name], to[name])
	}
}

// lists compares lists of objects element by element. It returns false if they must be compared as a whole.
func (w *Walker) lists(from, to []any) bool {
	for _, list := range [][]any{from, to} {
		for _, element := range list {
			if _, isObject := element.(map[string]any); !isObject {
				return false
			}
		}
	}
	names, indexes := namesOf(from, to)
	if names != nil {
		return w.named(from, to, names, indexes[0], indexes[1])
	}
	for i := range max(len(from), len(to)) {
		switch step := (Step{Index: i}); {
		case i >= len(from):
			w.at(step, w.report, nil, to[i])
		case i >= len(to):
			w.at(step, w.report, from[i], nil)
		default:
			w.at(step, w.Walk, from[i], to[i])
		}
	}
	return true
}

// named compares the elements of lists by their names. It returns false if only their order differs.
func (w *Walker) named(from, to []any, names []string, inFrom, inTo map[string]int) bool {
	already, ordered := w.count, true
	for i, name := range names[:len(from)] {
		if j, both := inTo[name]; both {
			w.at(Step{name, i}, w.Walk, from[i], to[j])
			ordered = ordered && i == j
		} else {
			w.at(Step{name, i}, w.report, from[i], nil)
		}
	}
	for j, name := range names[len(from):] {
		if _, both := inFrom[name]; !both {
			w.at(Step{name, j}, w.report, nil, to[j])
		}
	}
	return ordered || w.count > already
}

func isScalar(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// Equal reports whether two values have the same JSON. Whole numbers equal, whether they are integers or not.
func Equal(a, b any) bool {
	switch a := a.(type) {
	case nil, string, bool:
		return a == b
	case map[string]any:
		other, ok := b.(map[string]any)
		if !ok || len(a) != len(other) {
			return false
		}
		for name, value := range a {
			if current, both := other[name]; !both || !Equal(value, current) {
				return false
			}
		}
		return true
	case []any:
		other, ok := b.([]any)
		return ok && slices.EqualFunc(a, other, Equal)
	case int64:
		if other, ok := b.(float64); ok {
			return float64(a) == other
		}
	case float64:
		if other, ok := b.(int64); ok {
			return a == float64(other)
		}
	}
	return reflect.DeepEqual(a, b)
}

// MergePatch returns the JSON merge patch (RFC 7386) that turns before into after, in which null means that the field
// must not exist. It is empty if nothing differs. It may share values with after.
func MergePatch(before, after map[string]any) map[string]any {
	patch := map[string]any{}
	w := Walker{WholeLists: true, Report: func(path Path, _, after any) {
		at, last := patch, len(path)-1
		for _, step := range path[:last] {
			inner, exists := at[step.Name].(map[string]any)
			if !exists {
				inner = map[string]any{}
				at[step.Name] = inner
			}
			at = inner
		}
		at[path[last].Name] = after
	}}
	w.Walk(before, after)
	return patch
}
