package store

import (
	"iter"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Snapshot is the state of a Store at one time. It is immutable and safe for concurrent use. It keeps the records in
// memory that the store has replaced since.
//
// Queries use the indexes until the first write to the store after the snapshot. Afterwards they iterate over all
// records: queries by namespace or index without reading the objects, queries by labels or owner by reading every
// object.
type Snapshot struct {
	store   *Store
	view    view
	shards  [keyShards]keyShard
	changes uint64 // Store.changes when the snapshot was taken
	indexes *indexSet
}

// Snapshot returns the current state. It copies a pointer for every 256 objects. Each part of the tables that is
// written to later is copied once.
func (s *Store) Snapshot() *Snapshot {
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.indexEpoch.Add(1)
	return &Snapshot{store: s, view: s.share(), shards: s.index.shards, changes: s.changes, indexes: s.indexes.Load()}
}

// Len returns the number of objects.
func (v *Snapshot) Len() int { return v.view.live }

// Get returns the state with the key.
func (v *Snapshot) Get(key kube.Key) (Ref, bool) {
	hash := v.store.hashes.key(key.Namespace, key.Name)
	shard := &v.shards[shardOf(hash)]
	place, found := shard.find(&v.view, hash, key)
	if !found {
		return Ref{}, false
	}
	return v.view.ref(shard.slots[place]-1, v.store.pool)
}

// Find is like Store.Find, for the state at the time of the snapshot.
func (v *Snapshot) Find(q Query) iter.Seq2[*Found, error] {
	return func(yield func(*Found, error) bool) { v.store.yieldFound(q, v.indexes, v.candidates, yield) }
}

// Count is like Store.Count, for the state at the time of the snapshot.
func (v *Snapshot) Count(q Query) (int, error) {
	f, err := v.store.compile(q, v.indexes)
	if err != nil || f.isEmpty {
		return 0, err
	}
	if !f.byLabels && q.Namespace == "" && q.OwnerUID == "" && q.Index == "" {
		return v.view.live, nil
	}
	found := v.candidates(&f)
	return found.count(&f, v.store.pool)
}

func (v *Snapshot) candidates(f *filter) candidates {
	s := v.store
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.changes == v.changes {
		return s.candidates(f)
	}
	return candidates{all: &v.view}
}
