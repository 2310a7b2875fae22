package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"unique"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
)

// appliedMemory stores digests of what a client last applied to each object. With them, a later Apply
// detects from an informer's object that no request is necessary.
//
// It has two generations of up to generationSize objects each, about 310 bytes per object. When the recent
// generation is full, it becomes the old one, and the previous old generation is dropped. Objects that are
// used move to the recent generation. A client that applies to more objects makes some unnecessary requests,
// which change nothing.
type appliedMemory struct {
	mu          sync.Mutex
	recent, old map[digest]appliedObject // by appliedID.object, each in one of them; guarded by mu
	writes      recentWrites             // guarded by mu
}

const (
	generationSize = 1 << 15
	// maxAppliers is far above the usual number: one or two field owners, and the status.
	maxAppliers = 32
)

// appliedID identifies an object, and the applier of a configuration to it. Its fields are handles because
// it is stored for every object, and only few values differ.
type appliedID struct {
	object     digest // of its kind, namespace and name
	collection unique.Handle[collection]
	applier    unique.Handle[applier]
}

// collection identifies all objects of a kind, in any version, in a namespace.
type collection struct {
	kind      schema.GroupKind
	namespace string
}

func (c collection) id() digest { return objectID(c.kind, kube.Key{Namespace: c.namespace}) }

// applier identifies a field owner, with the version of the kind and the subresource that it applies.
type applier struct{ version, fieldOwner, subresource string }

func newAppliedMemory() *appliedMemory { return &appliedMemory{recent: map[digest]appliedObject{}} }

// appliedObject is the stored information about one object.
type appliedObject struct {
	collection unique.Handle[collection]
	states     []appliedState // one per applier, the latest last
}

// appliedState is the stored result of an apply.
type appliedState struct {
	applier    unique.Handle[applier]
	uid        types.UID
	version    string // the latest resourceVersion with this state
	input      digest // of the object passed to Apply; zero: unknown
	configured digest // of the configuration
	shown      digest // of the object's values in the fields of the configuration
	shownAs    digest // of the informer's object with that resourceVersion; zero: unknown
	entry      digest // of the field owner's entry in managedFields
	// term is the leadership under which the state was stored; nil without leader election. The state is not
	// used in another term, because another process, perhaps with another version of the program, led in
	// between.
	term <-chan struct{}
}

// objectID returns appliedID.object.
func objectID(kind schema.GroupKind, key kube.Key) digest {
	return digestOf([]string{kind.Group, kind.Kind, key.Namespace, key.Name})
}

// of returns the stored information about an object, and moves it to the recent generation. m.mu must be held.
func (m *appliedMemory) of(object digest) appliedObject {
	known, ok := m.recent[object]
	if !ok {
		if known, ok = m.old[object]; ok {
			m.put(object, known)
		}
	}
	return known
}

// put stores the information about an object. m.mu must be held.
func (m *appliedMemory) put(object digest, known appliedObject) {
	delete(m.old, object)
	if len(known.states) == 0 {
		delete(m.recent, object)
		return
	}
	if _, exists := m.recent[object]; !exists && len(m.recent) >= generationSize {
		m.old, m.recent = m.recent, map[digest]appliedObject{}
	}
	m.recent[object] = known
}

// index returns the index of an applier's state, or -1.
func (o appliedObject) index(by unique.Handle[applier]) int {
	return slices.IndexFunc(o.states, func(s appliedState) bool { return s.applier == by })
}

func (m *appliedMemory) get(id appliedID) (appliedState, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	if at := known.index(id.applier); at >= 0 {
		return known.states[at], true
	}
	return appliedState{}, false
}

// store stores the result of an apply. If the result of a later apply is stored already, it drops both:
// concurrent applies may end in any order.
func (m *appliedMemory) store(id appliedID, state appliedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	known.collection, state.applier = id.collection, id.applier
	overtaken := false
	if at := known.index(id.applier); at >= 0 {
		last := known.states[at]
		overtaken = last.uid == state.uid && apiobject.OlderVersion(state.version, last.version)
		known.states = slices.Delete(known.states, at, at+1)
	}
	if !overtaken {
		known.states = append(known.states[max(0, len(known.states)+1-maxAppliers):], state)
	}
	m.put(id.object, known)
}

