package client

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// FieldChange is a field that differs between two states of an object.
type FieldChange struct {
	// Path is the path of the field, as in "spec.template.spec.containers[name=web].image". Elements of a list
	// are identified by their names if these are unique, otherwise by index. Keys other than plain words are in
	// brackets: "metadata.labels[app.kubernetes.io/name]".
	Path string `json:"path"`
	// Before and After are the values as in JSON: a map[string]any, []any, string, int64, float64 or bool; nil if
	// the field did not or does not exist. The values of a Secret, and those of kube.Cluster.HideFields, are Hidden.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
}

// Hidden replaces the values of Secrets and of the fields of kube.Cluster.HideFields, which must not get into logs,
// plans and Events.
const Hidden = apiobject.HiddenText

// maxShown is the maximum number of bytes of a value in String.
const maxShown = 120

// String returns "spec.replicas: 1 -> 3", with "none" for a missing field. It truncates long values.
func (f FieldChange) String() string {
	if f.Before == Hidden && f.After == Hidden {
		return f.Path + ": " + Hidden + " -> another value " + Hidden
	}
	return f.Path + ": " + textOf(f.Before) + " -> " + textOf(f.After)
}

func textOf(value any) string {
	switch value {
	case nil:
		return "none"
	case Hidden:
		return Hidden
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("(%T)", value)
	}
	text := string(encoded)
	if len(text) <= maxShown {
		return text
	}
	cut := maxShown
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// Diff returns the fields in which after differs from before, sorted by path: labels, annotations, owner
// references, finalizers and all fields outside of the metadata, except the status. It omits the fields that
// every write changes (resourceVersion, generation, managedFields). A nil object has no fields.
//
// The objects may have different Go types of the same kind; fields that a Go type lacks, and unset fields of typed
// objects, count as missing. An object that cannot be encoded has no fields.
//
// c hides the fields of its Cluster's HideFields; if it is nil, only the values of Secrets are hidden.
func Diff(c *Client, before, after kube.Object) []FieldChange {
	var cluster *kube.Cluster
	if c != nil {
		cluster = c.Cluster()
	}
	return diff(newContents(&shapes{}), cluster, before, after, "")
}

// diff is Diff for the object, or for one of its subresources.
func diff(all *contents, cluster *kube.Cluster, before, after kube.Object, subresource string) []FieldChange {
	d := differ{hides: hides(cluster, before, after)}
	from, to := compared(all, before, subresource), compared(all, after, subresource)
	d.compare("", from, to)
	slices.SortStableFunc(d.changes, func(a, b FieldChange) int { return strings.Compare(a.Path, b.Path) })
	return d.changes
}

// compared returns what Diff compares of an object.
func compared(all *contents, obj kube.Object, subresource string) map[string]any {
	out := map[string]any{}
	if usercode.IsNil(obj) {
		return out
	}
	content, err := all.of(obj)
	if err != nil {
		return out
	}
	for name, value := range content {
		switch name {
		case "apiVersion", "kind", "metadata", "status":
		default:
			if subresource != "status" {
				out[name] = value
			}
		}
	}
	if subresource == "status" {
		out["status"] = content["status"]
		return out
	}
	metadata, _ := content["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, name := range []string{"labels", "annotations", "ownerReferences", "finalizers"} {
		kept[name] = metadata[name]
	}
	out["metadata"] = kept
	return out
}

// hides returns a function that reports whether the value of a field of an object must be hidden. cluster may be nil.
func hides(cluster *kube.Cluster, objects ...kube.Object) func(path string) bool {
	var kinds []schema.GroupKind
	for _, obj := range objects {
		if usercode.IsNil(obj) {
			continue
		}
		kind := obj.GetObjectKind().GroupVersionKind()
		if kind.Kind == "" && cluster != nil {
			kind, _ = cluster.KindOf(obj)
		}
		if kind.Kind == "" {
			kind.Kind = reflect.TypeOf(obj).Elem().Name()
		}
		kinds = append(kinds, kind.GroupKind())
	}
	hides := (&apiobject.HiddenFields{}).Hides
	if cluster != nil {
		hides = cluster.Hides
	}
	return func(path string) bool {
		return slices.ContainsFunc(kinds, func(kind schema.GroupKind) bool { return hides(kind, path) })
	}
}

const kindSecret = "Secret"

// differ collects changes.
type differ struct {
	hides   func(path string) bool
	changes []FieldChange
}

func (d *differ) compare(path string, before, after any) {
	from, fromMap := before.(map[string]any)
	to, toMap := after.(map[string]any)
	switch {
	case (fromMap || before == nil) && (toMap || after == nil) && len(from)+len(to) > 0:
		keys := maps.Clone(from)
		if keys == nil {
			keys = map[string]any{}
		}
		maps.Copy(keys, to)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			d.compare(join(path, key), from[key], to[key])
		}
		return
	case equal(before, after):
		return
	}
	fromList, isList := before.([]any)
	toList, areLists := after.([]any)
	if isList && areLists && d.compareLists(path, fromList, toList) {
		return
	}
	d.add(path, before, after)
}

// compareLists compares lists element by element. It returns false if the lists must be compared as a whole.
func (d *differ) compareLists(path string, from, to []any) bool {
	fromNames, fromNamed := namesOf(from)
	toNames, toNamed := namesOf(to)
	if !fromNamed || !toNamed {
		return d.compareByIndex(path, from, to)
	}
	already := len(d.changes)
	for i, name := range fromNames {
		at := path + "[name=" + name + "]"
		if j := slices.Index(toNames, name); j >= 0 {
			d.compare(at, from[i], to[j])
		} else {
			d.add(at, from[i], nil)
		}
	}
	for i, name := range toNames {
		if !slices.Contains(fromNames, name) {
			d.add(path+"[name="+name+"]", nil, to[i])
		}
	}
	return len(d.changes) > already // otherwise only the order differs
}

// compareByIndex compares lists of maps; other lists are easier to read as a whole.
func (d *differ) compareByIndex(path string, from, to []any) bool {
	for _, element := range slices.Concat(from, to) {
		if _, isMap := element.(map[string]any); !isMap {
			return false
		}
	}
	for i := range max(len(from), len(to)) {
		at := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case i >= len(from):
			d.add(at, nil, to[i])
		case i >= len(to):
			d.add(at, from[i], nil)
		default:
			d.compare(at, from[i], to[i])
		}
	}
	return true
}

// namesOf returns the names of the elements of a list. It returns false if a name is missing or duplicated.
func namesOf(list []any) ([]string, bool) {
	var names []string
	for _, element := range list {
		fields, _ := element.(map[string]any)
		name, _ := fields["name"].(string)
		if name == "" || slices.Contains(names, name) {
			return nil, false
		}
		names = append(names, name)
	}
	return names, true
}

func (d *differ) add(path string, before, after any) {
	isHidden, path := d.hides(path), apiobject.ShownPath(path, d.hides)
	if isHidden {
		before, after = hide(before), hide(after)
		if n := len(d.changes); n > 0 && d.changes[n-1].Path == path {
			return // another value below the same field
		}
	}
	d.changes = append(d.changes, FieldChange{Path: path, Before: before, After: after})
}

func hide(value any) any {
	if value == nil {
		return nil
	}
	return Hidden
}

// join adds a key to a path.
func join(path, key string) string {
	plain := key != "" && !strings.ContainsFunc(key, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
	})
	switch {
	case !plain:
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

// equal compares JSON values.
func equal(a, b any) bool { return reflect.DeepEqual(a, b) }
