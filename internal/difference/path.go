// Package difference compares values as they are decoded from JSON, and makes the patches that turn one into the other.
//
// Paths of fields have one notation in the whole library:
//
//   - spec.template.spec.containers[web].image: the elements of a list of objects have the name in their field name,
//     type or key, if each element of both lists has one that is unique in its list.
//   - spec.rules[0].host: otherwise their index. Any other list is one value.
//   - metadata.labels[app.kubernetes.io/name]: keys other than letters, digits, "-" and "_" are in brackets.
package difference

import (
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// Step is a field of an object, or an element of a list.
type Step struct {
	// Name is the name of the field or the element; empty: the element has none.
	Name string
	// Index is the index of the element, in the list that has it; -1 for a field.
	Index int
}

// Path leads to a value. An empty path is the whole value.
type Path []Step

// String returns the path in the notation of the package.
func (p Path) String() string { return p.text(false) }

// Indexed returns the path with the index of each element in place of its name. In this form, unlike in that of String,
// brackets with another text than a number always have a key.
func (p Path) Indexed() string { return p.text(true) }

func (p Path) text(indexed bool) string {
	var b strings.Builder
	for _, step := range p {
		switch {
		case step.Index < 0 && isPlain(step.Name):
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step.Name)
			continue
		case step.Index >= 0 && (indexed || step.Name == ""):
			step.Name = strconv.Itoa(step.Index)
		}
		b.WriteString("[" + step.Name + "]")
	}
	return b.String()
}

// Shown returns the path as it may be shown: without the keys below a hidden field, and without names of elements that
// are a hidden field of them. hides is HiddenFields.Hides for the kind. See apiobject.ShownPath for paths of which only
// the text is known, in which a name may look like an index.
func (p Path) Shown(hides func(path string) bool) string {
	shown := slices.Clone(p)
	for i, step := range p {
		at := p[:i+1]
		if apiobject.HidesKeys(at.Indexed(), hides) {
			return shown[:i+1].String()
		}
		isNameHidden := func(field string) bool { return hides(at.Field(field).Indexed()) }
		if step.Index >= 0 && step.Name != "" && slices.ContainsFunc(nameFields(), isNameHidden) {
			shown[i].Name = apiobject.HiddenText
		}
	}
	return shown.String()
}

// nameFields returns the fields that name an element of a list, the first that names all elements before the others.
func nameFields() []string { return []string{"name", "type", "key"} }

// isPlain reports whether a key needs no brackets.
func isPlain(key string) bool {
	return key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
}

// Field returns the path of a field of the object at p.
func (p Path) Field(name string) Path { return append(slices.Clip(p), Step{name, -1}) }

// Element returns the path of an element of list, the list at p.
func (p Path) Element(list []any, index int) Path {
	step := Step{Index: index}
	if names, _ := namesOf(list); names != nil {
		step.Name = names[index]
	}
	return append(slices.Clip(p), step)
}

// namesOf returns the names of the elements of all lists, one after the other, from the first field that names the
// elements of each list. It returns nil if there is none. indexes has the index of each name in each list.
func namesOf(lists ...[]any) (names []string, indexes []map[string]int) {
	for _, field := range nameFields() {
		if names, indexes = namesIn(field, lists); names != nil {
			return names, indexes
		}
	}
	return nil, nil
}

func namesIn(field string, lists [][]any) (names []string, indexes []map[string]int) {
	for _, list := range lists {
		known := make(map[string]int, len(list))
		for i, element := range list {
			fields, _ := element.(map[string]any)
			name, _ := fields[field].(string)
			if _, twice := known[name]; twice || name == "" {
				return nil, nil
			}
			known[name] = i
			names = append(names, name)
		}
		indexes = append(indexes, known)
	}
	return names, indexes
}