// confirm updates state, if it is still stored: the object had it in version, or in a later version. shownAs
// is the digest of the informer's object, input that of the object passed to Apply.
func (m *appliedMemory) confirm(id appliedID, state appliedState, version string, shownAs, input digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	if at := known.index(id.applier); at >= 0 && known.states[at] == state &&
		(version == state.version || apiobject.OlderVersion(state.version, version)) {
		known.states[at].version, known.states[at].shownAs, known.states[at].input = version, shownAs, input
	}
}

// replace stores state in place of last; nil: in place of no state. It does nothing if last has been replaced,
// or if the client has recently written the object in another way.
func (m *appliedMemory) replace(id appliedID, last *appliedState, state appliedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	at := known.index(id.applier)
	if (at >= 0) != (last != nil) || at >= 0 && known.states[at] != *last || m.writes.has(id) {
		return
	}
	known.collection, state.applier = id.collection, id.applier
	if at >= 0 {
		known.states = slices.Delete(known.states, at, at+1)
	}
	known.states = append(known.states, state)
	m.put(id.object, known)
}

// forget drops a state except its resourceVersion, because it may be outdated. With the resourceVersion, a later call
// detects that an informer does not show the last apply yet.
func (m *appliedMemory) forget(id appliedID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	if at := known.index(id.applier); at >= 0 {
		last := known.states[at]
		known.states[at] = appliedState{applier: last.applier, uid: last.uid, version: last.version, term: last.term}
	}
}

// forgetWritten drops all states of an object that was written in another way than by an apply, whether or
// not the write succeeded: informers may not show it yet.
func (m *appliedMemory) forgetWritten(object digest) {
	m.noteWrite(object, unique.Handle[applier]{})
	m.forgetAll(object)
}

// forgetAll drops the states of all appliers.
func (m *appliedMemory) forgetAll(object digest) {
	m.drop(object, func(unique.Handle[applier]) bool { return true })
}

// forgetForced drops the states of the other appliers of the same subresource, after the applier of id took
// fields by force.
func (m *appliedMemory) forgetForced(id appliedID) {
	subresource := id.applier.Value().subresource
	if subresource == "" {
		m.noteWrite(id.object, id.applier)
	}
	m.drop(id.object, func(by unique.Handle[applier]) bool {
		return by != id.applier && by.Value().subresource == subresource
	})
}

func (m *appliedMemory) drop(object digest, which func(unique.Handle[applier]) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(object)
	known.states = slices.DeleteFunc(known.states, func(s appliedState) bool { return which(s.applier) })
	m.put(object, known)
}

// forgetCollection drops the states of all objects of a collection, after a request that deleted some of them.
func (m *appliedMemory) forgetCollection(all collection) {
	handle := unique.Make(all)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes.current()[all.id()] = unique.Handle[applier]{}
	for _, generation := range []map[digest]appliedObject{m.recent, m.old} {
		maps.DeleteFunc(generation, func(_ digest, known appliedObject) bool { return known.collection == handle })
	}
}

// noteWrite records that an object was written. For some time, an older object of an informer then confirms no apply,
// except an apply of the applier that made the write.
func (m *appliedMemory) noteWrite(object digest, by unique.Handle[applier]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	objects := m.writes.current()
	if known, exists := objects[object]; exists && known != by {
		by = unique.Handle[applier]{}
	}
	objects[object] = by
}

// hasRecentWrite reports whether this client has recently written the object in another way than by the
// apply of id, so that an informer may not show it yet.
func (m *appliedMemory) hasRecentWrite(id appliedID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes.has(id)
}

// intercept wraps send: after a write other than an apply, it drops the states that the write may have
// changed. An apply stores its own state.
func (m *appliedMemory) intercept(send RoundTrip) RoundTrip {
	return func(ctx context.Context, r *Request) error {
		verb := r.Verb // before an interceptor changes it
		err := send(ctx, r)
		switch {
		case r.DryRun, !verb.IsWrite(), verb == VerbApply:
		case verb == VerbDeleteCollection:
			m.forgetCollection(collection{r.Kind.GroupKind(), r.Key.Namespace})
		case r.Key.Name != "" && r.Subresource == "status":
			m.forgetAll(objectID(r.Kind.GroupKind(), r.Key)) // informers may show an older status
		case r.Key.Name != "":
			m.forgetWritten(objectID(r.Kind.GroupKind(), r.Key))
		}
		return err
	}
}
