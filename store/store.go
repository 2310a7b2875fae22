// Package store keeps the latest known state of the objects of one informer.
package store

import (
	"iter"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Store keeps objects by key. Whatever it keeps inside, every read hands out a fresh
// object that belongs to the caller, so that no two readers can ever change each
// other's object.
//
// It is safe for concurrent use. It knows nothing of order: the informer decides what
// is newer and calls Put and Delete accordingly.
type Store[T kube.Object] interface {
	// Put keeps obj, in place of what was kept under its key. The store owns obj from
	// now on: the caller must not change it.
	Put(obj T)
	// Delete forgets the object under key; it is not an error when there is none.
	Delete(key kube.Key)
	// Get returns a fresh copy of the object under key. The error says that the kept
	// form could not be read.
	Get(key kube.Key) (obj T, found bool, err error)
	// Version returns which state is kept under key, without reading the object.
	Version(key kube.Key) (version Version, found bool)
	// Keys iterates over the keys as they are when the iteration begins, in no order.
	Keys() iter.Seq[kube.Key]
	// Len is the number of objects.
	Len() int
}

// Version tells one state of one object: which incarnation, and which revision of it.
type Version struct {
	UID             types.UID
	ResourceVersion string
}

// Memory is a Store that keeps the objects as they come, in a map, and copies them
// at every read. The zero value is not usable; NewMemory makes one.
type Memory[T kube.Object] struct {
	mu      sync.RWMutex
	objects map[kube.Key]T // guarded by mu; the objects in it are never changed
}

// NewMemory returns an empty store.
func NewMemory[T kube.Object]() *Memory[T] {
	return &Memory[T]{objects: map[kube.Key]T{}}
}

// Put implements Store.
func (m *Memory[T]) Put(obj T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[kube.KeyOf(obj)] = obj
}

// Delete implements Store.
func (m *Memory[T]) Delete(key kube.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
}

// Get implements Store. Its error is always nil.
func (m *Memory[T]) Get(key kube.Key) (T, bool, error) {
	m.mu.RLock()
	obj, found := m.objects[key]
	m.mu.RUnlock()
	if !found {
		return obj, false, nil
	}
	// The copy is made outside the lock: kept objects are replaced, never changed.
	return obj.DeepCopyObject().(T), true, nil
}

// Version implements Store.
func (m *Memory[T]) Version(key kube.Key) (Version, bool) {
	m.mu.RLock()
	obj, found := m.objects[key]
	m.mu.RUnlock()
	if !found {
		return Version{}, false
	}
	return Version{UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}, true
}

// Keys implements Store.
func (m *Memory[T]) Keys() iter.Seq[kube.Key] {
	return func(yield func(kube.Key) bool) {
		m.mu.RLock()
		keys := make([]kube.Key, 0, len(m.objects))
		for key := range m.objects {
			keys = append(keys, key)
		}
		m.mu.RUnlock()
		for _, key := range keys {
			if !yield(key) {
				return
			}
		}
	}
}

// Len implements Store.
func (m *Memory[T]) Len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.objects)
}
