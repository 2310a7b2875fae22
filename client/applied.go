package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/evenkeel-go/evenkeel/kube"
)

// appliedMemory is what a client has applied last to each object: digests, by which a later
// Apply can tell from what an informer shows that there is nothing to do.
//
// It has up to two generations of generationSize objects each, of some 310 bytes: when the young
// one is full it becomes the old one, whose objects are dropped, but for those that have been
// asked for meanwhile. Who applies to more objects than that makes a request for some of them
// that was not necessary, which changes nothing.
type appliedMemory struct {
	mu         sync.Mutex
	young, old map[digest]appliedObject // by appliedID.object, each in one of them; guarded by mu
	doubts     doubts                   // guarded by mu
}

// doubts are the objects that this client has written lately: an informer may still show them as they
// were before. Each doubt lasts for one to two times doubtFor, longer than an informer that works is
// behind.
type doubts struct {
	young, old doubtful
	since      time.Time // of young
}

// doubtful are objects, each with the applier that knows its own write, if one does; and collections.
type doubtful struct {
	objects     map[digest]unique.Handle[applier]
	collections map[unique.Handle[collection]]bool
}

const doubtFor = time.Minute

// now returns the doubts to which new ones are added.
func (d *doubts) now() doubtful {
	if elapsed := time.Since(d.since); d.young.objects == nil || elapsed > doubtFor {
		if d.old = d.young; elapsed > 2*doubtFor {
			d.old = doubtful{}
		}
		d.young = doubtful{objects: map[digest]unique.Handle[applier]{}, collections: map[unique.Handle[collection]]bool{}}
		d.since = time.Now()
	}
	return d.young
}

func (d doubtful) has(id appliedID) bool {
	except, is := d.objects[id.object]
	return is && except != id.by || d.collections[id.in]
}

// isDoubtful reports whether an informer may not show yet what this client has done to the object
// otherwise than by the same apply.
func (m *appliedMemory) isDoubtful(id appliedID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isDoubtfulLocked(id)
}

// isDoubtfulLocked is isDoubtful with m.mu held.
func (m *appliedMemory) isDoubtfulLocked(id appliedID) bool {
	m.doubts.now()
	return m.doubts.young.has(id) || m.doubts.old.has(id)
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
	input      digest // of the object that Apply was given; zero: not known
	configured digest // of the configuration that was applied
	shown      digest // of what the answer had in the configuration's fields
	shownAs    digest // of the object in that version as an informer has shown it; zero: not known
	entry      digest // of the field owner's entry in managedFields
	// term is the leadership under which that was; nil without one. In another term it is not known
	// any more: another process has led meanwhile, perhaps with another version of the program.
	term <-chan struct{}
}

// digest stands for a value that is too large to be kept. The zero digest stands for nothing.
type digest [16]byte

// digestOf returns the digest of a value as JSON has it, where maps are sorted.
func digestOf(value any) digest {
	encoded, err := json.Marshal(value)
	if err != nil {
		return digest{} // no value that has come from JSON; a zero digest is never taken as equal
	}
	return digestOfBytes(encoded)
}

func digestOfBytes(encoded []byte) digest {
	sum := sha256.Sum256(encoded)
	return digest(sum[:len(digest{})])
}

// String returns the digest as text.
func (d digest) String() string { return base64.RawURLEncoding.EncodeToString(d[:]) }

// same reports whether two digests stand for equal values.
func (d digest) same(other digest) bool { return d != digest{} && d == other }

// digestOfShown returns the digest of all of an object; the zero digest when it cannot be encoded.
func digestOfShown(obj kube.Object) digest {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return digestOf(u.Object) // its own encoder wants a kind
	}
	return digestOf(obj)
}

// digestOfInput returns the digest of what decides on the configuration that is computed of an object,
// beside its kind, its key and the subresource. For a typed object this is more than what it is encoded
// as: its Go type, and which of its optional structs are zero, tell which fields are set.
func (s *shapes) digestOfInput(obj kube.Object, hashAnnotation string) digest {
	content := digestOfShown(obj)
	if content == (digest{}) {
		return digest{}
	}
	input := fmt.Appendf(content[:], "%p %s ", reflect.TypeOf(obj), hashAnnotation)
	if _, isUnstructured := obj.(*unstructured.Unstructured); !isUnstructured {
		input = s.appendZeros(input, reflect.ValueOf(obj))
	}
	return digestOfBytes(input)
}

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

// saw notes that the object was as state says, in that version or a later one, how an informer has
// shown it, and what Apply was given.
func (m *appliedMemory) saw(id appliedID, state appliedState, version string, shownAs, input digest) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	if at := known.by(id.by); at >= 0 && known.states[at] == state && (version == state.version || older(state.version, version)) {
		known.states[at].version, known.states[at].shownAs, known.states[at].input = version, shownAs, input
	}
}

// replace remembers state in place of last, or where nothing was remembered (last is nil). It does nothing
// when that is not so any more, or when the client has written the object meanwhile.
func (m *appliedMemory) replace(id appliedID, last *appliedState, state appliedState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	at := known.by(id.by)
	if (at >= 0) != (last != nil) || at >= 0 && known.states[at] != *last || m.isDoubtfulLocked(id) {
		return
	}
	known.in, state.by = id.in, id.by
	if at >= 0 {
		known.states = slices.Delete(known.states, at, at+1)
	}
	known.states = append(known.states, state)
	m.put(id.object, known)
}

