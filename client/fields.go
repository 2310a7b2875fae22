package client

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/difference"
)

// fieldsMatch reports whether a field manager's entry of managedFields has exactly the fields of a
// configuration, and the object still has the applied values. Then the same apply changes nothing: if another
// client changes or removes a field, the API server removes it from the entry, and a field of an earlier
// configuration stays in the entry.
//
// With sameConfiguration, the configuration is known to be the last applied one, and values that the API server
// or a webhook has changed do not count as differences. Without it, every value must be as configured.
//
// Values are compared in any case if the kind is not Kubernetes' own, because its schema may have changed
// since. If the elements of an atomic list get owners, or other keys, the entry does not change, and the API
// server does not update it when another client changes an element (structured-merge-diff does not support such
// a change of a schema).
//
// content returns the fields of the object. It is called on demand: for values, and for the order of lists,
// which entries do not contain.
//
// fieldsMatch returns false if it is uncertain: entries have no schema, and an API server omits some fields of
// some kinds from them.
func fieldsMatch(
	entry *metav1.ManagedFieldsEntry, configuration map[string]any, sameConfiguration bool,
	content func() (map[string]any, error),
) (bool, error) {
	if entry.FieldsV1 == nil || configuration["apiVersion"] != entry.APIVersion {
		return false, nil
	}
	fields := map[string]any{}
	if err := utiljson.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
		return false, fmt.Errorf("read the fields that %s has applied: %w", entry.Manager, err)
	}
	// the fields that can be owned
	wanted := difference.Without(configuration, []string{"apiVersion", "kind"},
		"name", "namespace", "uid", "resourceVersion")
	group, _, grouped := strings.Cut(entry.APIVersion, "/")
	fixedSchema := !grouped || isKubernetesGroup(group)
	if sameConfiguration {
		m := matcher{}
		if !m.object(fields, wanted, nil) {
			return false, nil
		}
		if !m.needsContent && fixedSchema {
			return true, nil
		}
	}
	live, err := content()
	if err != nil {
		return false, err
	}
	m := matcher{hasContent: true, values: !sameConfiguration}
	return m.object(fields, wanted, live) && (fixedSchema || shows(live, wanted)), nil
}

// matcher compares managedFields with a configuration and with the content of the object. In managedFields, "f:x" is
// the field x of a map, "k:{...}" the element of a list with these keys, "v:..." that value in a list, and "." the
// element or map itself. A field without subfields is owned as a whole.
type matcher struct {
	hasContent   bool // otherwise content is always nil
	values       bool // values must be as configured
	needsContent bool // set if the result depends on the content
}

func (m *matcher) object(fields, wanted map[string]any, content any) bool {
	live, _ := content.(map[string]any)
	owned := 0
	for name, value := range wanted {
		below, isOwned := fields["f:"+name].(map[string]any)
		if !isOwned {
			if !m.emptyList(value, live[name]) {
				return false
			}
			continue
		}
		owned++
		if !m.value(below, value, live[name]) {
			return false
		}
	}
	return owned == elements(fields)
}

// emptyList reports whether a field without an owner is an empty list both in the configuration and in the object. An
// empty merged list has no owner, because its elements are owned, not the list.
func (m *matcher) emptyList(wanted, content any) bool {
	if list, isList := wanted.([]any); !isList || len(list) > 0 {
		return false
	}
	m.needsContent = true
	list, isList := content.([]any)
	return content == nil || isList && len(list) == 0
}

func (m *matcher) value(fields map[string]any, wanted, content any) bool {
	if elements(fields) == 0 {
		return !m.values || reflect.DeepEqual(wanted, content)
	}
	switch wanted := wanted.(type) {
	case map[string]any:
		return m.object(fields, wanted, content)
	case []any:
		return m.list(fields, wanted, content)
	}
	return false
}

// shows reports whether content has the wanted values in the same order. It may have more values: defaults, and values
// of other clients. An empty list or map equals a missing one, and null matches every value.
func shows(content, wanted any) bool {
	switch wanted := wanted.(type) {
	case nil:
		return true
	case map[string]any:
		live, _ := content.(map[string]any)
		for name, value := range wanted {
			if !shows(live[name], value) {
				return false
			}
		}
		return true
	case []any:
		live, _ := content.([]any)
		for _, element := range wanted {
			at := slices.IndexFunc(live, func(candidate any) bool { return shows(candidate, element) })
			if at < 0 {
				return false
			}
			live = live[at+1:]
		}
		return true
	}
	return reflect.DeepEqual(wanted, content)
}

