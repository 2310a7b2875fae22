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

	mu     sync.Mutex // held to close ended
	events []*event   // guarded by mu; empty after the end
}

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

	once                sync.Once
	before, after       client.Object // set by once
	errBefore, errAfter error         // set by once
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
		h.events = append(h.events, events...)
	}
	h.mu.Unlock()
	select {
	case h.filled <- struct{}{}:
	default:
	}
}

func (h *handler) take() (events []*event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events, h.events = h.events, nil
	return events
}

// end empties the queue, and ends deliver after the present call.
func (h *handler) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = nil
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
				events[i] = nil // the objects of a long queue are not kept in memory
			}
		}
	}
}

// call calls the handler for an event. A panic ends the process, as in client-go.
func (h *handler) call(e *event) {
	if e.eventType == listed {
		close(h.initial)
		return
	}
	before, errBefore, after, err := e.objects(h.informer.engine)
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

// objects returns the states before and after an event. If the state before cannot be decoded, it has only the name.
func (e *event) objects(from engineInformer) (before client.Object, errBefore error, after client.Object, err error) {
	if e.eventType == resynced {
		after, _, err = from.get(e.key)
		return nil, nil, after, err
	}
	e.once.Do(func() {
		if e.eventType != added {
			if e.before, e.errBefore = from.decode(e.old); e.errBefore != nil {
				e.before = from.empty()
				e.before.SetNamespace(e.key.Namespace)
				e.before.SetName(e.key.Name)
			}
		}
		if e.eventType != deleted {
			e.after, e.errAfter = from.decode(e.current)
		}
		e.old, e.current = store.Kept{}, store.Kept{}
	})
	return e.before, e.errBefore, e.after, e.errAfter
}

// HasSynced reports whether the objects that existed at the start were delivered.
func (h *handler) HasSynced() bool { return isClosed(h.initial) }

// HasSyncedChecker returns h.
func (h *handler) HasSyncedChecker() toolscache.DoneChecker { return h }

// Name implements toolscache.DoneChecker.
func (h *handler) Name() string { return h.informer.Name() + " event handler" }

// Done implements toolscache.DoneChecker.
func (h *handler) Done() <-chan struct{} { return h.initial }
