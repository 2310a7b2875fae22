package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/kube"
)

// SetTimer makes the key of the run that ctx, a handler's context, belongs to run once after d, with a cause of type
// CauseTimer and the detail name. A timer lives as long as its object. Unlike RequeueAfter it is not superseded by
// other runs, only by another SetTimer with the same name. It is removed when the object is deleted, or deleted and
// recreated, and when the controller stops or loses leadership (without a primary kind, only then). So set it in each
// run that needs it; setting a timer again restarts it.
//
// SetTimer returns an error outside a handler. A d of zero or less means at once. Keep the cardinality of name low.
func SetTimer(ctx context.Context, name string, d time.Duration) error {
	r := runningFrom(ctx)
	if r == nil {
		return fmt.Errorf("set timer %q: %w", name, errNoRun)
	}
	r.mu.Lock()
	uid := r.owner.UID
	r.mu.Unlock()
	r.timers.set(r.run.Key, uid, name, d)
	return nil
}

// StopTimer stops a timer of the object that is being handled. It does nothing if there is no such timer.
func StopTimer(ctx context.Context, name string) {
	if r := runningFrom(ctx); r != nil {
		r.timers.stop(r.run.Key, name)
	}
}

var errNoRun = errors.New("the context is no handler's context")

// timers are the timers of the objects of one term.
type timers struct {
	enqueuer *enqueuer
	objects  objects

	mu      sync.Mutex
	keys    map[kube.Key]map[string]*time.Timer // guarded by mu
	maxKeys int                                 // guarded by mu; see shrink.Delete
	ended   bool                                // guarded by mu
}

// set sets a timer of the object uid, unless it does not exist. An empty uid means the current object.
func (t *timers) set(key kube.Key, uid types.UID, name string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Called with mu held: if the object is deleted after this check, stopAll removes the timer.
	if t.ended || t.gone(key, uid) {
		return
	}
	if t.keys[key] == nil {
		t.keys[key] = map[string]*time.Timer{}
	}
	if old := t.keys[key][name]; old != nil {
		old.Stop()
	}
	var timer *time.Timer
	// Nothing waits for this function: it does nothing if the timer was removed, and otherwise only enqueues.
	timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		current := t.keys[key][name] == timer
		if current {
			t.drop(key, name)
		}
		t.mu.Unlock()
		if current {
			t.fired(key, name)
		}
	})
	t.keys[key][name] = timer
}

// gone reports whether the object uid does not exist under key. An empty uid means any object.
func (t *timers) gone(key kube.Key, uid types.UID) bool {
	if uid != "" {
		if kept, found := cache.Of(t.objects).Encoded(key); found {
			return kept.UID != uid
		}
	}
	return t.objects.Absent(key)
}

// fired enqueues the key of a timer.
func (t *timers) fired(key kube.Key, name string) {
	if !t.gone(key, "") {
		t.enqueuer.addOwn(key, Cause{Type: CauseTimer, Detail: name}, queueOptions{EndBackoff: true})
	}
}

func (t *timers) stop(key kube.Key, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if timer := t.keys[key][name]; timer != nil {
		timer.Stop()
		t.drop(key, name)
	}
}

// drop removes a timer. It must be called with mu held.
func (t *timers) drop(key kube.Key, name string) {
	delete(t.keys[key], name)
	if len(t.keys[key]) == 0 {
		t.keys = shrink.Delete(t.keys, key, &t.maxKeys)
	}
}

// stopAll stops the timers of an object that was deleted.
func (t *timers) stopAll(key kube.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, timer := range t.keys[key] {
		timer.Stop()
	}
	t.keys = shrink.Delete(t.keys, key, &t.maxKeys)
}

// end stops all timers. No timer can be set afterwards.
func (t *timers) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, timers := range t.keys {
		for _, timer := range timers {
			timer.Stop()
		}
	}
	t.keys = nil
}
