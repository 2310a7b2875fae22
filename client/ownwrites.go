package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// ownWriteLag is the time after a write until which reads wait for informers. A healthy watch is behind by
	// milliseconds, and a request takes no longer than this wait.
	ownWriteLag = time.Second
	// minOwnWriteWait is the minimum wait, because an informer that announces a change cannot tell what it shows.
	minOwnWriteWait = 20 * time.Millisecond
	// lostWriteAge is the time for which the objects of a write whose effect is not known are read from the API server.
	// It exceeds the time for which an API server works on a request without a response.
	lostWriteAge = 2 * time.Minute
	// ownWriteAge is the maximum age of a write that informers do not show. They replace a silent watch earlier.
	ownWriteAge = 10 * time.Minute
	// minPrune is the number of writes from which shown ones are removed.
	minPrune = 256
	// maxEarlier is the maximum number of writes that are kept for an object in addition to the last one.
	maxEarlier = 16
)

// ownWrites are the writes of a client with Config.ReadOwnWrites, until its informers show them. A nil *ownWrites has
// none.
type ownWrites struct {
	// Immutable.
	server    string // URL of the API server
	informers []Informer

	mu      sync.Mutex
	last    map[writtenID]ownWrite // guarded by mu; the last write to each object
	pruneAt int                    // guarded by mu; the number of writes at which shown ones are removed
	count   int                    // guarded by mu; of all writes
}

// writtenID identifies a written object, in any version of its kind, or without a name all objects of its namespace.
type writtenID struct {
	kind schema.GroupKind
	key  kube.Key
}

// ownWrite is the last write to an object.
type ownWrite struct {
	cache.Write           // without a UID: not known
	at          time.Time // of Write
	lostAt      time.Time // the last write whose effect on the object is not known
	number      int       // of Write, by the order of the responses
	// earlier are writes with other labels, or to an earlier object of the name, that an informer may show before
	// Write: without them, one that selects by labels seems to show a Write of an object that it does not select.
	earlier []cache.Write
}

// all returns the writes to the object, in their order.
func (w ownWrite) all() []cache.Write { return append(slices.Clip(w.earlier), w.Write) }

func newOwnWrites(config Config) *ownWrites {
	if !config.ReadOwnWrites {
		return nil
	}
	w := &ownWrites{informers: config.Informers, last: map[writtenID]ownWrite{}, pruneAt: minPrune}
	w.server, _ = kubeconfig.Server(config.Cluster.RESTConfig())
	return w
}

// readBy returns the informers that have objects of a kind, in any version.
func (w *ownWrites) readBy(kind schema.GroupKind) (informers []cache.Informer) {
	for _, informer := range w.informers {
		if untyped := cache.Of(informer); untyped.Kind().GroupKind() == kind {
			informers = append(informers, untyped)
		}
	}
	return informers
}

