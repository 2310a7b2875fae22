package apiserver

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"
)

// serving is the set of kinds that a server serves. It never changes: Serve makes a new one.
type serving struct {
	kinds  []*Kind
	paths  map[resourcePath]*Kind
	codecs *codecs
	scale  *Kind   // of the subresource scale of all kinds
	posted []*Kind // of the subresources that are only created
	// managers compute managed fields.
	managers map[scope]*managedfields.FieldManager
}

// resourcePath identifies a resource in one version.
type resourcePath struct{ group, version, resource string }

// newServing returns the set of kinds. It takes over what previous (nil: nothing) has for the same kinds.
func newServing(kinds []*Kind, previous *serving) (*serving, error) {
	s := &serving{kinds: kinds, paths: map[resourcePath]*Kind{}, managers: map[scope]*managedfields.FieldManager{}}
	versions := map[*Kind][]*Kind{} // by storage kind
	for _, kind := range kinds {
		path := resourcePath{kind.Group, kind.Version, kind.Resource}
		if s.paths[path] != nil {
			return nil, fmt.Errorf("two kinds are named %s in %s", kind.Resource, kind.GroupVersion())
		}
		s.paths[path] = kind
		versions[kind.storage()] = append(versions[kind.storage()], kind)
	}
	s.scale, s.posted = newScaleKind(), postedKinds()
	if previous != nil {
		s.scale, s.posted = previous.scale, previous.posted
	}
	ofSubresources := slices.Concat(s.posted, []*Kind{s.scale})
	newGoType := func(k *Kind) bool { return !k.custom() && !slices.Contains(previous.kinds, k) }
	if previous != nil && !slices.ContainsFunc(kinds, newGoType) {
		s.codecs = previous.codecs
	} else {
		var err error
		if s.codecs, err = newCodecs(slices.Concat(kinds, ofSubresources)); err != nil {
			return nil, err
		}
	}
	typeOf := newTypes(slices.Concat(kinds, ofSubresources))
	for _, kind := range ofSubresources {
		if err := addFieldManagers(s.managers, kind, []*Kind{kind}, typeOf); err != nil {
			return nil, err
		}
	}
	for _, kind := range kinds {
		// the managers convert between them
		if previous != nil && slices.Equal(previous.versionsOfKind(kind), versions[kind.storage()]) {
			for _, subresource := range kind.subresources() {
				s.managers[scope{kind, subresource}] = previous.managers[scope{kind, subresource}]
			}
			continue
		}
		if err := addFieldManagers(s.managers, kind, versions[kind.storage()], typeOf); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// versionsOfKind returns the kinds of a kind's resource if the kind is served, otherwise none.
func (s *serving) versionsOfKind(kind *Kind) []*Kind {
	if !slices.Contains(s.kinds, kind) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.kinds), func(k *Kind) bool { return k.storage() != kind.storage() })
}

// Serve makes the server serve kinds as the versions of a resource, in place of the versions that it serves so far. All
// of them have the same storage kind. Without kinds the resource is not served any more, and its objects are removed.
// Open watches of the resource end. Stored objects stay as they are until they are written: Kind.From converts them
// when they are read.
func (s *Server) Serve(resource schema.GroupResource, kinds ...*Kind) error {
	return s.serve(resource, kinds, false)
}

// Withdraw makes the server serve no version of a resource, and keeps its objects for a later Serve. Open watches of
// the resource end.
func (s *Server) Withdraw(resource schema.GroupResource) error { return s.serve(resource, nil, true) }

// serve is Serve. With keep it does not remove objects.
func (s *Server) serve(resource schema.GroupResource, kinds []*Kind, keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.serving.kinds), func(k *Kind) bool {
		return k.storage().groupResource() == resource
	})
	for _, kind := range kinds {
		if kind.storage().groupResource() != resource || kind.storage() != kinds[0].storage() {
			return fmt.Errorf("serve %s: %s is stored as %s", resource, kind.GroupVersionKind,
				kind.storage().GroupVersionKind)
		}
	}
	serving, err := newServing(append(all, kinds...), s.serving)
	if err != nil {
		return fmt.Errorf("serve %s: %w", resource, err)
	}
	s.serving = serving
	t := s.tables[resource]
	switch {
	case t == nil && len(kinds) > 0:
		s.tables[resource] = &table{kind: kinds[0].storage(), compacted: s.version}
		return nil
	case t == nil:
		return nil
	case len(kinds) > 0:
		t.kind = kinds[0].storage()
		// Without the views of the previous kinds. Those of an External kind belong to this server, and forks share the
		// records.
		t.records, t.shared = t.copies(), false
	case !keep:
		delete(s.tables, resource)
	}
	t.closed++
	t.wake()
	return nil
}

// Kinds returns the served kinds, all versions of them. The caller must not change them.
func (s *Server) Kinds() []*Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.serving.kinds
}

// Objects returns the stored objects of a resource, in the form in which they are stored. The caller must not change
// them.
func (s *Server) Objects(resource schema.GroupResource) []Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[resource]; t != nil {
		return t.objects()
	}
	return nil
}

// Change is a committed write.
type Change struct {
	Kind *Kind // the storage kind
	// Object is the object after the write; nil after a deletion. Old is the object before; nil after a creation. They
	// must not be changed.
	Object, Old Object
	// Version is the version that the write has in Server.Version. It is the resource version of Object.
	Version uint64
}

// Observe makes the server call observer after each committed write, in the order of the writes, after Kind.Committed.
// The call is made by the goroutine of a request, before its response is sent; observer may make requests, and later
// writes are observed when it has returned. A fork has no observers.
func (s *Server) Observe(observer func(Change)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers = append(slices.Clip(s.observers), observer)
}

// noteChange remembers a committed event for observers. s.mu is held.
func (s *Server) noteChange(e event) {
	kind := e.record.kind
	if kind.Committed == nil && len(s.observers) == 0 {
		return
	}
	c := Change{Kind: kind, Object: e.record.obj, Version: e.version}
	if e.old != nil {
		c.Old = e.old.obj
	}
	if e.kind == watch.Deleted {
		c.Object = nil
	}
	s.changes = append(s.changes, c)
}

// notify calls the observers of all changes, unless another call of notify does it.
func (s *Server) notify() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notifying {
		return
	}
	s.notifying = true
	defer func() { s.notifying = false }() // also if an observer panics
	for len(s.changes) > 0 {
		change, observers := s.changes[0], s.observers
		s.changes = s.changes[1:]
		s.unlocked(func() {
			if change.Kind.Committed != nil {
				change.Kind.Committed(s, change)
			}
			for _, observer := range observers {
				observer(change)
			}
		})
	}
	s.changes = nil
}

// unlocked calls f without the lock. s.mu is held before and after it.
func (s *Server) unlocked(f func()) {
	s.mu.Unlock()
	defer s.mu.Lock()
	f()
}
