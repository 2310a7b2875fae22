package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// state is the content of a cluster, in a form in which two runs can be compared: the fields of each object, as JSON,
// by its kind and name, and by the path of the field. Uids, times, addresses and generated names are replaced.
type state map[string]map[string]string

// isLeftOut reports whether the objects of a resource depend on time and order.
func isLeftOut(r schema.GroupResource) bool {
	return r.Resource == "events" || r.Group == "coordination.k8s.io" || r.Resource == "endpoints" ||
		r.Resource == "endpointslices"
}

// stateOf returns the state of a server.
func stateOf(server *apiserver.Server) state {
	var objects []map[string]any
	seen := map[schema.GroupResource]bool{}
	for _, kind := range server.Kinds() {
		resource := schema.GroupResource{Group: kind.Group, Resource: kind.Resource}
		if seen[resource] || isLeftOut(resource) {
			continue
		}
		seen[resource] = true
		for _, obj := range server.Objects(resource) {
			var content map[string]any
			if encoded, err := json.Marshal(obj); err == nil && json.Unmarshal(encoded, &content) == nil {
				content["kind"] = kind.Kind
				objects = append(objects, content)
			}
		}
	}
	return newState(objects)
}

func newState(objects []map[string]any) state {
	objects = slices.DeleteFunc(slices.Clone(objects), isHistory)
	n := names{uids: map[string]string{}, generated: map[string]string{}}
	for _, obj := range objects {
		n.addName(obj)
	}
	// A name can contain another one, as that of a Pod that of its Job.
	n.longest = slices.SortedFunc(maps.Keys(n.generated), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b))
	})
	for _, obj := range objects {
		n.addUID(obj)
	}
	byID := map[string][]map[string]string{} // several with generated names have one id
	for _, obj := range objects {
		fields := map[string]string{}
		n.flatten(fields, "", obj)
		byID[n.id(obj)] = append(byID[n.id(obj)], fields)
	}
	s := state{}
	for id, all := range byID {
		slices.SortFunc(all, func(a, b map[string]string) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		s[id] = all[0]
		for i, fields := range all[1:] {
			s[fmt.Sprintf("%s (%d)", id, i+2)] = fields
		}
	}
	return s
}

// names replaces what differs between runs.
type names struct {
	uids      map[string]string // the object by its uid
	generated map[string]string // the stable form of a name by the name
	longest   []string          // the keys of generated, the longest first
}

// isHistory reports whether an object is a former revision of a Deployment, StatefulSet or DaemonSet. Which of them
// exist depends on the states that the controllers saw in between.
func isHistory(obj map[string]any) bool {
	spec, _ := obj["spec"].(map[string]any)
	metadata, _, _ := metadataOf(obj)
	owners := fmt.Sprint(metadata["ownerReferences"])
	switch obj["kind"] {
	case "ControllerRevision":
		return strings.Contains(owners, "kind:StatefulSet") || strings.Contains(owners, "kind:DaemonSet")
	case "ReplicaSet":
		return strings.Contains(owners, "kind:Deployment") && fmt.Sprint(spec["replicas"]) == "0"
	}
	return false
}

func metadataOf(obj map[string]any) (metadata map[string]any, name, namespace string) {
	metadata, _ = obj["metadata"].(map[string]any)
	name, _ = metadata["name"].(string)
	namespace, _ = metadata["namespace"].(string)
	return metadata, name, namespace
}

func (n names) addName(obj map[string]any) {
	metadata, name, _ := metadataOf(obj)
	prefix, _ := metadata["generateName"].(string)
	if prefix != "" && strings.HasPrefix(name, strings.TrimSuffix(prefix, "-")) {
		n.generated[name] = prefix + "*"
	}
}

func (n names) addUID(obj map[string]any) {
	metadata, _, _ := metadataOf(obj)
	if uid, _ := metadata["uid"].(string); uid != "" {
		n.uids[uid] = n.id(obj)
	}
}

// id returns the kind and the name of an object.
func (n names) id(obj map[string]any) string {
	_, name, namespace := metadataOf(obj)
	name = n.withoutGenerated(name)
	if namespace != "" {
		name = namespace + "/" + name
	}
	return fmt.Sprintf("%v %s", obj["kind"], name)
}

