package apiserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// firstVersion is the resource version of an empty server. It is above the small numbers that tests use as made-up
// versions.
const firstVersion = 1000

// Config configures a Server.
type Config struct {
	// Seed determines uids, generated names, and the random part of the time after which the server ends a watch.
	Seed uint64
	// Kinds are the served kinds. Default: ConfigMap, Secret, Namespace and Lease.
	Kinds []*Kind
	// History is the least number of events of each resource that can be watched or listed later. Default 10,000.
	History int
	// NamespacesExist makes each namespace exist without a Namespace object. Default false: objects can be created only
	// in an existing namespace.
	NamespacesExist bool
	// NodesExist makes each node exist without a Node object, with unlimited resources. Default false: a Pod on a
	// missing node cannot be resized.
	NodesExist bool
}

// Server is an API server in memory. Create it with New.
type Server struct {
	config Config // immutable after New; forks share it

	mu        sync.Mutex
	serving   *serving                        // immutable, so that requests use it without the lock; guarded by mu
	values    values                          // guarded by mu
	timeouts  *rand.PCG                       // of watches; guarded by mu
	version   uint64                          // of the latest write; guarded by mu
	tables    map[schema.GroupResource]*table // by storage kind; the map and its tables are guarded by mu
	admission Admission                       // nil: none; guarded by mu
	observers []func(Change)                  // immutable, guarded by mu
	changes   []Change                        // not yet observed; guarded by mu
	notifying bool                            // guarded by mu
}

// New returns an empty server. Errors: two kinds with one resource name, a Go type that cannot be registered.
func New(config Config) (*Server, error) {
	if config.Kinds == nil {
		config.Kinds = []*Kind{ConfigMaps(), Secrets(), Namespaces(), Leases()}
	}
	if config.History <= 0 {
		config.History = 10_000
	}
	serving, err := newServing(config.Kinds, nil)
	if err != nil {
		return nil, fmt.Errorf("new API server: %w", err)
	}
	s := &Server{
		config: config, serving: serving, version: firstVersion,
		values: values{seed: config.Seed, made: map[uint64]uint32{}}, timeouts: rand.NewPCG(config.Seed, 1),
		tables: map[schema.GroupResource]*table{},
	}
	for _, kind := range config.Kinds {
		storage := kind.storage()
		if s.tables[storage.groupResource()] == nil {
			s.tables[storage.groupResource()] = &table{kind: storage, compacted: firstVersion}
		}
	}
	return s, nil
}

// Fork returns a server with the same objects, history and random sequence, which changes independently from then on.
// It has no open watches and no observers. A fork shares all stored objects. The first write to a resource copies the
// list of references to its objects, in the fork and in the original.
func (s *Server) Fork() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	timeouts := *s.timeouts
	fork := &Server{
		config: s.config, serving: s.serving, admission: s.admission, values: s.values.fork(), timeouts: &timeouts,
		version: s.version,
		tables:  make(map[schema.GroupResource]*table, len(s.tables)),
	}
	for name, t := range s.tables {
		fork.tables[name] = t.fork()
	}
	return fork
}

// RESTConfig returns the config of a client of this server. userAgent is also the name of its field manager.
func (s *Server) RESTConfig(userAgent string) *rest.Config {
	return &rest.Config{Host: "http://apiserver.invalid", Transport: s.Transport(), UserAgent: userAgent, QPS: -1}
}

// Version returns the resource version of the latest write.
func (s *Server) Version() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strconv.FormatUint(s.version, 10)
}

// Compact removes the history of all resources, as etcd does every five minutes. Watches and lists from an earlier
// version then fail with 410. Open watches stay open.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.compact(s.version)
	}
}

// errChanged is returned by a write if the object is not the one that was read: another request has changed it since.
var errChanged = errors.New("the stored object has changed")

// commit stores obj, which has the form of the request's kind, in place of old (nil: it is new), and returns the stored
// record. If it equals old, commit returns old. Error: errChanged.
func (r *request) commit(obj Object, old *record, dryRun bool) (*record, error) {
	if !dryRun {
		obj.SetSelfLink("")
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && r.mutated {
		if err := r.kind.prune(u); err != nil {
			return nil, err
		}
	}
	storage := r.kind.storage()
	if storage != r.kind {
		var err error
		if obj, err = storage.convert(obj); err != nil {
			return nil, err
		}
	}
	rec := &record{kind: storage, key: keyOf(obj.GetNamespace(), obj.GetName()), obj: obj}
	if storage.Rules.Stored != nil {
		rec.rewritten = storage.Rules.Stored(obj)
	}
	e := event{kind: watch.Added, old: old}
	if old != nil {
		obj.SetResourceVersion(old.obj.GetResourceVersion())
		same, err := r.serving.codecs.equal(rec, old)
		if err != nil {
			return nil, err
		}
		if same && rec.rewritten == old.rewritten {
			return old, nil
		}
		e.kind = watch.Modified
	}
	if dryRun {
		return rec, nil
	}
	e.record = &record{kind: storage, key: rec.key, obj: obj, rewritten: rec.rewritten} // without the encoding of rec
	if err := r.limitSize(e.record, old); err != nil {
		return nil, err
	}
	return e.record, r.server.write(r.table, e)
}

// remove deletes an object. The event has its last state with a new version. Error: errChanged.
func (r *request) remove(old *record) (*record, error) {
	last := &record{kind: old.kind, key: old.key, obj: old.obj.DeepCopyObject().(Object)}
	return last, r.server.write(r.table, event{kind: watch.Deleted, record: last, old: old})
}

// write commits an event, whose record gets the next version. Error: errChanged.
func (s *Server) write(t *table, e event) error {
	if err := s.writeEvent(t, &e); err != nil {
		return err
	}
	s.notify()
	return nil
}

func (s *Server) writeEvent(t *table, e *event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.get(e.record.key) != e.old {
		return errChanged
	}
	if resource := e.record.kind.groupResource(); s.tables[resource] != t { // withdrawn since the request began
		return apierrors.NewNotFound(resource, e.record.obj.GetName())
	}
	s.version++
	e.version, e.record.version = s.version, s.version
	e.record.obj.SetResourceVersion(strconv.FormatUint(s.version, 10))
	if e.kind == watch.Deleted {
		t.remove(e.record.key)
	} else {
		t.put(e.record)
	}
	t.log(*e, s.config.History)
	s.noteChange(*e)
	return nil
}

// now returns the time with the precision of timestamps in JSON.
func now() metav1.Time { return metav1.NewTime(time.Now().UTC().Truncate(time.Second)) }

// lookup sets the served kinds of a request, and the kind at its path with its table; no kind if none is served there.
func (s *Server) lookup(path resourcePath, r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.serving, r.kind = s.serving, s.serving.paths[path]
	if r.kind != nil {
		r.table = s.tables[r.kind.storage().groupResource()]
		r.custom, r.generation = r.kind.custom(), r.table.closed
	}
}

// find returns the stored object of a resource, or nil.
func (s *Server) find(resource schema.GroupResource, key string) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.tables[resource]; t != nil {
		return t.get(key)
	}
	return nil
}
