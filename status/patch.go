package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// patch makes the patch that does to base what the run did.
func (r run) patch(base kube.Object) (client.PatchBody, error) {
	if operations, ok := r.operations(); ok && !r.tookOver {
		same := client.Operation{Op: "test", Path: "/metadata/uid", Value: base.GetUID()}
		return client.JSONPatch(append([]client.Operation{same}, operations...)...), nil
	}
	// Whoever patches the status of a custom resource is not held to a uid in the patch: the
	// resourceVersion stands for it.
	fields := map[string]any{}
	maps.Copy(fields, r.mine.fields)
	if len(r.mine.conditions) > 0 {
		list, _ := conditionList(r.seen)
		fields[conditionsField] = nil // the last one is removed
		if list = apply(r.mine.conditions, list); len(list) > 0 {
			fields[conditionsField] = list
		}
	}
	lock := map[string]any{"uid": base.GetUID(), "resourceVersion": base.GetResourceVersion()}
	body, err := json.Marshal(map[string]any{"metadata": lock, "status": fields})
	if err != nil {
		return client.PatchBody{}, fmt.Errorf("encode the patch: %w", err)
	}
	return client.RawPatch(types.MergePatchType, body), nil
}

// operations are the JSON patch of what the run did; false when a merge patch has to do it: a JSON
// patch cannot make the object that a field is in, nor test that a list does not have an entry.
func (r run) operations() ([]client.Operation, bool) {
	if !filled(r.seen) {
		return nil, false
	}
	operations, ok := fieldOperations(nil, "/status", r.mine.fields, r.seen)
	if !ok {
		return nil, false
	}
	list, _ := conditionList(r.seen)
	removed := []int{}
	for _, change := range r.mine.conditions {
		i := indexOf(list, change.conditionType)
		switch {
		case change.to != nil && i < 0:
			return nil, false
		case change.to != nil:
			operations = append(operations, isAt(i, change), client.Operation{Op: "replace", Path: conditionPath(i), Value: change.to})
		case i >= 0:
			operations = append(operations, isAt(i, change))
			removed = append(removed, i)
		}
	}
	slices.Sort(removed)
	for _, i := range slices.Backward(removed) { // from the end, so that the indexes stay true
		operations = append(operations, client.Operation{Op: "remove", Path: conditionPath(i)})
	}
	return operations, true
}

func conditionPath(i int) string { return fmt.Sprintf("/status/%s/%d", conditionsField, i) }

// isAt tests that the condition is where it was seen.
func isAt(i int, change conditionChange) client.Operation {
	return client.Operation{Op: "test", Path: conditionPath(i) + "/type", Value: change.conditionType}
}

// fieldOperations appends what a merge patch does to an object that has the fields seen.
func fieldOperations(operations []client.Operation, path string, patch, seen map[string]any) ([]client.Operation, bool) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		at := path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		value := patch[name]
		inner, isObject := value.(map[string]any)
		below, wasObject := seen[name].(map[string]any)
		switch {
		case value == nil && !filled(seen[name]):
			return nil, false // it may not be there: a Go type shows zeros for what is missing
		case value == nil:
			operations = append(operations, client.Operation{Op: "remove", Path: at})
		case isObject:
			if !wasObject || !filled(below) {
				return nil, false // others may have begun it, and would lose what they put in
			}
			var ok bool
			if operations, ok = fieldOperations(operations, at, inner, below); !ok {
				return nil, false
			}
		default:
			operations = append(operations, client.Operation{Op: "add", Path: at, Value: value})
		}
	}
	return operations, true
}

// filled reports whether there is anything but zeros in value, so that it must have come from the
// cluster.
func filled(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for _, inner := range value {
			if filled(inner) {
				return true
			}
		}
		return false
	case []any:
		return len(value) > 0
	}
	return value != nil && value != "" && value != false && value != int64(0) && value != float64(0)
}
