package subscription

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Event is a change of an object: the object was added or changed, unless Deleted or Synced is set.
type Event[T kube.Object] struct {
	// Key is the object's key. It is empty if Synced is set.
	Key kube.Key
	// Object is the current state of the object, or its last known state if Deleted is set. It belongs to the receiver.
	// It is nil if Synced is set. If the last state of a deleted object cannot be decoded as a T, it has only the
	// namespace, the name and the uid.
	Object T
	// Deleted is true if the object of an earlier Event was deleted, or has left the selection of the informer.
	Deleted bool
	// Synced is true in one Event without an object: all objects that existed when the channel began have been
	// delivered before it.
	Synced bool
}

// events is the receiver of Events.
type events[T kube.Object] struct {
	subscription *Subscription[T]
	out          chan Event[T]
	queue        *queue

	mu sync.Mutex
	// sent is the last delivered state of each object that was delivered without a later deletion.
	// Guarded by mu.
	sent map[kube.Key]state
	// deleted are the objects in sent that were deleted. Guarded by mu.
	deleted map[kube.Key]deletion
}

// deletion is the end of an object that was delivered.
type deletion struct {
	last *wire.Object // the object's last state
	// applyNext reports whether the current object with its key must be delivered after it.
	applyNext bool
}

// state identifies a state of an object.
type state struct {
	uid     types.UID
	version string
}

func newEvents[T kube.Object](s *Subscription[T]) *events[T] {
	return &events[T]{
		subscription: s, out: make(chan Event[T]), queue: newQueue(),
		sent: map[kube.Key]state{}, deleted: map[kube.Key]deletion{},
	}
}

// syncedKey is in the queue after all initial objects. It cannot be the key of an object, because names are not empty.
func syncedKey() kube.Key { return kube.Key{} }

func (e *events[T]) synced() { e.queue.add(syncedKey()) }

func (e *events[T]) notify(c informer.Change) {
	applyNext := c.Type != informer.Deleted && e.subscription.predicate(c)
	ended, err := e.recordEnd(c, applyNext)
	if err != nil { // logged without mu, because a slog.Handler is code of the program
		e.subscription.logger.Warn("failed to decode the last state of an object",
			"subscription", e.subscription.name, "key", c.Key.String(), "error", err)
	}
	switch {
	case ended || applyNext:
		e.queue.add(c.Key)
	case c.Type == informer.Deleted && !e.isKnown(c.Key):
		e.queue.remove(c.Key) // bounds the queue of a channel that is not received from
	}
}

// isKnown reports whether an object with this key was delivered, deleted since or not.
func (e *events[T]) isKnown(key kube.Key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, known := e.sent[key]
	_, deleted := e.deleted[key]
	return known || deleted
}

// recordEnd records the end of an object that was delivered, and whether the object that follows it must be delivered.
// It returns false if the change does not end such an object, and the reason if the last state could not be decoded.
func (e *events[T]) recordEnd(c informer.Change, applyNext bool) (ended bool, err error) {
	ends := c.Type == informer.Deleted || c.Changed(kube.ChangedUID) != 0
	e.mu.Lock()
	defer e.mu.Unlock()
	if sent, known := e.sent[c.Key]; ends && known {
		last, unread := cache.Of(c).Old()
		if unread != nil || last == nil {
			err = cmp.Or(unread, errNoState)
			last = &wire.Object{Key: c.Key, UID: sent.uid}
		}
		if last.UID == sent.uid { // otherwise another object with the same name, which was not delivered
			e.deleted[c.Key] = deletion{last: last.Clone(), applyNext: applyNext}
			return true, err
		}
	}
	if sent, known := e.sent[c.Key]; known && isRewritten(c) {
		sent.version = "" // the same version is another state now
		e.sent[c.Key] = sent
	}
	if ended, ok := e.deleted[c.Key]; ok && (ends || applyNext) {
		ended.applyNext = applyNext
		e.deleted[c.Key] = ended
	}
	return false, nil
}

var errNoState = errors.New("the change has no state")

// isRewritten reports whether an object changed without a change of its resource version, as after a restore of etcd.
func isRewritten(c informer.Change) bool {
	return c.Type == informer.Updated && c.Changed(kube.ChangedResourceVersion) == 0 &&
		c.Changed(kube.ChangedAnything) != 0
}

func (e *events[T]) deliver(ctx context.Context) {
	for {
		key, ok := e.queue.next(ctx)
		if !ok {
			return
		}
		if key == syncedKey() {
			if !e.send(ctx, Event[T]{Synced: true}) {
				return
			}
			continue
		}
		if !e.sendChanges(ctx, key) {
			return
		}
	}
}

// sendChanges sends the undelivered changes of the object with key. It returns false when ctx has ended.
func (e *events[T]) sendChanges(ctx context.Context, key kube.Key) bool {
	last, obj, applied, err := e.takeChanges(key)
	if err != nil { // logged without mu, because a slog.Handler is code of the program
		e.subscription.logUnread(ctx, key, err)
	}
	if last != nil && !e.send(ctx, Event[T]{Deleted: true, Key: key, Object: e.lastOf(ctx, last)}) {
		return false
	}
	return !applied || e.send(ctx, Event[T]{Key: key, Object: obj})
}

// takeChanges returns the last state of the delivered object, if it was deleted, and the newest state of the current
// object, if that state was not delivered. It records both as sent. err is the reason why the current object cannot be
// decoded; the object is treated as missing then.
//
// The informer updates its cache before it announces a change. The cache is therefore read with mu held: a deletion
// that is in the cache already is announced before or after that, but not in between, where sent would not contain the
// object yet and the deletion would be ignored.
func (e *events[T]) takeChanges(key kube.Key) (last *wire.Object, obj T, applied bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	obj, found, err := e.subscription.read(key)
	now := state{}
	if found {
		now = state{uid: obj.GetUID(), version: obj.GetResourceVersion()}
	}
	sent, known := e.sent[key]
	ended, deleted := e.deleted[key]
	delete(e.deleted, key)
	if deleted && found && ended.applyNext && sent.uid == now.uid {
		deleted = false // it has left the selection and returned
	}
	if deleted {
		last = ended.last
		delete(e.sent, key)
		known = false
	}
	switch {
	case !found, deleted && !ended.applyNext, known && sent == now:
		return last, obj, false, err
	case known && sent.uid != now.uid:
		return last, obj, false, err // the end of the earlier object will be announced next
	}
	e.sent[key] = now
	return last, obj, true, err
}

// lastOf decodes the last state of an object.
func (e *events[T]) lastOf(ctx context.Context, last *wire.Object) T {
	obj, err := cache.Decode[T](cache.Of(e.subscription.informer), last)
	if err == nil {
		return obj
	}
	e.subscription.logger.WarnContext(ctx, "failed to decode the last state of an object; only its name is delivered",
		"subscription", e.subscription.name, "key", last.Key.String(), "error", err)
	obj = apiobject.New[T]()
	obj.SetNamespace(last.Key.Namespace)
	obj.SetName(last.Key.Name)
	obj.SetUID(last.UID)
	return obj
}

func (e *events[T]) send(ctx context.Context, event Event[T]) bool {
	select {
	case e.out <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *events[T]) end() { close(e.out) }
