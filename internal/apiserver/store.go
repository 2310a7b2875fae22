package apiserver

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is an API object: a pointer to a Go type, or an *unstructured.Unstructured.
type Object interface {
	runtime.Object
	metav1.Object
}

// record is a stored object. It never changes, so all lists, watches and forks share it.
type record struct {
	kind    *Kind
	key     string // namespace/name, or the name of a cluster-scoped object: the order of lists
	version uint64
	obj     Object // complete, with its TypeMeta and resourceVersion
	// rewritten is the result of Rules.Stored.
	rewritten bool
	// size is at least the size of the object in etcd.
	size int

	// Encodings, made when a client first asks for them.
	json     atomic.Pointer[[]byte]
	protobuf atomic.Pointer[[]byte]
	// views are the object in other versions, made when a client first asks for them.
	views atomic.Pointer[view]
}

// view is a stored object in the form of another kind, in a list of views.
type view struct {
	record *record
	next   *view
}

// as returns the object in the form of a kind of the same resource. It converts the object once.
func (r *record) as(kind *Kind) (*record, error) {
	if r.kind == kind {
		return r, nil
	}
	views := r.views.Load()
	for v := views; v != nil; v = v.next {
		if v.record.kind == kind {
			return v.record, nil
		}
	}
	converted, err := r.convert(kind)
	if err == nil {
		r.views.CompareAndSwap(views, &view{converted, views}) // a lost view is made again
	}
	return converted, err
}

// current is as for a read of the stored object, which an External kind converts each time.
func (r *record) current(kind *Kind) (*record, error) {
	if r.kind == kind || !kind.External {
		return r.as(kind)
	}
	return r.convert(kind)
}

func (r *record) convert(kind *Kind) (*record, error) {
	obj, err := kind.convert(r.obj)
	if err != nil {
		return nil, err
	}
	return &record{kind: kind, key: r.key, version: r.version, obj: obj}, nil
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// event is a committed write to an object.
type event struct {
	kind    watch.EventType // ADDED, MODIFIED, DELETED
	version uint64
	record  *record // the object after the write; for DELETED its last state, with the version of the deletion
	old     *record // the object before the write; nil for ADDED
}

// table contains the objects of one resource. Server.mu guards it.
type table struct {
	kind *Kind
	// records is sorted by key. It is copied before a write if a list, a watch or a fork still reads it.
	records []*record
	shared  bool
	// history contains the latest events in the order of versions. Its elements never change: readers keep slices of
	// it.
	history []event
	// compacted is the version of the latest event that was removed from history.
	compacted uint64
	// changed is closed at the next event; nil if nothing waits. The first waiter creates it, so that it belongs to the
	// waiter's synctest bubble.
	changed chan struct{}
	// closed is incremented by CloseWatches: watches that began earlier end.
	closed int
	// held is the version up to which watches send events; nil: no limit.
	held *uint64
	// allocated are the objects of requests between Rules.Allocate and their write.
	allocated []Object
	// streams are the open watches.
	streams map[*stream]struct{}
}

// snapshot returns the current records. The caller must not change them.
func (t *table) snapshot() []*record {
	t.shared = true
	return t.records
}

// objects returns the current objects.
func (t *table) objects() []Object {
	objects := make([]Object, len(t.records))
	for i, r := range t.records {
		objects[i] = r.obj
	}
	return objects
}

// copies returns the current records without their views.
func (t *table) copies() []*record {
	records := make([]*record, len(t.records))
	for i, r := range t.records {
		records[i] = &record{
			kind: r.kind, key: r.key, version: r.version, obj: r.obj, rewritten: r.rewritten,
			size: r.size,
		}
	}
	return records
}

func (t *table) find(key string) (int, bool) {
	i := sort.Search(len(t.records), func(i int) bool { return t.records[i].key >= key })
	return i, i < len(t.records) && t.records[i].key == key
}

func (t *table) get(key string) *record {
	if i, ok := t.find(key); ok {
		return t.records[i]
	}
	return nil
}

// put stores or replaces a record.
func (t *table) put(r *record) {
	i, exists := t.find(r.key)
	t.own()
	if exists {
		t.records[i] = r
		return
	}
	t.records = slices.Insert(t.records, i, r)
}

func (t *table) remove(key string) {
	if i, exists := t.find(key); exists {
		t.own()
		t.records = slices.Delete(t.records, i, i+1)
	}
}

// own makes records safe to write.
func (t *table) own() {
	if t.shared {
		t.records = append(make([]*record, 0, len(t.records)+len(t.records)/8+4), t.records...)
		t.shared = false
	}
}

// log appends an event and wakes the watches. When the history is twice as long as limit, the older half is removed.
func (t *table) log(e event, limit int) {
	t.history = append(t.history, e)
	if len(t.history) >= 2*limit {
		t.compact(t.history[len(t.history)-limit-1].version)
	}
	t.wake()
}

func (t *table) wake() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}

