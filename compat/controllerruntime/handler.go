package controllerruntime

import (
	"sync"
	"time"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/kube"
)

// handler is a registered event handler with a queue of its own, because a handler may be slow, and the informer waits
// for its subscribers. It implements toolscache.ResourceEventHandlerRegistration.
type handler struct {
	// Immutable.
	informer *sharedInformer
	to       toolscache.ResourceEventHandler
	resync   time.Duration
	filled   chan struct{} // capacity 1; has an element if there may be an event
	ended    chan struct{} // closed when the handler was removed, or the informer has ended
	initial  chan struct{} // closed when the objects that existed at the start were delivered

	mu     sync.Mutex       // held to close ended
	events []pending        // guarded by mu; empty after the end
	latest map[kube.Key]int // guarded by mu; the indexes of the updates that later ones can join
}

// pending is an event that waits for a handler: from the state before first to the state after last. They differ if
// events of an object were joined.
type pending struct{ first, last *event }

// joinFrom is the number of events that are added while the handler is called for those before, from which on updates
// are joined. A handler that is slower than its events then lags by the objects that are updated, and not by their
// updates. A cache that lists again joins them too. Below this number, a handler gets each change, as the tests of many
// programs expect. Other events are not joined: a predicate may drop additions.
const joinFrom = 100

// eventType is the type of an event.
type eventType int

const (
	added eventType = iota
	updated
	deleted
	resynced // an update without a change; the object is read when it is delivered
	listed   // the objects that existed at the start were delivered
)

// event is an event of an object. The states are encoded until the first handler needs them: a queue may be long.
type event struct {
	eventType
	key          kube.Key
	old, current store.Kept
	existed      bool // for added: the object existed at the start
	uncertain    bool // for deleted: old may not be the last state

	onceBefore, onceAfter sync.Once
	before, after         client.Object // set by onceBefore and onceAfter
	errBefore, errAfter   error         // set by onceBefore and onceAfter
}

// eventsOf returns the events of a change: two if the object was deleted and created again.
func eventsOf(c informer.Change) []*event {
	old, current := cache.Of(c).Kept()
	switch {
	case c.Type == informer.Listed, c.Type == informer.Added:
		return []*event{{eventType: added, key: c.Key, current: current, existed: c.Type == informer.Listed}}
	case c.Type == informer.Deleted:
		return []*event{{eventType: deleted, key: c.Key, old: old, uncertain: !cache.Of(c).Complete()}}
	case c.Changed(kube.ChangedUID) != 0:
		return []*event{
			{eventType: deleted, key: c.Key, old: old, uncertain: true},
			{eventType: added, key: c.Key, current: current},
		}
	}
	return []*event{{eventType: updated, key: c.Key, old: old, current: current}}
}

// changed adds a change to the queue. Events of the objects that exist at the start are not shared with other handlers,
// because each handler starts on its own.
func (h *handler) changed(c informer.Change) {
	if c.Type == informer.Listed {
		h.add(eventsOf(c)...)
		return
	}
	h.add(h.informer.current...)
}

// add adds events to the queue, unless the handler has ended: it remains subscribed until its last call returns.
func (h *handler) add(events ...*event) {
	h.mu.Lock()
	if !isClosed(h.ended) {
		for _, e := range events {
			h.join(e)
		}
	}
	h.mu.Unlock()
	select {
	case h.filled <- struct{}{}:
	default:
	}
}

// join adds an event, or joins it to one that waits. The caller holds mu.
func (h *handler) join(e *event) {
	at, found := h.latest[e.key]
	switch {
	case e.eventType != updated:
		delete(h.latest, e.key) // later updates stay behind it
	case found:
		h.events[at].last = e
		return
	case len(h.events) >= joinFrom:
		if h.latest == nil {
			h.latest = map[kube.Key]int{}
		}
		h.latest[e.key] = len(h.events)
	}
	h.events = append(h.events, pending{e, e})
}

func (h *handler) take() (events []pending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events, h.events, h.latest = h.events, nil, nil
	return events
}

// end empties the queue, and ends deliver after the present call.
func (h *handler) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events, h.latest = nil, nil
	if !isClosed(h.ended) {
		close(h.ended)
	}
}

// deliver calls the handler until it ends.
func (h *handler) deliver() {
	synced := h.informer.Done()
	var resync <-chan time.Time
	if h.resync > 0 {
		ticker := time.NewTicker(h.resync)
		defer ticker.Stop()
		resync = ticker.C
	}
	for {
		select {
		case <-h.ended:
			return
		case <-synced: // the objects that existed are in the queue
			synced = nil
			h.add(&event{eventType: listed})
		case <-resync:
			for c := range h.informer.engine.Walk(0, 1) {
				h.add(&event{eventType: resynced, key: c.Key})
			}
		case <-h.filled:
			events := h.take()
			for i, e := range events {
				if isClosed(h.ended) {
					return
				}
				h.call(e)
				events[i] = pending{} // the objects of a long queue are not kept in memory
			}
		}
	}
}

// call calls the handler for an event. A panic ends the process, as in client-go.
func (h *handler) call(p pending) {
	e := p.first
	if e.eventType == listed {
		close(h.initial)
		return
	}
	before, errBefore := e.objectBefore(h.informer.engine)
	after, err := p.last.objectAfter(h.informer.engine)
	switch {
	case err != nil:
		h.informer.logger.Error("event handler not called", "informer", h.informer.Name(), "key", e.key.String(),
			"error", err)
	case e.eventType == resynced && after != nil:
		h.to.OnUpdate(after, after)
	case e.eventType == updated && errBefore == nil:
		h.to.OnUpdate(before, after)
	case e.eventType == added, e.eventType == updated:
		h.to.OnAdd(after, e.existed)
	case e.eventType == deleted && !e.uncertain && errBefore == nil:
		h.to.OnDelete(before)
	case e.eventType == deleted:
		h.to.OnDelete(toolscache.DeletedFinalStateUnknown{Key: e.key.String(), Obj: before})
	}
}

// objectBefore returns the state before an event. If it cannot be decoded, it has only the name.
func (e *event) objectBefore(from engineInformer) (client.Object, error) {
	if e.eventType != updated && e.eventType != deleted {
		return nil, nil
	}
	e.onceBefore.Do(func() {
		if e.before, e.errBefore = from.decode(e.old); e.errBefore != nil {
			e.before = from.empty()
			e.before.SetNamespace(e.key.Namespace)
			e.before.SetName(e.key.Name)
		}
		e.old = store.Kept{}
	})
	return e.before, e.errBefore
}

// objectAfter returns the state after an event.
func (e *event) objectAfter(from engineInformer) (client.Object, error) {
	if e.eventType == resynced {
		obj, _, err := from.get(e.key)
		return obj, err
	}
	if e.eventType == deleted {
		return nil, nil
	}
	e.onceAfter.Do(func() {
		e.after, e.errAfter = from.decode(e.current)
		e.current = store.Kept{}
	})
	return e.after, e.errAfter
}

// HasSynced reports whether the objects that existed at the start were delivered.
func (h *handler) HasSynced() bool { return isClosed(h.initial) }

// HasSyncedChecker returns h.
func (h *handler) HasSyncedChecker() toolscache.DoneChecker { return h }

// Name implements toolscache.DoneChecker.
func (h *handler) Name() string { return h.informer.Name() + " event handler" }

// Done implements toolscache.DoneChecker.
func (h *handler) Done() <-chan struct{} { return h.initial }
