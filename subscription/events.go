package subscription

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/wire"
)

// EventType says what an Event tells.
type EventType string

// The types of events.
const (
	// Applied: the object came or changed; it is now as Object says.
	Applied EventType = "Applied"
	// Deleted: the object, of which there was an Applied, is gone, or has left the Retriever's
	// selection. Object is its last state, as far as it was seen.
	Deleted EventType = "Deleted"
	// Synced: everything that there was when the channel began has been told. It comes once, and
	// has no object.
	Synced EventType = "Synced"
)

// Event tells what has happened to an object.
type Event[T kube.Object] struct {
	Type EventType
	// Key is the object's. Empty for Synced.
	Key kube.Key
	// Object belongs to the receiver. Nil for Synced. Of a Deleted object that cannot be read as a
	// T, it has the namespace, the name and the uid only.
	Object T
	// Initial is true for what comes before Synced.
	Initial bool
}

// events tells of objects that came, changed and went.
type events[T kube.Object] struct {
	subscription *Subscription[T]
	out          chan Event[T]
	queue        *queue
	initial      bool // owned by deliver; Synced has not been told

	mu sync.Mutex
	// told is what the receiver has been told last of each object of which it knows. Guarded by mu.
	told map[kube.Key]state
	// gone are objects that the receiver still believes to be there. Guarded by mu.
	gone map[kube.Key]end
}

// end is that of an object.
type end struct {
	last *wire.Object // its last state
	// followed says that what is there under its key since then is to be told.
	followed bool
}

// state says which state of which object is meant.
type state struct {
	uid     types.UID
	version string
}

func newEvents[T kube.Object](s *Subscription[T]) *events[T] {
	return &events[T]{
		subscription: s, out: make(chan Event[T]), queue: newQueue(), initial: true,
		told: map[kube.Key]state{}, gone: map[kube.Key]end{},
	}
}

// syncedKey stands in the queue behind everything that was there at the beginning. No object has
// an empty name.
func syncedKey() kube.Key { return kube.Key{} }

func (e *events[T]) synced() { e.queue.add(syncedKey()) }

func (e *events[T]) notify(c informer.Change) {
	follows := c.Type != informer.Deleted && passes(e.subscription.predicate, c)
	if e.note(c, follows) || follows {
		e.queue.add(c.Key)
	}
}

// note keeps the end of an object of which the receiver knows, and whether what follows it is to
// be told. It returns false when the change ends nothing.
func (e *events[T]) note(c informer.Change, follows bool) bool {
	ended, unread, err := e.noted(c, follows)
	if unread { // said without mu: who logs runs code of others
		e.subscription.logger.Warn("a subscription cannot read the last state of an object",
			"subscription", e.subscription.name, "key", c.Key.String(), "error", err)
	}
	return ended
}

// noted is note, and says besides that the last state could not be read, and why.
func (e *events[T]) noted(c informer.Change, follows bool) (ended, unread bool, err error) {
	ends := c.Type == informer.Deleted || c.Changed(kube.ChangedUID) != 0
	e.mu.Lock()
	defer e.mu.Unlock()
	if told, known := e.told[c.Key]; ends && known {
		last, err := c.Old()
		if unread = err != nil || last == nil; unread {
			last = &wire.Object{Key: c.Key, UID: told.uid}
		}
		if last.UID == told.uid { // otherwise another object of the name, of which the receiver does not know (any more, or yet)
			e.gone[c.Key] = end{last: last.Clone(), followed: follows}
			return true, unread, err
		}
	}
	if ended, ok := e.gone[c.Key]; ok && (ends || follows) {
		ended.followed = follows
		e.gone[c.Key] = ended
	}
	return false, false, nil
}

func (e *events[T]) deliver(ctx context.Context) {
	for {
		key, ok := e.queue.next(ctx)
		if !ok {
			return
		}
		if key == syncedKey() {
			if !e.send(ctx, Event[T]{Type: Synced}) {
				return
			}
			e.initial = false
			continue
		}
		if !e.tell(ctx, key) {
			return
		}
	}
}

// tell tells the receiver what it does not know of the object under key. It returns false when
// ctx has ended.
func (e *events[T]) tell(ctx context.Context, key kube.Key) bool {
	last, obj, applied := e.news(ctx, key)
	if last != nil && !e.send(ctx, Event[T]{Type: Deleted, Key: key, Object: e.lastOf(ctx, last)}) {
		return false
	}
	return !applied || e.send(ctx, Event[T]{Type: Applied, Key: key, Object: obj})
}

// news returns the last state of the object of which the receiver knows, when that has ended,
// and the newest state of what is there now, when the receiver does not know it. From then on it
// counts as told.
//
// The informer shows a change before it announces it. What it shows is therefore read with mu
// held: an end that it shows already is announced before or after that, not in between, where
// nobody would know yet that it matters.
func (e *events[T]) news(ctx context.Context, key kube.Key) (last *wire.Object, obj T, applied bool) {
	last, obj, applied, err := e.read(key)
	if err != nil { // said without mu: who logs runs code of others
		e.subscription.logUnread(ctx, key, err)
	}
	return last, obj, applied
}

// read is news, and says besides why what is there cannot be read. It counts as not there.
func (e *events[T]) read(key kube.Key) (last *wire.Object, obj T, applied bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	obj, found, err := e.subscription.informer.Get(key)
	now := state{}
	if found {
		now = state{uid: obj.GetUID(), version: obj.GetResourceVersion()}
	}
	told, known := e.told[key]
	ended, gone := e.gone[key]
	delete(e.gone, key)
	if gone && found && ended.followed && told.uid == now.uid {
		gone = false // it has left the selection, and is back
	}
	if gone {
		last = ended.last
		delete(e.told, key)
		known = false
	}
	switch {
	case !found, gone && !ended.followed, known && told == now:
		return last, obj, false, err
	case known && told.uid != now.uid:
		return last, obj, false, err // the end of the other one is about to be announced
	}
	e.told[key] = now
	return last, obj, true, err
}

// lastOf returns the last state of an object.
func (e *events[T]) lastOf(ctx context.Context, last *wire.Object) T {
	obj, err := e.subscription.informer.Decode(last)
	if err == nil {
		return obj
	}
	e.subscription.logger.WarnContext(ctx, "a subscription cannot read the last state of an object, and tells its name only",
		"subscription", e.subscription.name, "key", last.Key.String(), "error", err)
	obj = kube.New[T]()
	obj.SetNamespace(last.Key.Namespace)
	obj.SetName(last.Key.Name)
	obj.SetUID(last.UID)
	return obj
}

func (e *events[T]) send(ctx context.Context, event Event[T]) bool {
	event.Initial = e.initial && event.Type != Synced
	select {
	case e.out <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

func (e *events[T]) end() { close(e.out) }
