package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// patch returns the patch that applies the changes of the run to base.
func (r *run) patch(base kube.Object) (client.PatchBody, error) {
	if built := r.jsonPatch(); built.ok {
		testUID := client.Operation{Op: "test", Path: "/metadata/uid", Value: base.GetUID()}
		patch := client.JSONPatch(append([]client.Operation{testUID}, built.operations...)...)
		if built.locked || r.locked || r.tookOver {
			patch = patch.Locked(base)
		}
		return patch, nil
	}
	// The API server ignores the uid in a patch of the status of a custom resource. The resourceVersion is checked.
	fields := map[string]any{}
	maps.Copy(fields, r.changes.fields)
	if len(r.changes.conditions) > 0 {
		list, _ := conditionList(r.seen)
		fields[conditionsField] = nil // if no condition is left
		if list = apply(r.changes.conditions, list); len(list) > 0 {
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

// canPatch reports whether the patch can be made from the state seen. If it must write the whole list of conditions,
// the entries may have unknown fields. After a take-over it is unknown whether a new condition came with the
// taken-over state, and whether a missing one still exists.
func (r *run) canPatch() bool {
	list, _ := conditionList(r.seen)
	if r.exact || len(r.changes.conditions) == 0 {
		return true
	}
	if r.tookOver && slices.ContainsFunc(r.changes.conditions, func(c conditionChange) bool {
		return c.from == nil || len(c.removed()) > 0
	}) {
		return false
	}
	if len(list) == 0 {
		return true
	}
	return r.jsonPatch().ok || len(apply(r.changes.conditions, list)) == 0
}

// jsonPatch is the result of operations.
type jsonPatch struct {
	operations []client.Operation
	locked, ok bool
}

// jsonPatch returns the result of operations, computed once for each state seen.
func (r *run) jsonPatch() *jsonPatch {
	if r.computed == nil {
		r.computed = &jsonPatch{}
		r.computed.operations, r.computed.locked, r.computed.ok = r.operations()
	}
	return r.computed
}

// operations returns the JSON patch of the changes, and whether it requires the resourceVersion. ok is false if a
// merge patch is needed, because a JSON patch cannot create the parent object of a field.
func (r run) operations() (operations []client.Operation, locked, ok bool) {
	if !filled(r.seen) {
		return nil, false, false
	}
	if operations, ok = fieldOperations(nil, nil, r.changes.fields, r.seen); !ok {
		return nil, false, false
	}
	if _, writes := r.changes.fields[observedField]; writes && r.isBase() {
		operations = slices.Insert(operations, 0, operation("test", r.seen[observedField], observedField))
	}
	list, _ := conditionList(r.seen)
	var removed []int
	var added []condition
	for _, change := range r.changes.conditions {
		i := indexOf(list, change.conditionType)
		switch {
		case change.to != nil && i < 0:
			added = append(added, change.to)
		case change.to != nil:
			operations = append(operations, r.testUnchanged(i, list[i])...)
			operations = append(operations, change.operations(i, list[i], r.isBase())...)
		case i >= 0:
			operations = append(operations, r.testUnchanged(i, list[i])...)
			removed = append(removed, i)
		}
	}
	if len(added) > 0 && r.exact {
		// A JSON patch cannot test that an entry is missing, so it tests the whole list.
		operations = slices.Insert(operations, 0, operation("test", r.seen[conditionsField], conditionsField))
	}
	slices.Sort(removed)
	for _, i := range slices.Backward(removed) { // from the end, so that the other indexes stay valid
		operations = append(operations, conditionOperation("remove", nil, i))
	}
	locked = len(added) > 0 && !r.exact
	if len(added) > 0 && len(list) == 0 {
		return append(operations, operation("add", added, conditionsField)), locked, true
	}
	for _, c := range added {
		operations = append(operations, operation("add", c, conditionsField, "-"))
	}
	return operations, locked, true
}

// operation returns an operation on a field of the status, and conditionOperation one on the condition at an index.
func operation(op string, value any, path ...string) client.Operation {
	return client.Operation{Op: op, Path: "/status" + difference.Pointer(path...), Value: value}
}

func conditionOperation(op string, value any, i int, path ...string) client.Operation {
	return operation(op, value, append([]string{conditionsField, strconv.Itoa(i)}, path...)...)
}

// operations changes the condition at index i field by field, so that unknown fields stay. It writes all fields of
// the condition, so that the result is not a mixture of two conditions. base is true if seen is a state of the
// cluster: then an unchanged lastTransitionTime is not written, because the cluster may have a later one.
func (c conditionChange) operations(i int, current condition, base bool) []client.Operation {
	var operations []client.Operation
	fields := c.written(current)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		kept := base && name == sinceField && reflect.DeepEqual(fields[name], current[name])
		if name != "type" && !kept {
			operations = append(operations, conditionOperation("add", fields[name], i, name))
		}
	}
	for _, name := range c.removed() {
		if _, exists := current[name]; exists {
			operations = append(operations, conditionOperation("remove", nil, i, name))
		}
	}
	return operations
}

// isBase reports whether seen is a state of the object in the cluster, without the run's own changes.
func (r run) isBase() bool { return r.exact || !r.tookOver }

// testUnchanged returns tests that a condition is at its position with its status and observedGeneration: a patch
// made from an outdated state would overwrite lastTransitionTime or a later result.
func (r run) testUnchanged(i int, current condition) []client.Operation {
	operations := []client.Operation{conditionOperation("test", current["type"], i, "type")}
	if !r.isBase() {
		return operations // the patch requires the resourceVersion
	}
	return append(operations, conditionOperation("test", current[observedField], i, observedField),
		conditionOperation("test", current["status"], i, "status"))
}

// fieldOperations appends the operations of a merge patch to an object with the fields seen.
func fieldOperations(
	operations []client.Operation, path []string, patch, seen map[string]any,
) ([]client.Operation, bool) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		at := append(slices.Clip(path), name)
		value := patch[name]
		inner, isObject := value.(map[string]any)
		below, wasObject := seen[name].(map[string]any)
		switch {
		case value == nil && !filled(seen[name]):
			return nil, false // it may not exist: a Go type shows zeros for missing fields
		case value == nil:
			operations = append(operations, operation("remove", nil, at...))
		case isObject:
			if !wasObject || !filled(below) {
				return nil, false // another client may have created it, and would lose its fields
			}
			var ok bool
			if operations, ok = fieldOperations(operations, at, inner, below); !ok {
				return nil, false
			}
		default:
			operations = append(operations, operation("add", value, at...))
		}
	}
	return operations, true
}

// filled reports whether value contains anything except zeros, so that it exists in the cluster.
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
