package apiserver

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The functions of this file have no equal in the API of Kubernetes: they cause states of the server that tests need.

// CloseWatches ends the open watches of the resources, as a broken connection does: they do not send events that they
// have not sent yet. Without resources: of all.
func (s *Server) CloseWatches(resources ...schema.GroupResource) {
	s.control(resources, func(t *table) { t.closed++ })
}

// HoldWatches makes the watches of the resources, open ones and later ones, send no changes after the latest write, and
// no bookmarks, as if the connection had stalled. Lists, and the initial objects of watches, are not affected. A second
// call changes nothing for held watches. Without resources: of all.
func (s *Server) HoldWatches(resources ...schema.GroupResource) {
	s.control(resources, func(t *table) {
		if t.held == nil {
			t.hold(s.version)
		}
	})
}

// ReleaseWatches undoes HoldWatches: the watches send the held changes, and later ones.
func (s *Server) ReleaseWatches(resources ...schema.GroupResource) {
	s.control(resources, func(t *table) { t.held = nil })
}

// ReleaseWrite makes the held watches of the resources send the next held write to each resource.
func (s *Server) ReleaseWrite(resources ...schema.GroupResource) {
	s.control(resources, func(t *table) {
		if t.held == nil {
			return
		}
		next := s.version
		for st := range t.streams { // events that a compaction has removed from the history
			if n := after(st.backlog, *t.held); n < len(st.backlog) {
				next = min(next, st.backlog[n].version)
			}
		}
		if n := t.after(*t.held); n < len(t.history) {
			next = min(next, t.history[n].version)
		}
		t.hold(next)
	})
}

// SendBookmarks makes the open watches of the resources that accept bookmarks send one now, unless they are held.
// Without resources: of all.
func (s *Server) SendBookmarks(resources ...schema.GroupResource) {
	s.control(resources, func(t *table) {
		for st := range t.streams {
			st.bookmarkDue = st.bookmarks
		}
	})
}

// OpenWatches returns the number of watches of the resources whose clients have not closed them. Without resources: of
// all.
func (s *Server) OpenWatches(resources ...schema.GroupResource) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := 0
	for _, t := range s.tablesOf(resources) {
		open += len(t.streams)
	}
	return open
}

func (t *table) hold(version uint64) { t.held = &version }

// control calls change for the tables of the resources, or for all tables, and wakes their watches.
func (s *Server) control(resources []schema.GroupResource, change func(*table)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tablesOf(resources) {
		change(t)
		t.wake()
	}
}

// tablesOf returns the tables of the resources, or all tables. s.mu is held.
func (s *Server) tablesOf(resources []schema.GroupResource) []*table {
	var tables []*table
	for _, t := range s.tables {
		if len(resources) == 0 || slices.Contains(resources, t.kind.groupResource()) {
			tables = append(tables, t)
		}
	}
	return tables
}

// Renumber gives a fork other uids and versions than the server that it was made from, as another cluster has: its
// objects now, and what is written later. number is that of the cluster, from 1. The history is gone. It must be called
// before the first request.
func (s *Server) Renumber(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const perCluster = 1_000_000 // versions
	s.values = values{seed: s.config.Seed, cluster: number, made: map[uint64]uint32{}}
	s.timeouts = rand.NewPCG(s.config.Seed, 2*number+1)
	s.version += number * perCluster
	byName := func(a, b *table) int {
		return strings.Compare(a.kind.groupResource().String(), b.kind.groupResource().String())
	}
	for _, t := range slices.SortedFunc(maps.Values(s.tables), byName) {
		t.records, t.shared = t.copies(), false
		t.history, t.compacted = nil, s.version
		for _, r := range t.records {
			r.version += number * perCluster
			r.obj = r.obj.DeepCopyObject().(Object)
			r.obj.SetUID(s.values.uid(t.kind.groupResource().String(), r.obj.GetNamespace(), r.obj.GetName()))
			r.obj.SetResourceVersion(strconv.FormatUint(r.version, 10))
		}
	}
}

// Restore gives s the objects, kinds and the version of backup, a fork of s, as etcd does when it is restored from a
// backup. The history is gone, and all watches end. The values of s go on, so that uids of lost objects are not used
// again.
func (s *Server) Restore(backup *Server) {
	backup = backup.Fork() // so that two servers are never locked at once
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.serving = backup.version, backup.serving
	for name, t := range s.tables {
		t.closed++
		t.wake()
		if saved := backup.tables[name]; saved != nil {
			t.kind, t.records, t.shared = saved.kind, saved.records, true
			t.history, t.compacted, t.held = nil, s.version, nil
			delete(backup.tables, name)
			continue
		}
		delete(s.tables, name)
	}
	for name, t := range backup.tables { // withdrawn since
		t.history, t.compacted = nil, s.version
		s.tables[name] = t
	}
}

// pending takes the events after the cursor that are not held. Server.mu is held.
func (st *stream) pending() []event {
	t := st.request.table
	limit := st.request.server.version
	if t.held != nil {
		limit = *t.held
	}
	n := after(st.backlog, limit)
	events := st.backlog[:n:n]
	st.backlog = st.backlog[n:]
	if st.cursor < limit { // the backlog is empty, because its events are not after the cursor
		events = append(events, t.history[t.after(st.cursor):t.after(limit)]...)
		st.cursor = limit
	}
	return events
}
