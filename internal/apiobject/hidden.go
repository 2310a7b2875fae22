package apiobject

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// HiddenText replaces a hidden value.
const HiddenText = "(hidden)"

// HiddenFields are the fields of kinds whose values are not shown. The zero value has those of Secrets. It is safe for
// concurrent use.
type HiddenFields struct {
	mu    sync.RWMutex
	paths map[schema.GroupKind][][]string // guarded by mu; elements are immutable
}

// Add adds a path such as `spec.users.token` or `data["tls.key"]`.
func (s *HiddenFields) Add(kind schema.GroupKind, path string) error {
	steps, err := ParsePath(path)
	if err != nil {
		return fmt.Errorf("field %q of %s: %w", path, kind, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.paths == nil {
		s.paths = map[schema.GroupKind][][]string{}
	}
	s.paths[kind] = append(s.paths[kind], steps)
	return nil
}

// Empty reports whether no field was added.
func (s *HiddenFields) Empty() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.paths) == 0
}

// InGroup reports whether Hides is true for a kind in a group of which a field was added.
func (s *HiddenFields) InGroup(group, path string) bool {
	s.mu.RLock()
	kinds := slices.Collect(maps.Keys(s.paths))
	s.mu.RUnlock()
	return slices.ContainsFunc(kinds, func(kind schema.GroupKind) bool {
		return kind.Group == group && s.Hides(kind, path)
	})
}

// Hides reports whether the value at path contains a hidden value, or is a part of one. A path can have elements of
// lists and keys in brackets, as in spec.users[web].token or metadata.annotations[example.com/key].
func (s *HiddenFields) Hides(kind schema.GroupKind, path string) bool {
	s.mu.RLock()
	paths := s.paths[kind]
	s.mu.RUnlock()
	secret := kind.Kind == "Secret" // of any group
	if len(paths) == 0 && !secret {
		return false
	}
	parts := splitPath(path)
	hides := func(steps []string) bool { return overlap(steps, parts) }
	return secret && (hides([]string{"data"}) || hides([]string{"stringData"})) ||
		// a copy of the object
		hides([]string{"metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"}) ||
		slices.ContainsFunc(paths, hides)
}

// ShownPath returns path as it may be shown. Keys of maps and names of elements are values, so it ends at a hidden
// field, and names of elements that are a hidden field of them are replaced. The keys of a Secret's data are shown.
// hides is HiddenFields.Hides for the kind.
func ShownPath(path string, hides func(path string) bool) string {
	shown := ""
	for rest := path; rest != ""; {
		if HidesKeys(shown, hides) {
			return shown
		}
		if inner, found := strings.CutPrefix(rest, "["); found {
			text, after := cutBracket(inner)
			isNameHidden := func(field string) bool { return hides(shown + "." + field) }
			if !isHidden(shown, hides) && namesHidden(text, isNameHidden) {
				shown += "[" + HiddenText + "]"
			} else {
				shown += rest[:len(rest)-len(after)]
			}
			rest = after
			continue
		}
		end := 1 + strings.IndexAny(rest[1:], ".[")
		if end == 0 {
			end = len(rest)
		}
		shown, rest = shown+rest[:end], rest[end:]
	}
	return shown
}

// HidesKeys reports whether the keys below path are hidden values: those of a hidden field, but for a Secret's data.
func HidesKeys(path string, hides func(path string) bool) bool {
	if path == "" || !isHidden(path, hides) {
		return false
	}
	isSecret := isHidden("data", hides) && isHidden("stringData", hides)
	return !isSecret || path != "data" && path != "stringData"
}

// isHidden reports whether the whole value at path is hidden, and not only a part of it: a field that does not exist is
// hidden only then.
func isHidden(path string, hides func(path string) bool) bool { return hides(path + ".\x00") }

// namesHidden reports whether the text in brackets contains a hidden field of the element: "web" is the value of one
// of the usual fields then, and otherwise it is like "name=web,port=80".
func namesHidden(text string, hides func(field string) bool) bool {
	if !strings.Contains(text, "=") {
		_, err := strconv.ParseUint(text, 10, 64)
		return err != nil && slices.ContainsFunc([]string{"name", "type", "key"}, hides)
	}
	for pair := range strings.SplitSeq(text, ",") {
		if field, _, _ := strings.Cut(pair, "="); hides(field) {
			return true
		}
	}
	return false
}

// HideInText replaces what ShownPath hides in the paths of fields in a text.
func HideInText(text string, hides func(path string) bool) string {
	paths := regexp.MustCompile(`[A-Za-z][\w-]*(?:\.[^\s.:,;"'\\\[\]()]+|\[[^\]]*\])+`)
	return paths.ReplaceAllStringFunc(text, func(path string) string { return ShownPath(path, hides) })
}

// pathPart is a name, or the text in a pair of brackets.
type pathPart struct {
	text    string
	bracket bool
}

func splitPath(path string) (parts []pathPart) {
	for path != "" {
		if inner, found := strings.CutPrefix(path, "["); found {
			text, rest := cutBracket(inner)
			parts, path = append(parts, pathPart{text, true}), rest
			continue
		}
		path = strings.TrimPrefix(path, ".")
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			end = len(path)
		}
		if end > 0 {
			parts = append(parts, pathPart{text: path[:end]})
		}
		path = path[end:]
	}
	return parts
}

// cutBracket splits the text after a "[" behind the closing bracket. Keys are not escaped, but may be quoted.
func cutBracket(inner string) (text, rest string) {
	end := len(inner)
	for i := range inner {
		if inner[i] == ']' && (i+1 == len(inner) || inner[i+1] == '.' || inner[i+1] == '[') {
			end = i
			break
		}
	}
	text, rest = inner[:end], strings.TrimPrefix(inner[end:], "]")
	if key, err := strconv.Unquote(text); err == nil {
		text = key
	}
	return text, rest
}

// overlap reports whether one of the two paths leads to the other. Steps do not contain elements of lists. A pair of
// brackets where a step with a dot or a slash is expected is a key, unless it has the form of an element; the rest of
// the path can show that it is an element nevertheless. Otherwise it can be an element. The API server's errors have
// keys with dots without brackets: "spec.options.tls.key".
func overlap(steps []string, parts []pathPart) bool {
	step := "" // the rest of the first of steps
	for i, p := range parts {
		if step == "" {
			if len(steps) == 0 {
				return true
			}
			step, steps = steps[0], steps[1:]
		}
		after, isBegin := strings.CutPrefix(step, p.text+".")
		switch {
		case p.text == step:
			step = ""
		case isBegin && !p.bracket:
			step = after
		case !p.bracket:
			return false
		case strings.ContainsAny(step, "./") && !isElement(p.text):
			rest := parts[i+1:]
			return len(rest) > 0 && overlap(append([]string{step}, steps...), rest)
		}
	}
	return true
}

// isElement reports whether the text in brackets has the form of an element of a list: an index, a plain word, or
// "name=web".
func isElement(text string) bool {
	return !strings.ContainsAny(text, "./") || strings.Contains(text, "=")
}