// begin returns the number of writes that have returned, for record.
func (w *ownWrites) begin() int {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// record records a write that was sent after begin had returned began, with the body of its response, if there is one,
// or its error.
func (w *ownWrites) record(r *Request, began int, body []byte, err error) {
	if w == nil || !r.Verb.IsWrite() || r.DryRun {
		return
	}
	if rejected := r.Status >= 300 && r.Status < 500; rejected || errors.Is(err, kube.ErrReadOnly) {
		return
	}
	id := writtenID{r.Kind.GroupKind(), r.Key}
	if len(w.readBy(id.kind)) == 0 {
		return
	}
	now := time.Now()
	write, known := cache.Write{}, false
	if err == nil {
		write, known = writeOf(r, body)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prune(now)
	w.count++
	if !known {
		last := w.last[id]
		last.lostAt = now
		w.last[id] = last
		return
	}
	if write.ResourceVersion == "" && !write.Deleted {
		return // the response is not a state of the object: a token of a ServiceAccount
	}
	id.key, write.Server = write.Key, w.server
	last := w.last[id]
	next := ownWrite{Write: write, at: now, lostAt: last.lostAt, number: w.count}
	concurrent := last.number > began // then the responses may have another order than the writes
	if last.UID == write.UID {
		next.follow(last, concurrent)
	} else if last.UID != "" && concurrent {
		next.lostAt = now // one of the two objects replaced the other
	}
	if last.UID != "" && (last.UID != next.UID || last.Object != next.Object &&
		!maps.Equal(last.labels(), next.labels())) && w.isUnseen(id.kind, last.all()) {
		next.earlier = last.all()
	}
	if len(next.earlier) > maxEarlier {
		next.earlier, next.lostAt = nil, now
	}
	w.last[id] = next
}

// follow completes w, a write to the object of last.
func (w *ownWrite) follow(last ownWrite, concurrent bool) {
	isOlder := apiobject.OlderVersion(w.ResourceVersion, last.ResourceVersion)
	if w.Object == nil || concurrent && isOlder {
		w.Object = last.Object // its labels
	}
	// The version of a deletion is a minimum. Otherwise, an older version is that of a restored API server.
	if w.ResourceVersion == "" || isOlder && (concurrent || w.Deleted) {
		w.ResourceVersion = last.ResourceVersion
	}
	w.Deleted = w.Deleted || concurrent && last.Deleted
	w.earlier = last.earlier
}

// labels returns the labels of the object, or nil if they are not known.
func (w *ownWrite) labels() map[string]string {
	if w.Object == nil {
		return nil
	}
	return w.Object.Labels()
}

// isUnseen reports whether an informer with objects of the kind does not show all writes.
func (w *ownWrites) isUnseen(kind schema.GroupKind, writes []cache.Write) bool {
	return slices.ContainsFunc(w.readBy(kind), func(informer cache.Informer) bool {
		return !hasRead(informer, writes[0].Key) || len(informer.Unseen(writes)) > 0
	})
}

// hasRead reports whether an informer has read the object under key, or that there is none. Otherwise it awaits no
// writes, and may show an older state later.
func hasRead(informer cache.Informer, key kube.Key) bool {
	return informer.Has(key) || informer.Absent(key)
}

// writeOf returns a completed write as informers will show it. known is false if the response does not show it.
func writeOf(r *Request, body []byte) (write cache.Write, known bool) {
	write.Key = r.Key
	if isStatus(body) {
		var status metav1.Status
		if r.Verb != VerbDelete || r.Subresource != "" || decodeInto(body, &status) != nil || status.Details == nil {
			return write, false
		}
		write.UID, write.Deleted = status.Details.UID, true
		return deletionOf(r, write), write.UID != ""
	}
	var obj metav1.PartialObjectMetadata
	if r.Verb == VerbDeleteCollection || decodeInto(body, &obj) != nil || obj.UID == "" {
		return write, false
	}
	write.Key, write.UID, write.ResourceVersion = kube.KeyOf(&obj), obj.UID, obj.ResourceVersion
	write.Deleted = r.Verb == VerbDelete && obj.DeletionTimestamp == nil || isRemoved(obj.ObjectMeta)
	isObject := r.Subresource == "" || r.Subresource == "status" // otherwise it may be another one, such as a Scale
	if isObject && !write.Deleted {
		write = write.WithLabels(obj.Labels)
	}
	return write, true
}

// deletionOf adds to a deletion what the caller knew of the object: its creation may not be shown yet.
func deletionOf(r *Request, write cache.Write) cache.Write {
	if seen, ok := r.model.(kube.Object); ok && !usercode.IsNil(seen) && seen.GetUID() == write.UID {
		write.ResourceVersion = seen.GetResourceVersion()
		write = write.WithLabels(seen.GetLabels())
	}
	if r.Delete != nil && r.Delete.Preconditions != nil && r.Delete.Preconditions.ResourceVersion != nil {
		write.ResourceVersion = *r.Delete.Preconditions.ResourceVersion
	}
	return write
}

// isRemoved reports whether the write that returned an object has removed it, as one does that removes the last
// finalizer.
func isRemoved(obj metav1.ObjectMeta) bool {
	return obj.DeletionTimestamp != nil && len(obj.Finalizers) == 0 && obj.DeletionGracePeriodSeconds != nil &&
		*obj.DeletionGracePeriodSeconds == 0
}

// prune removes writes that all informers show, once their number has doubled. w.mu must be held.
func (w *ownWrites) prune(now time.Time) {
	if len(w.last) < w.pruneAt {
		return
	}
	for id, write := range w.last {
		if now.Sub(write.lostAt) > lostWriteAge && (write.UID == "" || now.Sub(write.at) > ownWriteAge ||
			!w.isUnseen(id.kind, write.all())) {
			delete(w.last, id)
		}
	}
	w.pruneAt = max(minPrune, 2*len(w.last))
}

// of returns the writes to the objects that t may read, and the time of the last one. lost is true if the effect of
// another one is not known.
func (w *ownWrites) of(t target) (writes []cache.Write, at time.Time, lost bool) {
	now := time.Now()
	add := func(id writtenID) {
		write, exists := w.last[id]
		lost = lost || exists && now.Sub(write.lostAt) <= lostWriteAge
		if exists && write.UID != "" && now.Sub(write.at) <= ownWriteAge {
			writes = append(writes, write.all()...)
			if write.at.After(at) {
				at = write.at
			}
		}
	}
	kind, namespace, name := t.kind.GroupKind(), t.selectedNamespace(), t.key.Name
	if t.fields != nil && name == "" {
		name, _ = t.fields.RequiresExactMatch(fieldName)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.key.Name != "" {
		add(writtenID{kind, t.key})
		add(writtenID{kind, kube.Key{Namespace: namespace}})
		return writes, at, lost
	}
	for id := range w.last {
		if id.kind == kind && (namespace == "" || id.key.Namespace == namespace) &&
			(name == "" || id.key.Name == "" || id.key.Name == name) {
			add(id)
		}
	}
	return writes, at, lost
}

// shown removes the writes to objects of which informer, the only one of their kind, shows all writes: those without
// one in unseen.
func (w *ownWrites) shown(informer cache.Informer, kind schema.GroupKind, writes, unseen []cache.Write) {
	if len(w.readBy(kind)) != 1 {
		return
	}
	waits := map[kube.Key]bool{}
	for _, write := range unseen {
		waits[write.Key] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, write := range writes {
		id := writtenID{kind, write.Key}
		last := w.last[id]
		if !waits[id.key] && last.Write == write && last.lostAt.IsZero() && hasRead(informer, id.key) {
			delete(w.last, id)
		}
	}
}

// showsOwnWrites waits until an informer shows what the client has written of the objects that t reads. It returns
// false if the API server must be read instead. It waits until ownWriteLag after the last write, and for half of the
// time that ctx has left at most.
func (t target) showsOwnWrites(ctx context.Context, informer cache.Informer) bool {
	w := t.client.written
	if w == nil {
		return true
	}
	writes, at, lost := w.of(t)
	if lost {
		return false
	}
	until := at.Add(ownWriteLag)
	if soon := time.Now().Add(minOwnWriteWait); until.Before(soon) {
		until = soon
	}
	if deadline, ok := ctx.Deadline(); ok {
		if half := time.Now().Add(time.Until(deadline) / 2); half.Before(until) {
			until = half
		}
	}
	// It polls, because a subscriber of the informer may call it: the informer announces no write until it returns.
	for pause := time.Millisecond; len(writes) > 0; pause = min(2*pause, 50*time.Millisecond) {
		unseen := informer.Unseen(writes)
		w.shown(informer, t.kind.GroupKind(), writes, unseen)
		writes = unseen
		fails := slices.ContainsFunc(writes, func(write cache.Write) bool { return informer.ReadyFor(write) != nil })
		left := time.Until(until)
		if len(writes) > 0 && (fails || left <= 0 || !retryrules.Wait(ctx, min(pause, left))) {
			return false
		}
	}
	return true
}
