package detect

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/difference"
)

// FieldChange is one field that differs between two states of an object.
type FieldChange struct {
	// Path is the path of the field in the notation of package difference: status.conditions[Ready].reason.
	Path string
	// At is the same path: the text alone does not tell whether an element has a name or an index.
	At difference.Path
	// From and To are its values as JSON. Empty: the field is absent.
	From, To string
}

// isTime reports whether the field's new value is a time, and its old value a time or absent.
func (c FieldChange) isTime() bool {
	return looksLikeTime(c.To) && (c.From == "" || looksLikeTime(c.From))
}

// looksLikeTime reports whether encoded is the JSON of a metav1.Time or MicroTime.
func looksLikeTime(encoded string) bool {
	if len(encoded) < len(`"2006-01-02T15:04:05Z"`) || encoded[0] != '"' || encoded[11] != 'T' {
		return false
	}
	_, err := time.Parse(time.RFC3339, strings.Trim(encoded, `"`))
	return err == nil
}

// changesOf returns the fields that differ between two states of an object. known is false if they are more than
// maxFields.
//
// It ignores the fields that identify an object or change in every write. A value that only one state has is one field,
// however large it is.
func changesOf(before, after map[string]any) (changes []FieldChange, known bool) {
	total := 0
	w := difference.Walker{Report: func(path difference.Path, before, after any) {
		if total++; total <= maxFields {
			changes = append(changes, FieldChange{path.String(), slices.Clone(path), encode(before), encode(after)})
		}
	}}
	w.Walk(withoutIdentity(before), withoutIdentity(after))
	return changes, total <= maxFields
}

// withoutIdentity returns the fields of an object without those that identify it or change in every write.
func withoutIdentity(content map[string]any) map[string]any {
	rest := difference.Without(content, []string{"apiVersion", "kind"},
		"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")
	// Without an empty object, all metadata of the other state would be one field that differs.
	if _, had := content["metadata"].(map[string]any); had && rest["metadata"] == nil {
		rest["metadata"] = map[string]any{}
	}
	return rest
}

// encode returns a value as JSON.
func encode(value any) string {
	if value == nil {
		return ""
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value) // not reachable for an object's values: they can all be encoded
	}
	return string(encoded)
}