// list compares a merged list. Its elements must be in the order of the configuration, which managedFields do not
// contain.
func (m *matcher) list(fields map[string]any, wanted []any, content any) bool {
	if elements(fields) != len(wanted) {
		return false
	}
	live, _ := content.([]any)
	m.needsContent = m.needsContent || len(wanted) > 1
	owned := make(map[string]bool, len(wanted))
	at := -1
	for _, element := range wanted {
		path, key, found := ownedElement(fields, element, owned)
		if !found {
			return false
		}
		owned[path] = true
		var shown any
		if m.hasContent {
			next := elementAt(live, key, at+1)
			if next < 0 {
				return false
			}
			at, shown = next, live[next]
		}
		below, _ := fields[path].(map[string]any)
		if !m.value(below, element, shown) {
			return false
		}
	}
	return true
}

// ownedElement finds the element of a configured list in fields, except the taken ones. key is a value, or the keys of
// the element. The configuration may lack some of the keys, which then have defaults.
func ownedElement(fields map[string]any, element any, taken map[string]bool) (path string, key any, found bool) {
	best := -1
	for name := range fields {
		if taken[name] {
			continue
		}
		value, keyed, known := elementKey(name)
		if !known {
			continue
		}
		if !keyed {
			if reflect.DeepEqual(value, element) {
				return name, value, true
			}
			continue
		}
		below, _ := fields[name].(map[string]any)
		if common := commonKeys(value, element); common > best && sameKeys(below, value, element) {
			path, key, best = name, value, common
		}
	}
	return path, key, best > 0
}

// sameKeys reports whether a configured element sets exactly those keys that were applied to the owned element. The
// other keys have default values: one element may set a key to the value that another element has by default.
func sameKeys(fields map[string]any, keys, element any) bool {
	if elements(fields) == 0 {
		return true // the element is owned as a whole
	}
	wanted, _ := keys.(map[string]any)
	given, _ := element.(map[string]any)
	for name := range wanted {
		_, applied := fields["f:"+name]
		if _, isGiven := given[name]; isGiven != applied {
			return false
		}
	}
	return true
}

// elementKey parses "k:{...}" and "v:...".
func elementKey(name string) (key any, keyed, known bool) {
	text, keyed := strings.CutPrefix(name, "k:")
	if !keyed {
		if text, known = strings.CutPrefix(name, "v:"); !known {
			return nil, false, false
		}
	}
	var decoded map[string]any // for numbers of the same types as in objects
	if utiljson.Unmarshal([]byte(`{"key":`+text+`}`), &decoded) != nil {
		return nil, false, false
	}
	if _, hasKeys := decoded["key"].(map[string]any); keyed && !hasKeys {
		return nil, false, false
	}
	return decoded["key"], keyed, true
}

// commonKeys returns the number of keys that element has with the same value; -1 if a value differs.
func commonKeys(keys, element any) int {
	wanted, _ := keys.(map[string]any)
	fields, _ := element.(map[string]any)
	common := 0
	for name, value := range wanted {
		given, exists := fields[name]
		if !exists {
			continue
		}
		if !reflect.DeepEqual(given, value) {
			return -1
		}
		common++
	}
	return common
}

// elementAt returns the index of the first element with key, searching from index from; -1 if the list has no such
// element.
func elementAt(list []any, key any, from int) int {
	for i := from; i < len(list); i++ {
		keys, keyed := key.(map[string]any)
		if keyed && commonKeys(keys, list[i]) == len(keys) || !keyed && reflect.DeepEqual(list[i], key) {
			return i
		}
	}
	return -1
}

// elements returns the number of fields other than ".".
func elements(fields map[string]any) int {
	if _, self := fields["."]; self {
		return len(fields) - 1
	}
	return len(fields)
}

// hashConfiguration stores the digest of a configuration in one of its annotations. It returns the digest of the
// configuration with that annotation.
func hashConfiguration(configuration map[string]any, annotation string) digest {
	metadata, _ := configuration["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		metadata["annotations"] = annotations
	}
	delete(annotations, annotation)
	hash := digestOf(declaredIn(configuration))
	annotations[annotation] = hash.String()
	return digestOfBytes(append(hash[:], annotation...))
}