// dependsOnWrites reports whether a field counts or identifies writes, has a time, or is the choice of a scheduler.
func dependsOnWrites(path string) bool {
	switch path {
	case ".metadata.managedFields", ".metadata.resourceVersion", ".metadata.uid", ".metadata.generation",
		".metadata.creationTimestamp", ".metadata.deletionGracePeriodSeconds", ".metadata.generateName", ".apiVersion",
		".kind", ".spec.nodeName", ".metadata.annotations[deployment.kubernetes.io/revision]",
		".metadata.annotations[deployment.kubernetes.io/revision-history]":
		return true
	}
	return strings.HasSuffix(path, ".observedGeneration") ||
		strings.HasPrefix(path, ".status") && strings.HasSuffix(path, "Time")
}

// flatten adds the fields of a value, whose path is path.
func (n names) flatten(fields map[string]string, path string, value any) {
	if dependsOnWrites(path) {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 {
			fields[path] = "{}"
		}
		for name, element := range value {
			key := "." + name
			if strings.ContainsAny(name, "./") {
				key = "[" + name + "]"
			}
			n.flatten(fields, path+key, element)
		}
	case []any:
		n.flattenList(fields, path, value)
	case string:
		fields[path] = n.replace(value)
	default:
		encoded, _ := json.Marshal(value)
		fields[path] = string(encoded)
	}
}

// flattenList adds the elements of a list by their names or types, otherwise by their indexes. The order of strings in
// the metadata, such as finalizers, does not count.
func (n names) flattenList(fields map[string]string, path string, list []any) {
	if len(list) == 0 {
		fields[path] = "[]"
	}
	id, seen := identity(list), map[string]int{}
	for i, element := range list {
		at := strconv.Itoa(i)
		if text, isText := element.(string); isText && strings.HasPrefix(path, ".metadata.") {
			at = n.replace(text)
		}
		if id != "" {
			at = n.replace(fmt.Sprint(element.(map[string]any)[id])) // identity has checked it
		}
		if seen[at]++; seen[at] > 1 {
			at = fmt.Sprintf("%s (%d)", at, seen[at])
		}
		n.flatten(fields, fmt.Sprintf("%s[%s]", path, at), element)
	}
}

var anyUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func (n names) withoutGenerated(text string) string {
	for _, name := range n.longest {
		text = strings.ReplaceAll(text, name, n.generated[name])
	}
	return text
}

func (n names) replace(text string) string {
	text = n.withoutGenerated(text)
	if _, err := time.Parse(time.RFC3339, text); err == nil {
		return "<time>"
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return "<address>"
	}
	return anyUID.ReplaceAllStringFunc(text, func(uid string) string {
		if id, found := n.uids[uid]; found {
			return "<uid of " + id + ">"
		}
		return "<uid>"
	})
}

// kindIn returns the kind in the name of an object in a state.
func kindIn(object string) string {
	kind, _, _ := strings.Cut(object, " ")
	return kind
}

// difference is a field that differs between two states. With an empty path the whole object is missing in one.
type difference struct{ object, path, want, got string }

// String returns the difference in words.
func (d difference) String() string {
	switch {
	case d.path == "" && d.got == "":
		return d.object + " is missing"
	case d.path == "":
		return d.object + " exists"
	}
	return fmt.Sprintf("%s: %s is %s, want %s", d.object, strings.TrimPrefix(d.path, "."), shown(d.got), shown(d.want))
}

func shown(value string) string {
	if value == "" {
		return "not set"
	}
	const longest = 120
	if len(value) > longest {
		value = value[:longest] + "..."
	}
	return value
}

// differences returns the differences of got from want, in the order of objects and fields.
func differences(want, got state) (all []difference) {
	objects := map[string]bool{}
	for id := range want {
		objects[id] = true
	}
	for id := range got {
		objects[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(objects)) {
		before, after := want[id], got[id]
		switch {
		case after == nil:
			all = append(all, difference{object: id, want: "exists"})
			continue
		case before == nil:
			all = append(all, difference{object: id, got: "exists"})
			continue
		}
		paths := map[string]bool{}
		for path := range before {
			paths[path] = true
		}
		for path := range after {
			paths[path] = true
		}
		for _, path := range slices.Sorted(maps.Keys(paths)) {
			if before[path] != after[path] {
				all = append(all, difference{id, path, before[path], after[path]})
			}
		}
	}
	return all
}