// forget drops what is known but for the version, because it may not be so any longer. An informer that shows
// an older version is still behind the last apply.
func (m *appliedMemory) forget(id appliedID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.of(id.object)
	if at := known.by(id.by); at >= 0 {
		last := known.states[at]
		known.states[at] = appliedState{by: last.by, uid: last.uid, version: last.version, term: last.term}
	}
}

// written drops what is known of an object to which something else was done, whether or not that
// came to anything: no informer shows it yet.
func (m *appliedMemory) written(object digest) {
	m.doubt(object, unique.Handle[applier]{})
	m.forgetAll(object)
}

// forgetAll is forget for all appliers.
func (m *appliedMemory) forgetAll(object digest) {
	m.drop(object, func(unique.Handle[applier]) bool { return true })
}

// taken drops what is known of the same part of the object in other names than that of id, which
// has taken fields by force.
func (m *appliedMemory) taken(id appliedID) {
	part := id.by.Value().subresource
	if part == "" {
		m.doubt(id.object, id.by)
	}
	m.drop(id.object, func(by unique.Handle[applier]) bool { return by != id.by && by.Value().subresource == part })
}

// doubt notes that an object was written, but for an applier that knows it.
func (m *appliedMemory) doubt(object digest, except unique.Handle[applier]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	objects := m.doubts.now().objects
	if known, already := objects[object]; already && known != except {
		except = unique.Handle[applier]{}
	}
	objects[object] = except
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
	m.doubts.now().collections[in] = true
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
		case r.Key.Name != "" && r.Subresource == "status":
			m.forgetAll(objectID(r.Kind.GroupKind(), r.Key)) // nothing but the status can be other than shown
		case r.Key.Name != "":
			m.written(objectID(r.Kind.GroupKind(), r.Key))
		}
		return err
	}
}

// declaredIn returns a configuration without the uid and the resourceVersion, which name the object and its
// state: what was created without a uid is as it should be when it is applied with the one that it has got.
func declaredIn(configuration map[string]any) map[string]any {
	metadata, _ := configuration["metadata"].(map[string]any)
	_, hasUID := metadata["uid"]
	_, versioned := metadata["resourceVersion"]
	if !hasUID && !versioned {
		return configuration
	}
	metadata = maps.Clone(metadata)
	delete(metadata, "uid")
	delete(metadata, "resourceVersion")
	declared := maps.Clone(configuration)
	declared["metadata"] = metadata
	return declared
}

// stateOf returns what is to be remembered of an object to which configuration was applied.
func (a application) stateOf(obj kube.Object) (appliedState, error) {
	shown, err := a.shownIn(obj)
	return appliedState{
		uid: obj.GetUID(), version: obj.GetResourceVersion(), input: a.input, configured: a.configured, shown: shown,
		entry: a.entryIn(obj), term: a.term,
	}, err
}

// last returns what is remembered of the last apply to the object, unless it was in another term.
func (a application) last() (appliedState, bool) {
	last, ok := a.client.applied.get(a.id)
	if !ok || last.term != a.term {
		return appliedState{}, false
	}
	return last, true
}

// shownIn returns the digest of what obj has in the configuration's fields.
func (a application) shownIn(obj kube.Object) (digest, error) {
	if err := a.desired.compute(); err != nil {
		return digest{}, err
	}
	content, err := a.contents.of(obj)
	if err != nil {
		return digest{}, err
	}
	projected, _ := project(a.desired.declared, content).(map[string]any)
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

// entryOf returns the field owner's entry in managedFields: the one that an informer keeps beside
// the object, or that of the object itself; nil when it is not known.
func (a application) entryOf(obj metav1.Object, kept *metav1.ManagedFieldsEntry) *metav1.ManagedFieldsEntry {
	if kept != nil && a.isOwn(kept) {
		return kept
	}
	entries := obj.GetManagedFields()
	for i := range entries {
		if a.isOwn(&entries[i]) {
			return &entries[i]
		}
	}
	return nil
}

// isOwn reports whether an entry of managedFields says what the field owner has applied.
func (a application) isOwn(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == a.request.FieldOwner && entry.Operation == metav1.ManagedFieldsOperationApply &&
		entry.Subresource == a.request.Subresource
}

// entryIn returns the digest of what managedFields say of the field owner, and the zero digest
// when obj has none, as informers show it. The time of the last change by the owner is in it.
func (a application) entryIn(obj metav1.Object) digest {
	if len(obj.GetManagedFields()) == 0 {
		return digest{}
	}
	return a.digestOfEntries(a.entryOf(obj, nil))
}

// digestOfEntries is entryIn for an entry; nil when the owner has none.
func (a application) digestOfEntries(own *metav1.ManagedFieldsEntry) digest {
	if own == nil {
		return digestOf([]string{})
	}
	entry := *own
	var fields any
	if entry.FieldsV1 != nil && json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return digest{}
	}
	entry.FieldsV1 = nil
	return digestOf([]any{entry, fields}) // in the order of encoding/json, whoever has encoded it
}

// older reports whether resourceVersion a is before b. Those that cannot be compared never are.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}
