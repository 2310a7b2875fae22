package client

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/evenkeel-go/evenkeel/kube"
)

// appliedMemory is what a client has applied last to each object: digests, by which a later
// Apply can tell from what an informer shows that there is nothing to do.
//
// It has up to two generations of generationSize objects each, of some 270 bytes: when the young
// one is full it becomes the old one, whose objects are dropped, but for those that have been
// asked for meanwhile. Who applies to more objects than that makes a request for some of them
// that was not necessary, which changes nothing.
type appliedMemory struct {
	mu         sync.Mutex
	young, old map[digest]appliedObject // by appliedID.object, each in one of them; guarded by mu
}

const (
	generationSize = 1 << 15
	// maxAppliers is far above what an object has: one or two field owners, and its status.
	maxAppliers = 32
)

// appliedID is what a configuration is applied to, and by whom: handles, because they are kept for
// every object, and few are different.
type appliedID struct {
	object digest // of its kind, namespace and name
	in     unique.Handle[collection]
	by     unique.Handle[applier]
}

// collection is all objects of a kind, in whatever version, that are in a namespace.
type collection struct {
	kind      schema.GroupKind
	namespace string
}

// applier is in whose name, in which version of a kind and to which part of objects something is
// applied.
type applier struct{ version, fieldOwner, subresource string }

func newAppliedMemory() *appliedMemory { return &appliedMemory{young: map[digest]appliedObject{}} }

// appliedObject is what is remembered of one object.
type appliedObject struct {
	in     unique.Handle[collection]
	states []appliedState // one of each applier, the latest last
}

// appliedState is what is remembered of the answer to an apply.
type appliedState struct {
	by         unique.Handle[applier]
	uid        types.UID
	version    string // the latest resourceVersion in which it was so
	configured digest // of the configuration that was applied
	shown      digest // of what the answer had in the configuration's fields
	entry      digest // of the field owner's entry in managedFields
}

// digest stands for a value that is too large to be kept. The zero digest stands for nothing.
type digest [16]byte

// digestOf returns the digest of a value as JSON has it, where maps are sorted.
func digestOf(value any) digest {
	encoded, err := json.Marshal(value)
	if err != nil {
		return digest{} // no value that has come from JSON; a zero digest is never taken as equal
	}
	sum := sha256.Sum256(encoded)
	return digest(sum[:len(digest{})])
}

// same reports whether two digests stand for equal values.
func (d digest) same(other digest) bool { return d != digest{} && d == other }

// objectID is appliedID.object.
func objectID(kind schema.GroupKind, key kube.Key) digest {
	return digestOf([]string{kind.Group, kind.Kind, key.Namespace, key.Name})
}

// of returns what is known of an object, which is young from now on. m.mu must be held.
func (m *appliedMemory) of(object digest) appliedObject {
	known, ok := m.young[object]
	if !ok {
		if known, ok = m.old[object]; ok {
			m.put(object, known)
		}
	}
	return known
}

// put remembers what is known of an object. m.mu must be held.
func (m *appliedMemory) put(object digest, known appliedObject) {
	delete(m.old, object)
	if len(known.states) == 0 {
		delete(m.young, object)
		return
	}
	if _, there := m.young[object]; !there && len(m.young) >= generationSize {
		m.old, m.young = m.young, map[digest]appliedObject{}
	}
	m.young[object] = known
}

// by returns the place of an applier's state among those of the object; -1 when it has none.
func (o appliedObject) by(who unique.Handle[applier]) int {
	return slices.IndexFunc(o.states, func(s appliedState) bool { return s.by == who })
}

func (m *appliedMemory) get(id appliedID) (appliedState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	if at := known.by(id.by); at >= 0 {
		return known.states[at], true
	}
	return appliedState{}, false
}

// note remembers an answer. When a newer one of the same object has been noted before, nothing is
// known any longer: applies that run at once end in any order.
func (m *appliedMemory) note(id appliedID, state appliedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	known.in, state.by = id.in, id.by
	overtaken := false
	if at := known.by(id.by); at >= 0 {
		last := known.states[at]
		overtaken = last.uid == state.uid && older(state.version, last.version)
		known.states = slices.Delete(known.states, at, at+1)
	}
	if !overtaken {
		if len(known.states) >= maxAppliers {
			known.states = slices.Delete(known.states, 0, 1)
		}
		known.states = append(known.states, state)
	}
	m.put(id.object, known)
}

// saw notes that the object was as state says, in a later version.
func (m *appliedMemory) saw(id appliedID, state appliedState, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	if at := known.by(id.by); at >= 0 && known.states[at] == state && older(state.version, version) {
		known.states[at].version = version
	}
}

