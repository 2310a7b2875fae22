package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// SetTimer makes the key that ctx, a handler's context, belongs to run once after d, with a
// cause of type timer whose detail is name. A timer lives as long as its object: unlike
// RequeueAfter it is not superseded by other runs, only by another SetTimer of the same name;
// and it is gone when the object is deleted, or deleted and created again, and when the
// process stops working. So set it in each run that should have it; a timer that is set again starts again.
//
// It returns an error outside a handler. A d of zero or less means at once. name should be one
// of few.
func SetTimer(ctx context.Context, name string, d time.Duration) error {
	r := runningFrom(ctx)
	if r == nil {
		return fmt.Errorf("set timer %q: %w", name, errNoRun)
	}
	r.mu.Lock()
	uid := r.timersOf
	r.mu.Unlock()
	r.timers.set(r.run.Key, uid, name, d)
	return nil
}

// StopTimer stops a timer of the object that is being handled. It does nothing when there is
// none.
func StopTimer(ctx context.Context, name string) {
	if r := runningFrom(ctx); r != nil {
		r.timers.stop(r.run.Key, name)
	}
}

var errNoRun = errors.New("the context is no handler's context")

// timers are the timers of the objects of one term.
type timers struct {
	fire func(key kube.Key, name string)
	// gone reports whether key has another object than uid, or none.
	gone func(key kube.Key, uid types.UID) bool

	mu    sync.Mutex
	keys  map[kube.Key]map[string]*time.Timer // guarded by mu
	most  int                                 // guarded by mu; see deleted
	ended bool                                // guarded by mu
}

// set sets a timer of the object uid, unless that is gone. An empty uid means whichever is there.
func (t *timers) set(key kube.Key, uid types.UID, name string, d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// With mu held, because an object that goes after this was asked takes its timers along.
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
	// The function needs no one to wait for it: it does nothing when the timer is not there
	// any more, and nothing but to enqueue when it is.
	timer = time.AfterFunc(d, func() {
		t.mu.Lock()
		current := t.keys[key][name] == timer
		if current {
			t.drop(key, name)
		}
		t.mu.Unlock()
		if current {
			t.fire(key, name)
		}
	})
	t.keys[key][name] = timer
}

func (t *timers) stop(key kube.Key, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if timer := t.keys[key][name]; timer != nil {
		timer.Stop()
		t.drop(key, name)
	}
}

// drop forgets a timer. It is called with mu held.
func (t *timers) drop(key kube.Key, name string) {
	delete(t.keys[key], name)
	if len(t.keys[key]) == 0 {
		t.keys = deleted(t.keys, key, &t.most)
	}
}

// stopAll stops the timers of an object that is gone.
func (t *timers) stopAll(key kube.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, timer := range t.keys[key] {
		timer.Stop()
	}
	t.keys = deleted(t.keys, key, &t.most)
}

// end stops all timers. None is set any more.
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
