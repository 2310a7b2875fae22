package controller

import (
	"slices"
	"sync"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/shrink"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// maxEnds is the maximum number of objects of one name that wait for Config.Deleted: a hook that does not return, or
// keeps failing, must not retain the states of all objects that are created and deleted in the meantime.
const maxEnds = 16

// ends contains the deleted objects for which Config.Deleted must still be called.
type ends struct {
	mu      sync.Mutex
	keys    map[kube.Key][]*end // guarded by mu; the objects of a key in order of their deletion
	maxKeys int                 // guarded by mu; see shrink.Delete
}

// end is the last known state of a deleted object.
type end struct {
	state *wire.Object
	stale bool
	left  bool // the object may exist, outside of the informer's selection
}

// add records the state before a change that ended an object. It returns the end that it dropped because there were
// too many, or nil.
func (e *ends) add(c informer.Change) (dropped *end) {
	ending := cache.Of(c).Ending()
	old, err := cache.Of(c).Old()
	if err != nil || old == nil || ending == cache.Left {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := e.keys[c.Key]
	if len(waiting) == maxEnds {
		dropped, waiting = waiting[0], waiting[1:]
	}
	// A single event reports that an object replaced another one: the deletion of the first was not seen.
	e.keys[c.Key] = append(slices.Clip(waiting), &end{state: old.Clone(), stale: c.Type != informer.Deleted ||
		!cache.Of(c).Complete(), left: ending == cache.GoneOrLeft})
	return dropped
}

// first returns the object of key that was deleted first, or nil.
func (e *ends) first(key kube.Key) *end {
	e.mu.Lock()
	defer e.mu.Unlock()
	if waiting := e.keys[key]; len(waiting) > 0 {
		return waiting[0]
	}
	return nil
}

// remove removes an end that was handled. It keeps ends that were added in the meantime.
func (e *ends) remove(key kube.Key, done *end) {
	e.mu.Lock()
	defer e.mu.Unlock()
	waiting := slices.DeleteFunc(slices.Clone(e.keys[key]), func(other *end) bool { return other == done })
	if len(waiting) == 0 {
		e.keys = shrink.Delete(e.keys, key, &e.maxKeys)
	} else {
		e.keys[key] = waiting
	}
}
