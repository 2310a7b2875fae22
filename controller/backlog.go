package controller

import (
	"sync"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/kube"
)

// backlog holds the keys that lists and polls found, until the queue has room for them: a list adds any number of keys
// at once. It contains a key at most once, and returns the keys in the order in which they were found first. A run of a
// key that starts in the meantime removes it, and has its causes, because the handler then reads the state that was
// found.
type backlog struct {
	count atomic.Int64 // number of keys; most runs need only this

	mu sync.Mutex
	// entries contains the keys, and first and last are the ends of their list in order of arrival; guarded by mu.
	entries     map[kube.Key]*backlogEntry
	first, last *backlogEntry
}

// backlogEntry is a key in the backlog.
type backlogEntry struct {
	previous, next *backlogEntry
	key            kube.Key
	causes         Causes
}

// size returns the number of keys.
func (b *backlog) size() int { return int(b.count.Load()) }

// add adds a key, or a cause to a key that is in the backlog.
func (b *backlog) add(key kube.Key, cause Cause) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.entries[key]
	switch {
	case entry == nil:
		entry = &backlogEntry{key: key, previous: b.last}
		if b.last == nil {
			b.first = entry
		} else {
			b.last.next = entry
		}
		b.last = entry
		if b.entries == nil {
			b.entries = map[kube.Key]*backlogEntry{}
		}
		b.entries[key] = entry
		b.count.Add(1)
	case cause.Type == CauseListed:
		// An owner can have thousands of children: only the first is identified, the others are counted.
		cause.Object = kube.Key{}
	}
	entry.causes.add(cause)
}

// remove removes a key that runs, or is about to be enqueued, and returns its causes.
func (b *backlog) remove(key kube.Key) (causes Causes, found bool) {
	if b.size() == 0 {
		return Causes{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.entries[key]
	if entry == nil {
		return Causes{}, false
	}
	b.drop(entry)
	return entry.causes, true
}

// take removes and returns the key that has been in the backlog for the longest time.
func (b *backlog) take() (key kube.Key, causes Causes, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.first
	if entry == nil {
		return kube.Key{}, Causes{}, false
	}
	b.drop(entry)
	return entry.key, entry.causes, true
}

// drop removes an entry. mu must be held.
func (b *backlog) drop(entry *backlogEntry) {
	if entry.previous == nil {
		b.first = entry.next
	} else {
		entry.previous.next = entry.next
	}
	if entry.next == nil {
		b.last = entry.previous
	} else {
		entry.next.previous = entry.previous
	}
	delete(b.entries, entry.key)
	if b.count.Add(-1) == 0 {
		b.entries = nil // a map does not shrink by itself
	}
}

// causesOf returns the causes of a key in the backlog.
func (b *backlog) causesOf(key kube.Key) (causes Causes, found bool) {
	if b.size() == 0 {
		return Causes{}, false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	entry := b.entries[key]
	if entry == nil {
		return Causes{}, false
	}
	return NewCauses(entry.causes.List()...), true // a copy: the original changes while the key waits
}
