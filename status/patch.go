package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// patch makes the patch that does to base what the run did.
func (r *run) patch(base kube.Object) (client.PatchBody, error) {
	if made := r.jsonPatch(); made.ok {
		same := client.Operation{Op: "test", Path: "/metadata/uid", Value: base.GetUID()}
		patch := client.JSONPatch(append([]client.Operation{same}, made.operations...)...)
		if made.locked || r.locked || r.tookOver {
			patch = patch.Locked(base)
		}
		return patch, nil
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

// suffices reports whether the patch can be made of what was seen. If it has to write the whole list
// of conditions, the entries may have fields that were not seen. And a condition that is new in a
// state that was taken over may have come with it, or not; what is missing in that state may have
// gone with it, or be there still.
func (r *run) suffices() bool {
	list, _ := conditionList(r.seen)
	if r.exact || len(r.mine.conditions) == 0 {
		return true
	}
	if r.tookOver && slices.ContainsFunc(r.mine.conditions, func(c conditionChange) bool { return c.from == nil || len(c.removed()) > 0 }) {
		return false
	}
	if len(list) == 0 {
		return true
	}
	return r.jsonPatch().ok || len(apply(r.mine.conditions, list)) == 0
}

// jsonPatch is what operations returns.
type jsonPatch struct {
	operations []client.Operation
	locked, ok bool
}

// jsonPatch returns the result of operations, which is computed once for each state that was seen.
func (r *run) jsonPatch() *jsonPatch {
	if r.made == nil {
		r.made = &jsonPatch{}
		r.made.operations, r.made.locked, r.made.ok = r.operations()
	}
	return r.made
}

// operations are the JSON patch of what the run did, and whether it holds for the resourceVersion
// only; not ok when a merge patch has to do it: a JSON patch cannot make the object that a field is in.
func (r run) operations() (operations []client.Operation, locked, ok bool) {
	if !filled(r.seen) {
		return nil, false, false
	}
	if operations, ok = fieldOperations(nil, "/status", r.mine.fields, r.seen); !ok {
		return nil, false, false
	}
	if _, writes := r.mine.fields[observedField]; writes && r.isBase() {
		operations = slices.Insert(operations, 0, client.Operation{Op: "test", Path: "/status/" + observedField, Value: r.seen[observedField]})
	}
	list, _ := conditionList(r.seen)
	var removed []int
	var added []any
	for _, change := range r.mine.conditions {
		i := indexOf(list, change.conditionType)
		switch {
		case change.to != nil && i < 0:
			added = append(added, change.to)
		case change.to != nil:
			operations = append(operations, r.isAsSeen(i, list[i])...)
			operations = append(operations, change.operations(i, list[i], r.isBase())...)
		case i >= 0:
			operations = append(operations, r.isAsSeen(i, list[i])...)
			removed = append(removed, i)
		}
	}
	if len(added) > 0 && r.exact {
		// No test tells that the list does not have an entry, but one that it is the very list.
		operations = slices.Insert(operations, 0, client.Operation{Op: "test", Path: "/status/" + conditionsField, Value: r.seen[conditionsField]})
	}
	slices.Sort(removed)
	for _, i := range slices.Backward(removed) { // from the end, so that the indexes stay true
		operations = append(operations, client.Operation{Op: "remove", Path: conditionPath(i)})
	}
	switch {
	case len(added) > 0 && len(list) == 0:
		operations = append(operations, client.Operation{Op: "add", Path: "/status/" + conditionsField, Value: added})
	case len(added) > 0:
		for _, condition := range added {
			operations = append(operations, client.Operation{Op: "add", Path: "/status/" + conditionsField + "/-", Value: condition})
		}
	}
	return operations, len(added) > 0 && !r.exact, true
}

// operations change a condition that is at i, field by field: what is not known of it stays. All
// fields of the own one are written, because a mixture of two conditions would be neither; but not the
// time of the last transition when it stays as it is in base, a state of the cluster: there it may be a
// later one, of the same status, than was seen.
func (c conditionChange) operations(i int, seen any, base bool) []client.Operation {
	var operations []client.Operation
	is, _ := seen.(map[string]any)
	fields := c.written(is)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		kept := base && name == sinceField && reflect.DeepEqual(fields[name], is[name])
		if name != "type" && !kept {
			operations = append(operations, client.Operation{Op: "add", Path: conditionPath(i) + client.JSONPointer(name), Value: fields[name]})
		}
	}
	for _, name := range c.removed() {
		if _, there := is[name]; there {
			operations = append(operations, client.Operation{Op: "remove", Path: conditionPath(i) + client.JSONPointer(name)})
		}
	}
	return operations
}

func conditionPath(i int) string { return fmt.Sprintf("/status/%s/%d", conditionsField, i) }

// isBase reports whether seen is a state of the object in the cluster, without the run's own changes.
func (r run) isBase() bool { return r.exact || !r.tookOver }

// isAsSeen tests that a condition is where it was seen, and that it was written neither for another
// generation nor with another status since: a patch made from an old state would rewrite the time of
// the last transition, or what a later run has found out.
func (r run) isAsSeen(i int, seen any) []client.Operation {
	condition, _ := seen.(map[string]any)
	operations := []client.Operation{{Op: "test", Path: conditionPath(i) + "/type", Value: condition["type"]}}
	if !r.isBase() {
		return operations // the patch is locked by the resourceVersion
	}
	for _, name := range []string{observedField, "status"} {
		operations = append(operations, client.Operation{Op: "test", Path: conditionPath(i) + client.JSONPointer(name), Value: condition[name]})
	}
	return operations
}

// fieldOperations appends what a merge patch does to an object that has the fields seen.
func fieldOperations(operations []client.Operation, path string, patch, seen map[string]any) ([]client.Operation, bool) {
	for _, name := range slices.Sorted(maps.Keys(patch)) {
		at := path + client.JSONPointer(name)
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
