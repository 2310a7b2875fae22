package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/wire"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

// ends are the objects that have gone, for Config.Deleted, until their keys have run.
type ends struct {
	mu   sync.Mutex
	keys map[kube.Key]*end // guarded by mu
}

// end is the last known state of an object that has gone.
type end struct {
	state *wire.Object
	stale bool
}

// note remembers the state before a change that ended an object.
func (e *ends) note(c informer.Change) {
	old, err := c.Old()
	if err != nil || old == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// An object that took the place of another came by one event only: that the first was
	// deleted was not seen.
	e.keys[c.Key] = &end{state: old.Clone(), stale: c.Type != informer.Deleted || !c.Certain()}
}

func (e *ends) of(key kube.Key) *end {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.keys[key]
}

// handled forgets an end, unless another has come meanwhile.
func (e *ends) handled(key kube.Key, done *end) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.keys[key] == done {
		delete(e.keys, key)
	}
}

// endOf calls Config.Deleted for an object that has gone. called is false when there is none.
func (l *loop[T]) endOf(ctx context.Context, r *running) (called bool, err error) {
	key := r.run.Key
	if l.config.Deleted == nil {
		return false, nil
	}
	end := l.ends.of(key)
	if end == nil {
		return false, nil
	}
	last, err := l.informer.Decode(end.state)
	if err != nil {
		r.ending = end
		return true, fmt.Errorf("read the last state of %s: %w", key, err)
	}
	if err := l.config.Deleted(ctx, last, end.stale); err != nil {
		r.ending = end
		return true, fmt.Errorf("deleted: %w", err)
	}
	l.ends.handled(key, end)
	return true, nil
}

// endGivenUp is for a run in which Config.Deleted has failed for the last time. What is left of
// the object is forgotten, so that it does not stand in the way of the next one of the name.
func (l *loop[T]) endGivenUp(r *running) Next {
	key := r.run.Key
	l.ends.handled(key, r.ending)
	l.failures.forget(key)
	l.troubles.endOf(key, TroubleFailing, TroubleStalled, TroubleUnseenWrite)
	if l.config.Reconciler == nil && !l.informer.Has(key) {
		return Next{Why: "when there is such an object again (Deleted was given up)"}
	}
	l.again(key, workqueue.Cause{Type: workqueue.CauseRetry, Detail: "Deleted was given up"}, workqueue.Options{})
	return Next{At: time.Now(), Why: "at once, without Deleted, which was given up"}
}