// forget drops what is known, because it may not be so any longer.
func (m *appliedMemory) forget(id appliedID) {
	m.drop(id.object, func(by unique.Handle[applier]) bool { return by == id.by })
}

// written drops what is known of an object to which something else was done, whether or not that
// came to anything: no informer shows it yet.
func (m *appliedMemory) written(object digest) {
	m.drop(object, func(unique.Handle[applier]) bool { return true })
}

// taken drops what is known of the same part of the object in other names than that of id, which
// has taken fields by force.
func (m *appliedMemory) taken(id appliedID) {
	part := id.by.Value().subresource
	m.drop(id.object, func(by unique.Handle[applier]) bool { return by != id.by && by.Value().subresource == part })
}

func (m *appliedMemory) drop(object digest, which func(unique.Handle[applier]) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(object)
	known.states = slices.DeleteFunc(known.states, func(s appliedState) bool { return which(s.by) })
	m.put(object, known)
}

// writtenAll drops what is known of a collection: some of it was deleted, and nobody knows which.
func (m *appliedMemory) writtenAll(all collection) {
	in := unique.Make(all)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, generation := range []map[digest]appliedObject{m.young, m.old} {
		maps.DeleteFunc(generation, func(_ digest, known appliedObject) bool { return known.in == in })
	}
}

// remembering notes the writes that are no applies; an apply notes itself.
func (m *appliedMemory) remembering(send RoundTrip) RoundTrip {
	return func(ctx context.Context, r *Request) error {
		verb := r.Verb // the caller's, which an interceptor may change
		err := send(ctx, r)
		switch {
		case r.DryRun, !verb.Writes(), verb == VerbApply:
		case verb == VerbDeleteCollection:
			m.writtenAll(collection{r.Kind.GroupKind(), r.Key.Namespace})
		case r.Key.Name != "":
			m.written(objectID(r.Kind.GroupKind(), r.Key))
		}
		return err
	}
}

// declaredIn separates what an object is to be like from which object is meant: what was created
// without a uid is as it should be when it is applied with the one that it has got.
func declaredIn(configuration map[string]any) (declared map[string]any, uid types.UID) {
	metadata, _ := configuration["metadata"].(map[string]any)
	text, _ := metadata["uid"].(string)
	if text == "" {
		return configuration, ""
	}
	metadata = maps.Clone(metadata)
	delete(metadata, "uid")
	declared = maps.Clone(configuration)
	declared["metadata"] = metadata
	return declared, types.UID(text)
}

// stateOf returns what is to be remembered of an object to which configuration was applied.
func (a application) stateOf(obj kube.Object) (appliedState, error) {
	shown, err := a.shownIn(obj)
	return appliedState{
		uid: obj.GetUID(), version: obj.GetResourceVersion(), configured: a.configured, shown: shown,
		entry: a.entryIn(obj),
	}, err
}

// shownIn returns the digest of what obj has in the configuration's fields.
func (a application) shownIn(obj kube.Object) (digest, error) {
	content, err := a.client.shapes.contentOf(obj)
	if err != nil {
		return digest{}, err
	}
	projected, _ := project(a.declared, content).(map[string]any)
	delete(projected, "apiVersion")
	delete(projected, "kind")
	return digestOf(projected), nil
}

// project returns what value has in the fields of configuration. Lists are taken as a whole, for
// who has put what into them only the API server knows.
func project(configuration, value any) any {
	wanted, isMap := configuration.(map[string]any)
	fields, areMaps := value.(map[string]any)
	if !isMap || !areMaps {
		return value
	}
	projected := map[string]any{}
	for name, inner := range wanted {
		if field, ok := fields[name]; ok {
			projected[name] = project(inner, field)
		}
	}
	return projected
}

// entryIn returns the digest of what managedFields say of the field owner, and the zero digest
// when obj has none, as informers show it. The time of the last change by the owner is in it.
func (a application) entryIn(obj metav1.Object) digest {
	if len(obj.GetManagedFields()) == 0 {
		return digest{}
	}
	entries := sets.New[string]() // one for each version of the kind
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager != a.request.FieldOwner || entry.Operation != metav1.ManagedFieldsOperationApply ||
			entry.Subresource != a.request.Subresource {
			continue
		}
		var fields any
		if entry.FieldsV1 != nil && json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			return digest{}
		}
		entry.FieldsV1 = nil
		encoded, err := json.Marshal([]any{entry, fields}) // in the order of encoding/json, whoever has encoded it
		if err != nil {
			return digest{}
		}
		entries.Insert(string(encoded))
	}
	return digestOf(sets.List(entries))
}

// older reports whether resourceVersion a is before b. Those that cannot be compared never are.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