// compact removes the events up to version. Open watches keep those that they have not sent.
func (t *table) compact(version uint64) {
	n := t.after(version)
	for st := range t.streams {
		if st.cursor < version {
			st.backlog = append(st.backlog, t.history[min(n, t.after(st.cursor)):n]...)
			st.cursor = version
		}
	}
	if n > 0 {
		t.history = slices.Clone(t.history[n:]) // a new array, so that the removed events are freed
	}
	t.compacted = max(t.compacted, version)
}

// after returns the index in history of the first event after version.
func (t *table) after(version uint64) int { return after(t.history, version) }

// after returns the index of the first event after version.
func after(events []event, version uint64) int {
	return sort.Search(len(events), func(i int) bool { return events[i].version > version })
}

// wait returns a channel that is closed at the next event.
func (t *table) wait() <-chan struct{} {
	if t.changed == nil {
		t.changed = make(chan struct{})
	}
	return t.changed
}

// at returns the records as they were at version, which must not be compacted. The caller must not change them.
func (t *table) at(version uint64) []*record {
	later := t.history[t.after(version):]
	if len(later) == 0 {
		return t.snapshot()
	}
	states := map[string]*record{} // the first state after version is the state at version
	for _, e := range later {
		if _, seen := states[e.record.key]; !seen {
			states[e.record.key] = e.old
		}
	}
	past := make([]*record, 0, len(t.records)+len(states))
	for _, r := range t.records {
		if _, changed := states[r.key]; !changed {
			past = append(past, r)
		}
	}
	for _, r := range states {
		if r != nil {
			past = append(past, r)
		}
	}
	slices.SortFunc(past, func(a, b *record) int { return strings.Compare(a.key, b.key) })
	return past
}

// fork returns a copy that shares the stored objects.
func (t *table) fork() *table {
	t.shared = true
	return &table{
		kind: t.kind, records: t.records, shared: true,
		history: slices.Clip(t.history), compacted: t.compacted,
	}
}

// selection selects objects of a table.
type selection struct {
	namespace string // empty: all
	name      string // empty: all
	labels    labels.Selector
	fields    fields.Selector
}

// everything reports whether the selectors select all objects of the namespace.
func (s selection) everything() bool { return s.labels.Empty() && s.fields.Empty() }

func (s selection) includes(r *record) bool {
	if r == nil || s.namespace != "" && r.obj.GetNamespace() != s.namespace {
		return false
	}
	if !s.labels.Empty() && !s.labels.Matches(labels.Set(r.obj.GetLabels())) {
		return false
	}
	return s.fields.Empty() || s.fields.Matches(r.kind.selectableFields(r.obj))
}

// within returns the records in a namespace, which are consecutive.
func within(records []*record, namespace string) []*record {
	if namespace == "" {
		return records
	}
	from := sort.Search(len(records), func(i int) bool { return records[i].key >= namespace+"/" })
	to := sort.Search(len(records), func(i int) bool { return records[i].key >= namespace+"0" }) // '0' follows '/'
	return records[from:to]
}

func tooOld(requested, compacted uint64) *apierrors.StatusError {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", requested, compacted))
}
