package apiserver

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
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
	// NamespacesExist makes each namespace exist without a Namespace object. Default false: objects can be created only in
	// an existing namespace.
	NamespacesExist bool
}

// Server is an API server in memory. Create it with New.
type Server struct {
	// Immutable after New; forks share them.
	config Config
	codecs *codecs
	// managers compute managed fields.
	managers map[scope]*managedfields.FieldManager

	mu      sync.Mutex
	random  *rand.PCG            // guarded by mu
	version uint64               // of the latest write; guarded by mu
	tables  map[tableName]*table // the map is immutable, its tables are guarded by mu
}

// tableName identifies a resource in one version.
type tableName struct{ group, version, resource string }

// New returns an empty server. Errors: two kinds with one resource name, a Go type that cannot be registered.
func New(config Config) (*Server, error) {
	if config.Kinds == nil {
		config.Kinds = []*Kind{ConfigMaps(), Secrets(), Namespaces(), Leases()}
	}
	if config.History <= 0 {
		config.History = 10_000
	}
	codecs, err := newCodecs(config.Kinds)
	if err != nil {
		return nil, fmt.Errorf("new API server: %w", err)
	}
	managers, err := newFieldManagers(config.Kinds)
	if err != nil {
		return nil, fmt.Errorf("new API server: %w", err)
	}
	s := &Server{
		config: config, codecs: codecs, managers: managers,
		random: rand.NewPCG(config.Seed, 0), version: firstVersion,
		tables: map[tableName]*table{},
	}
	for _, kind := range config.Kinds {
		name := tableName{kind.Group, kind.Version, kind.Resource}
		if s.tables[name] != nil {
			return nil, fmt.Errorf("new API server: two kinds are named %s in %s", kind.Resource, kind.GroupVersion())
		}
		s.tables[name] = &table{kind: kind, compacted: firstVersion}
	}
	return s, nil
}

// Fork returns a server with the same objects, history and random sequence, which changes independently from then on. It
// has no open watches. A fork shares all stored objects. The first write to a resource copies the list of references to its
// objects, in the fork and in the original.
func (s *Server) Fork() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	random := *s.random
	fork := &Server{
		config: s.config, codecs: s.codecs, managers: s.managers, random: &random, version: s.version,
		tables: make(map[tableName]*table, len(s.tables)),
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

// Compact removes the history of all resources, as etcd does every five minutes. Watches and lists from an earlier version
// then fail with 410. Open watches stay open.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.compact(s.version)
	}
}

// CloseWatches ends the open watches of all resources, as a restart of the server does.
func (s *Server) CloseWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.closed++
		t.wake()
	}
}

// commit stores obj, which replaces old (nil: it is new), and returns the stored record. If obj equals old, it returns old.
// s.mu is held.
func (s *Server) commit(t *table, obj object, old *record, dryRun bool) (*record, error) {
	r := &record{kind: t.kind, key: keyOf(obj.GetNamespace(), obj.GetName()), obj: obj}
	if !dryRun {
		obj.SetSelfLink("")
	}
	if t.kind.rules.stored != nil {
		r.rewritten = t.kind.rules.stored(obj)
	}
	if old == nil {
		if dryRun {
			return r, nil
		}
		s.advance(r)
		t.put(r)
		t.log(event{kind: watch.Added, version: r.version, record: r}, s.config.History)
		return r, nil
	}
	obj.SetResourceVersion(old.obj.GetResourceVersion())
	same, err := s.codecs.equal(r, old)
	if err != nil {
		return nil, err
	}
	if same && r.rewritten == old.rewritten {
		return old, nil
	}
	if dryRun {
		return r, nil
	}
	r = &record{kind: t.kind, key: r.key, obj: obj, rewritten: r.rewritten}
	s.advance(r)
	t.put(r)
	t.log(event{kind: watch.Modified, version: r.version, record: r, old: old}, s.config.History)
	return r, nil
}

// remove deletes an object. The event has its last state with a new version. s.mu is held.
func (s *Server) remove(t *table, old *record) *record {
	last := &record{kind: t.kind, key: old.key, obj: old.obj.DeepCopyObject().(object)}
	s.advance(last)
	t.remove(old.key)
	t.log(event{kind: watch.Deleted, version: last.version, record: last, old: old}, s.config.History)
	return last
}

// advance gives a record the next version. s.mu is held.
func (s *Server) advance(r *record) {
	s.version++
	r.version = s.version
	r.obj.SetResourceVersion(strconv.FormatUint(s.version, 10))
}

// uid returns a new uid in the form of a random UUID. s.mu is held.
func (s *Server) uid() types.UID {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], s.random.Uint64())
	binary.BigEndian.PutUint64(b[8:], s.random.Uint64())
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// generateName appends five random characters to base, which it cuts to 58 characters first. s.mu is held.
func (s *Server) generateName(base string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789" // no vowels, so that no words appear
	const longest = 58
	if len(base) > longest {
		base = base[:longest]
	}
	suffix := make([]byte, 5)
	for i := range suffix {
		suffix[i] = alphabet[s.random.Uint64()%uint64(len(alphabet))]
	}
	return base + string(suffix)
}

// now returns the time with the precision of timestamps in JSON.
func now() metav1.Time { return metav1.NewTime(time.Now().UTC().Truncate(time.Second)) }

func (s *Server) namespaceTable() *table { return s.tables[tableName{"", "v1", "namespaces"}] }
