package ownwrites

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Run is one run of a key. Several goroutines of a handler may use it. It must not be copied.
type Run struct {
	Tracker *Tracker
	Key     kube.Key

	ended atomic.Bool // set with Tracker.mu held
}

// State is a state of an object.
type State struct {
	Object *wire.Object
	// Whole is false if Object is only a part of the object, or another API version of it.
	Whole bool
}

// Write is a completed write.
type Write struct {
	// Key is the object's key. For a create it is known only from the response.
	Key kube.Key
	// Object is the object after the write; nil if the response contains none.
	Object *wire.Object
	Effect Effect
}

// Effect is what a write did to an object.
type Effect int

const (
	// Unknown means that the response does not identify the object, or that the run had ended. Such a write is not
	// tracked.
	Unknown Effect = iota
	// Unchanged means that the object is the same as before.
	Unchanged
	// Changed means that the object was created or changed, or that its deletion has begun.
	Changed
	// Deleted means that the object no longer exists.
	Deleted
)

// State returns the present state of an object of an API server, as far as it is known: the state that the run wrote
// last, or else the newest one that the informers show; of the same version a whole one. It returns nil if neither is
// known.
func (r *Run) State(server string, kind schema.GroupVersionKind, object kube.Key) (known *State) {
	if own := r.Tracker.lastWritten(r.Key, server, kind, object); own != nil {
		return own
	}
	for _, informer := range r.Tracker.config.Informers(kind.GroupKind()) {
		if !informer.ReadsFrom(server) {
			continue
		}
		obj, found := informer.Encoded(object)
		if !found {
			continue
		}
		_, whole := informer.NewObject()
		whole = whole && informer.Kind() == kind
		switch {
		case known == nil, apiobject.OlderVersion(known.Object.ResourceVersion, obj.ResourceVersion),
			whole && !known.Whole && known.is(obj):
			known = &State{obj, whole}
		}
	}
	return known
}

// Record records a completed write of the run. It must be called before the handler receives the response. before is
// the state of the object when the request was sent, or nil. content decodes states of the object.
//
// removeCauses removes those causes of the key from the queue whose events are echoes: the event of the write may have
// arrived before the response. It must not call the Tracker. nil: all causes stay.
func (r *Run) Record(
	call kube.Call, before *State, content func(*wire.Object) (map[string]any, error),
	removeCauses func(isEcho func(Event) bool),
) Write {
	response := r.Tracker.responses.Read(call.Response)
	own, ok := newOwnWrite(call, before, response)
	w := Write{Key: own.Key, Object: response.Object}
	switch {
	case !ok || r.ended.Load():
		return w
	case call.Verb != "delete" && !own.Deleted && before.is(response.Object):
		w.Effect = Unchanged
		return w
	}
	own.base = baseVersion(call, before, response, content)
	switch {
	case !r.Tracker.record(r, own, removeCauses):
	case own.Deleted:
		w.Effect = Deleted
	default:
		w.Effect = Changed
	}
	return w
}

// is reports whether o is the same state of the same object.
func (s *State) is(o *wire.Object) bool {
	return s != nil && s.Object.UID == o.UID && s.Object.ResourceVersion == o.ResourceVersion
}

// End ends the run, after its handler has returned. Later writes are not recorded. It must be called without a lock
// that is held during an informer's events.
func (r *Run) End() { r.Tracker.end(r) }

// Errors of WaitShown that do not depend on the writes.
var (
	errNotTracked = errors.New("the controller does not track writes: Runs.ConsistencyTimeout is negative")
	errEnded      = errors.New("the run has ended")
)

// WaitShown waits until the informers show the writes that the run has recorded so far, or will never show them; see
// cache.Awaiter. It waits at most Config.Timeout. The error names the writes that are not shown. WaitShown must be
// called without a lock that is held during an informer's events.
func (r *Run) WaitShown(ctx context.Context) error {
	if r.Tracker.config.Timeout < 0 {
		return errNotTracked
	}
	writes, ok := r.Tracker.writesOf(r)
	if !ok {
		return errEnded
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, r.Tracker.config.Timeout)
	defer cancel()
	type wait struct {
		write ownWrite
		by    cache.Informer
		shown chan struct{}
	}
	var waits []wait
	for _, w := range writes {
		for _, informer := range w.by {
			shown := make(chan struct{})
			defer informer.Await(w.Write, func() { close(shown) })()
			waits = append(waits, wait{w.ownWrite, informer, shown})
		}
	}
	var missing []error
	for _, w := range waits {
		select {
		case <-w.shown:
			continue
		default:
		}
		select {
		case <-w.shown:
		case <-ctx.Done():
			missing = append(missing, fmt.Errorf("informer %q does not show %s", w.by.Name(), w.write.String()),
				w.by.ReadyFor(w.write.Write))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("%w after %s: %w", ctx.Err(), time.Since(began).Round(time.Millisecond), errors.Join(missing...))
}
