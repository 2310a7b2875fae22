package client

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

const (
	// ownWriteLag is the time after a write until which reads wait for informers. A healthy watch is behind by
	// milliseconds, and a request takes no longer than this wait.
	ownWriteLag = time.Second
	// minOwnWriteWait is the minimum wait, because an informer that announces a change cannot tell what it shows.
	minOwnWriteWait = 20 * time.Millisecond
	// behindAge is the time for which reads wait for minOwnWriteWait only after one has waited for ownWriteLag without
	// success, because a saturated informer would delay each of them.
	behindAge = 10 * time.Second
	// lostWriteAge is the time for which the objects of a write whose effect is not known are read from the API server.
	// It exceeds the time for which an API server works on a request without a response.
	lostWriteAge = 2 * time.Minute
	// ownWriteAge is the maximum age of a write that informers do not show. They replace a silent watch earlier.
	ownWriteAge = 10 * time.Minute
	// minPrune is the minimum number of writes after which shown ones are forgotten.
	minPrune = 256
	// maxEarlier is the maximum number of writes that are kept for an object in addition to the last one.
	maxEarlier = 16
)

// ownWrites are the writes of a client with Config.ReadOwnWrites, until its informers show them. A nil *ownWrites has
// none. Informers are asked without mu.
type ownWrites struct {
	// Immutable.
	server    string                                // URL of the API server
	informers map[schema.GroupKind][]cache.Informer // by the kind of their objects, in any version
	responses cache.Responses

	mu      sync.Mutex
	last    map[writtenID]ownWrite         // guarded by mu; the last write to each object
	sent    map[writtenID]int              // guarded by mu; the numbers of writes without a response
	behind  map[schema.GroupKind]time.Time // guarded by mu; when a read had waited for ownWriteLag without success
	count   int                            // guarded by mu; of all writes
	pruneAt int                            // guarded by mu; the count at which shown writes are forgotten
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

// labels returns the labels of the object, or nil if they are not known.
func (w ownWrite) labels() map[string]string {
	if w.Object == nil {
		return nil
	}
	return w.Object.Labels()
}

func newOwnWrites(config Config) *ownWrites {
	if !config.ReadOwnWrites {
		return nil
	}
	w := &ownWrites{
		informers: map[schema.GroupKind][]cache.Informer{}, responses: cache.NewResponses(),
		last: map[writtenID]ownWrite{}, sent: map[writtenID]int{}, behind: map[schema.GroupKind]time.Time{},
	}
	w.server, _ = kubeconfig.Server(config.Cluster.RESTConfig())
	for _, informer := range config.Informers {
		untyped := cache.Of(informer)
		kind := untyped.Kind().GroupKind()
		w.informers[kind] = append(w.informers[kind], untyped)
	}
	return w
}

// begin is called before a request is sent. The result is called after it, with the body of the response, if there is
// one, or the error.
func (w *ownWrites) begin(r *Request) (end func(body []byte, err error)) {
	id := writtenID{r.Kind.GroupKind(), r.Key}
	dryRun := r.DryRun || r.Delete != nil && len(r.Delete.DryRun) > 0
	if w == nil || !r.Verb.IsWrite() || dryRun || len(w.informers[id.kind]) == 0 {
		return func([]byte, error) {}
	}
	var before cache.Write // its Object is that of a deletion, whose response has no version
	if r.Verb == VerbDelete {
		for _, informer := range w.informers[id.kind] {
			if before.Object == nil {
				before.Object, _ = informer.Encoded(id.key)
			}
		}
		if seen, ok := r.model.(kube.Object); ok && !usercode.IsNil(seen) && seen.GetResourceVersion() != "" {
			before = cache.Write{Key: id.key, UID: seen.GetUID(), ResourceVersion: seen.GetResourceVersion()}
			before = before.WithLabels(seen.GetLabels())
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[id]++
	began := w.count
	return func(body []byte, err error) {
		if !isRejected(r, err) {
			w.record(r, id, before, began, body, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.sent[id]--; w.sent[id] == 0 {
			delete(w.sent, id)
		}
	}
}

// record records a write that may have been performed. began is the number of writes that had returned before it.
func (w *ownWrites) record(r *Request, id writtenID, before cache.Write, began int, body []byte, err error) {
	w.prune()
	if err == nil {
		response := w.responses.Read(body)
		if write, known := w.completed(r, before, response); known {
			w.add(writtenID{id.kind, write.Key}, write, began)
			return
		}
		if response.Object != nil && response.Object.ResourceVersion == "" {
			return // it is not a state of the object: a token of a ServiceAccount
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	last := w.last[id]
	last.lostAt = time.Now()
	w.last[id] = last
}

// isRejected reports whether the API server has certainly not performed a write.
func isRejected(r *Request, err error) bool {
	switch {
	case errors.Is(err, kube.ErrReadOnly), utilnet.IsConnectionRefused(err):
		return true
	case err == nil, r.Verb == VerbDeleteCollection: // it may delete some objects before it rejects another one
		return false
	case r.Status >= http.StatusMultipleChoices && r.Status < http.StatusInternalServerError:
		return true
	}
	return retry.Classify(asMistyped(asTooLarge(err))) == retry.Invalid ||
		strings.HasPrefix(statusOf(err).Message, "Internal error occurred: failed calling webhook ")
}

// completed returns a completed write as informers will show it. known is false if the response does not show it.
func (w *ownWrites) completed(r *Request, before cache.Write, response cache.Response) (write cache.Write, known bool) {
	call := kube.Call{
		Server: w.server, Verb: string(r.Verb), Kind: r.Kind, Key: r.Key, Subresource: r.Subresource,
	}
	switch r.Verb {
	case VerbApply:
		call.Verb = string(VerbPatch)
	case VerbDelete:
		call.Request, _ = json.Marshal(r.Delete)
	}
	write, known = response.Write(call, before.Object)
	if write.Earlier != "" {
		return write, false // informers will show the deleted object before its end
	}
	if write.Object != nil {
		write = write.WithLabels(write.Object.Labels()) // without the memory of the response
	}
	return write, known
}

// add adds a write whose effect is known.
func (w *ownWrites) add(id writtenID, write cache.Write, began int) {
	w.mu.Lock()
	last := w.last[id]
	w.mu.Unlock()
	if last.number <= began {
		w.forget(map[writtenID]ownWrite{id: last}, 1)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	last = w.last[id]
	next := ownWrite{Write: write, at: time.Now(), lostAt: last.lostAt, number: w.count, earlier: last.earlier}
	concurrent := last.number > began
	switch {
	case last.UID == "":
	case last.UID != next.UID:
		if concurrent {
			next.lostAt = next.at // one of the two objects replaced the other
		}
		next.earlier = last.all()
	default:
		if concurrent && !next.Deleted &&
			(last.Deleted || apiobject.OlderVersion(next.ResourceVersion, last.ResourceVersion)) {
			next.Write, last.Write = last.Write, next.Write // the responses have another order than the writes
		}
		next.follow(last)
	}
	if len(next.earlier) > maxEarlier {
		next.earlier, next.lostAt = nil, next.at
	}
	w.last[id] = next
}

// follow completes w, a write to the object of last, after it.
func (w *ownWrite) follow(last ownWrite) {
	if w.Object == nil {
		w.Object = last.Object // its labels
	} else if !maps.Equal(last.labels(), w.labels()) {
		w.earlier = last.all()
	}
	// The version of a deletion is a minimum.
	if w.ResourceVersion == "" || w.Deleted && apiobject.OlderVersion(w.ResourceVersion, last.ResourceVersion) {
		w.ResourceVersion = last.ResourceVersion
	}
}

// prune forgets shown writes after as many writes as are kept, and at least minPrune.
func (w *ownWrites) prune() {
	var last map[writtenID]ownWrite
	w.mu.Lock()
	if w.count >= w.pruneAt {
		last = maps.Clone(w.last)
		w.pruneAt = w.count + max(minPrune, len(last))
	}
	w.mu.Unlock()
	w.forget(last, 0)
}

// forget forgets those of writes that all informers show, and those that are too old. It keeps the writes to an object
// to which more writes than sent have no response, because they may precede the last one.
func (w *ownWrites) forget(writes map[writtenID]ownWrite, sent int) {
	maps.DeleteFunc(writes, func(id writtenID, write ownWrite) bool {
		age := time.Since(write.at)
		// An informer may show the object later if it has not read the creation, and if no version is known.
		mayReappear := write.Deleted && write.ResourceVersion == "" && age <= lostWriteAge
		return time.Since(write.lostAt) <= lostWriteAge || write.UID != "" && age <= ownWriteAge &&
			(mayReappear || w.isUnseen(id, write.all()))
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, write := range writes {
		if last := w.last[id]; last.number == write.number && last.lostAt.Equal(write.lostAt) &&
			w.sent[id] <= sent {
			delete(w.last, id)
		}
	}
}

// isUnseen reports whether an informer does not show all writes to an object, or may show an older state later, because
// it has neither read the object nor that there is none: then it awaits no writes.
func (w *ownWrites) isUnseen(id writtenID, writes []cache.Write) bool {
	return slices.ContainsFunc(w.informers[id.kind], func(informer cache.Informer) bool {
		return !informer.Has(id.key) && !informer.Absent(id.key) || len(informer.Unseen(writes)) > 0
	})
}

// of returns the last writes to the objects that t may read.
func (w *ownWrites) of(t target) map[writtenID]ownWrite {
	kind, namespace, name := t.kind.GroupKind(), t.selectedNamespace(), t.key.Name
	if t.fields != nil && name == "" {
		name, _ = t.fields.RequiresExactMatch(fieldName)
	}
	writes := map[writtenID]ownWrite{}
	w.mu.Lock()
	defer w.mu.Unlock()
	if t.key.Name != "" {
		for _, id := range []writtenID{{kind, t.key}, {kind, kube.Key{Namespace: namespace}}} {
			if write, exists := w.last[id]; exists {
				writes[id] = write
			}
		}
		return writes
	}
	for id, write := range w.last {
		if id.kind == kind && (namespace == "" || id.key.Namespace == namespace) &&
			(name == "" || id.key.Name == "" || id.key.Name == name) {
			writes[id] = write
		}
	}
	return writes
}

// informers returns the informers of t's kind. With Config.ReadOwnWrites, it returns those that mayAnswer and show what
// the client has written of the objects that t reads; if there are none, the API server must be read. It waits for the
// first of them until ownWriteLag after the last write, and for half of the time that ctx has left at most.
func (t target) informers(ctx context.Context, parts bool) []cache.Informer {
	w := t.client.written
	if w == nil {
		return t.client.informers[t.kind]
	}
	var writes []cache.Write
	var at time.Time
	lost, of := false, w.of(t)
	for _, write := range of {
		lost = lost || time.Since(write.lostAt) <= lostWriteAge
		if write.UID != "" && time.Since(write.at) <= ownWriteAge {
			writes = append(writes, write.all()...)
			if write.at.After(at) {
				at = write.at
			}
		}
	}
	if lost {
		return nil
	}
	shown := t.await(ctx, parts, writes, at)
	if len(shown) > 0 {
		w.forget(of, 0)
	}
	return shown
}

// mayAnswer reports whether an informer may have the object, or all selected ones: whole, unless parts is true.
func (t target) mayAnswer(informer cache.Informer, parts bool) bool {
	_, whole := informer.NewObject()
	switch {
	case !whole && !parts:
		return false
	case t.key.Name == "":
		return t.coveredBy(informer)
	}
	return informer.Has(t.key) || informer.Covers(t.key.Namespace, nil)
}

// await returns the informers of target.informers. The last of writes was made at a time.
func (t target) await(
	ctx context.Context, parts bool, writes []cache.Write, at time.Time,
) (shown []cache.Informer) {
	w, kind, until := t.client.written, t.kind.GroupKind(), at.Add(ownWriteLag)
	w.mu.Lock()
	isBehind := time.Since(w.behind[kind]) <= behindAge
	w.mu.Unlock()
	if soon := time.Now().Add(minOwnWriteWait); isBehind || until.Before(soon) {
		until = soon
	}
	limit := until
	if deadline, ok := ctx.Deadline(); ok {
		if half := time.Now().Add(time.Until(deadline) / 2); half.Before(until) {
			limit = half
		}
	}
	// It polls, because a subscriber of an informer may call it: the informer announces no write until it returns.
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		waits := false
		for _, informer := range t.client.informers[t.kind] {
			if !t.mayAnswer(informer, parts) {
				continue
			}
			unseen := informer.Unseen(writes)
			if len(unseen) == 0 {
				shown = append(shown, informer)
			}
			waits = waits || !slices.ContainsFunc(unseen, func(write cache.Write) bool {
				return informer.ReadyFor(write) != nil
			})
		}
		left := time.Until(limit)
		if len(shown) > 0 || !waits {
			return shown
		}
		if left <= 0 || !retryrules.Wait(ctx, min(pause, left)) {
			break
		}
	}
	if !isBehind && time.Until(until) <= 0 {
		w.mu.Lock()
		w.behind[kind] = time.Now()
		w.mu.Unlock()
	}
	return nil
}
