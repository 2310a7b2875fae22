package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// FieldChange is a field that differs between two states of an object.
type FieldChange struct {
	// Path is the path of the field, as in "spec.template.spec.containers[web].image". The elements of a list of
	// objects have the name in their field name, type or key, if these are unique, otherwise their index. Keys other
	// than plain words are in brackets: "metadata.labels[app.kubernetes.io/name]". Paths in problems of controllers are
	// the same.
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
	return diff(newContents(&difference.Shapes{}), cluster, before, after, "")
}

// diff is Diff for the object, or for one of its subresources.
func diff(all *contents, cluster *kube.Cluster, before, after kube.Object, subresource string) []FieldChange {
	d := differ{hides: hides(cluster, before, after)}
	w := difference.Walker{Report: d.add, Expand: true}
	w.Walk(compared(all, before, subresource), compared(all, after, subresource))
	return d.sorted()
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
	if subresource == "status" {
		return map[string]any{"status": content["status"]}
	}
	out = difference.Without(content, []string{"apiVersion", "kind", "metadata", "status"})
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

func (d *differ) add(path difference.Path, before, after any) {
	shown := path.Shown(d.hides)
	if d.hides(path.Indexed()) {
		before, after = hide(before), hide(after)
		if n := len(d.changes); n > 0 && d.changes[n-1].Path == shown {
			return // another value below the same field
		}
	}
	d.changes = append(d.changes, FieldChange{Path: shown, Before: before, After: after})
}

// sorted returns the changes, sorted by path.
func (d *differ) sorted() []FieldChange {
	slices.SortStableFunc(d.changes, func(a, b FieldChange) int { return strings.Compare(a.Path, b.Path) })
	return d.changes
}

func hide(value any) any {
	if value == nil {
		return nil
	}
	return Hidden
}
