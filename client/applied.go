package client

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"sync"

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
// It has up to two generations of generationSize entries each, of some 150 bytes: when the young
// one is full it becomes the old one, whose entries are dropped, but for those that have been
// asked for meanwhile. Who applies to more objects than that makes a request for some of them
// that was not necessary, which changes nothing.
type appliedMemory struct {
	mu         sync.Mutex
	young, old map[digest]appliedState // guarded by mu
	appliers   map[applier]bool        // in whose names something was applied; guarded by mu
}

const (
	generationSize = 1 << 15
	// maxAppliers is far above what programs have: one or two field owners, and the status.
	maxAppliers = 32
)

// applier is in whose name, in which version of a kind and to which part of objects something is
// applied.
type applier struct{ version, fieldOwner, subresource string }

func newAppliedMemory() *appliedMemory {
	return &appliedMemory{young: map[digest]appliedState{}, appliers: map[applier]bool{}}
}

// appliedState is what is remembered of the answer to an apply.
type appliedState struct {
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

// appliedID is the digest of what a configuration is applied to, and by whom.
func appliedID(kind schema.GroupKind, key kube.Key, by applier) digest {
	return digestOf([]string{kind.Group, by.version, kind.Kind, key.Namespace, key.Name, by.fieldOwner, by.subresource})
}

func (m *appliedMemory) get(id digest) (appliedState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state, ok := m.young[id]
	if !ok {
		if state, ok = m.old[id]; ok {
			m.put(id, state)
		}
	}
	return state, ok
}

// note remembers an answer. When a newer one of the same object has been noted before, nothing is
// known any longer: applies that run at once end in any order.
func (m *appliedMemory) note(id digest, by applier, state appliedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.appliers[by] && len(m.appliers) >= maxAppliers {
		m.clear() // or written would have to look for ever more of them
	}
	m.appliers[by] = true
	last, ok := m.young[id]
	if !ok {
		last, ok = m.old[id]
	}
	if ok && last.uid == state.uid && older(state.version, last.version) {
		delete(m.young, id)
		delete(m.old, id)
		return
	}
	m.put(id, state)
}

// put stores a state in the young generation. m.mu must be held.
func (m *appliedMemory) put(id digest, state appliedState) {
	if _, known := m.young[id]; !known && len(m.young) >= generationSize {
		m.old, m.young = m.young, map[digest]appliedState{}
	}
	m.young[id] = state
}

// saw notes that the object was as state says, in a later version.
func (m *appliedMemory) saw(id digest, state appliedState, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.young[id] == state && older(state.version, version) {
		state.version = version
		m.young[id] = state
	}
}

// forget drops what is known, because it may not be so any longer.
func (m *appliedMemory) forget(id digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.young, id)
	delete(m.old, id)
}

// written drops what is known of an object to which something else was done, whether or not that
// came to anything: no informer shows it yet.
func (m *appliedMemory) written(kind schema.GroupKind, key kube.Key) {
	m.drop(kind, key, func(applier) bool { return true })
}

// taken drops what is known of the same part of an object in other names than by, which has
// taken fields by force.
func (m *appliedMemory) taken(kind schema.GroupKind, key kube.Key, by applier) {
	m.drop(kind, key, func(other applier) bool { return other != by && other.subresource == by.subresource })
}

func (m *appliedMemory) drop(kind schema.GroupKind, key kube.Key, which func(applier) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for by := range m.appliers {
		if which(by) {
			id := appliedID(kind, key, by)
			delete(m.young, id)
			delete(m.old, id)
		}
	}
}

// writtenAll drops everything: objects were deleted whose names nobody knows.
func (m *appliedMemory) writtenAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.clear()
}

// clear drops everything. m.mu must be held.
func (m *appliedMemory) clear() {
	clear(m.young)
	clear(m.old)
	clear(m.appliers)
}

// remembering notes the writes that are no applies; an apply notes itself.
func (m *appliedMemory) remembering(send RoundTrip) RoundTrip {
	return func(ctx context.Context, r *Request) error {
		err := send(ctx, r)
		switch {
		case r.DryRun, !r.Verb.Writes(), r.Verb == VerbApply:
		case r.Verb == VerbDeleteCollection:
			m.writtenAll()
		case r.Key.Name != "":
			m.written(r.Kind.GroupKind(), r.Key)
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
