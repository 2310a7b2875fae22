package controller

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// maxEnds is the maximum number of objects of one name that wait for Config.Deleted: a hook that does not return, or
// keeps failing, must not retain the states of all objects that are created and deleted in the meantime.
const maxEnds = 16

// ends contains the deleted objects for which Config.Deleted must still be called.
type ends struct {
	mu   sync.Mutex
	keys map[kube.Key][]*end // guarded by mu; the objects of a key in order of their deletion
	most int                 // guarded by mu; see deleted
}

// end is the last known state of a deleted object.
type end struct {
	state *wire.Object
	stale bool
}

// note records the state before a change that ended an object. It returns the end that it dropped because there were
// too many, or nil.
func (e *ends) note(c informer.Change) (dropped *end) {
	old, err := c.States().Old()
	if err != nil || old == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	of := e.keys[c.Key]
	if len(of) == maxEnds {
		dropped, of = of[0], of[1:]
	}
	// A single event reports that an object replaced another one: the deletion of the first was not seen.
	e.keys[c.Key] = append(slices.Clip(of), &end{state: old.Clone(), stale: c.Type != informer.Deleted || !c.Certain()})
	return dropped
}

// first returns the object of key that was deleted first, or nil.
func (e *ends) first(key kube.Key) *end {
	e.mu.Lock()
	defer e.mu.Unlock()
	if of := e.keys[key]; len(of) > 0 {
		return of[0]
	}
	return nil
}

// handled removes an end. It keeps ends that were added in the meantime.
func (e *ends) handled(key kube.Key, done *end) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := slices.DeleteFunc(slices.Clone(e.keys[key]), func(other *end) bool { return other == done })
	if len(of) == 0 {
		e.keys = shrink.Delete(e.keys, key, &e.most)
	} else {
		e.keys[key] = of
	}
}

// noteLastState records the state before a change that ended an object, for Config.Deleted.
func (l *loop[T]) noteLastState(c informer.Change) {
	if dropped := l.ends.note(c); dropped != nil {
		l.logger.Warn("Deleted is not called for an object: too many of its name wait for it",
			"key", c.Key.String(), "uid", dropped.state.UID, "waiting", maxEnds)
	}
}

// endOf calls Config.Deleted for each deleted object of the key, in order of their deletion. called is false if
// the key has no deleted object.
func (l *loop[T]) endOf(ctx context.Context, r *running) (called bool, err error) {
	key := r.run.Key
	if l.config.Deleted == nil {
		return false, nil
	}
	for end := l.ends.first(key); end != nil; end = l.ends.first(key) {
		called, r.uid, r.ending = true, end.state.UID, end // before the call, because Deleted may panic
		last, err := cache.Decode[T](l.informer.Untyped(), end.state)
		if err != nil {
			return true, fmt.Errorf("read the last state of %s: %w", key, err)
		}
		if err := usercode.Error(l.config.Deleted(ctx, last, end.stale)); err != nil {
			return true, fmt.Errorf("deleted: %w", err)
		}
		l.ends.handled(key, end)
		r.uid, r.ending = "", nil
	}
	return called, nil
}

// endGivenUp handles a run in which Config.Deleted failed for the last time. It removes the object's last state, so
// that it does not block the next object of the name.
func (l *loop[T]) endGivenUp(r *running) nextRun {
	key := r.run.Key
	l.ends.handled(key, r.ending)
	l.forgetFailures(key)
	if l.config.Reconciler == nil && !l.informer.Has(key) && l.ends.first(key) == nil {
		return nextRun{why: "when another object of this name exists (Deleted is not retried)"}
	}
	l.enqueuer.addOwn(key, Cause{Type: CauseRetry, Detail: "Deleted is not retried"}, queueOptions{})
	return nextRun{at: time.Now(), why: "at once, without Deleted, which is not retried"}
}
