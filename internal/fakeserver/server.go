// Package fakeserver is an API server in memory, for tests in virtual time: an
// http.RoundTripper, so that every client there is can be tested with it, and that a bubble of
// testing/synctest can hold.
//
// It keeps what controllers rely on: one resourceVersion for everything, which only grows;
// conflicts; generations; deletion with finalizers and preconditions; field managers; lists,
// streamed lists and watches from a history that can be compacted. And it can do what a real
// one does at the worst moment: answer late or not at all, refuse, and let a watch lag.
//
// It checks no schema, defaults nothing, and of patches it knows JSON patches and merge patches.
// What needs more is tested on a real server.
package fakeserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Kind is a kind that the server has.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the kind's name in paths: "configmaps".
	Resource      string
	ClusterScoped bool
	// Status is true when the kind has a status subresource.
	Status bool
}

// Server is the server.
type Server struct {
	mu      sync.Mutex
	changed *sync.Cond            // broadcast when something happens that a watch may wait for
	kinds   map[string]*resources // by group/version/resource
	version int
	oldest  int // watches from before it are answered with 410
	uids    int
	open    int // watches
	hook    func(*http.Request, func() *http.Response) (*http.Response, error)
	seen    []string // verb and path of every request but discovery
}

type resources struct {
	kind    Kind
	objects map[kube.Key]*unstructured.Unstructured
	history []event
	held    int // watches send nothing beyond this version; 0: no such limit
	watches int
}

type event struct {
	kind    watch.EventType
	object  *unstructured.Unstructured
	version int
}

// New returns an empty server of some kinds.
func New(kinds ...Kind) *Server {
	s := &Server{kinds: map[string]*resources{}, version: 1000, oldest: 1000}
	s.changed = sync.NewCond(&s.mu)
	for _, kind := range kinds {
		s.kinds[kind.GroupVersion().String()+"/"+kind.Resource] = &resources{kind: kind, objects: map[kube.Key]*unstructured.Unstructured{}}
	}
	return s
}

// Config returns a config of a client of the server that calls itself userAgent, which is the
// name of its field manager too.
func (s *Server) Config(userAgent string) *rest.Config {
	return &rest.Config{Host: "http://fakeserver", Transport: s, UserAgent: userAgent}
}

// Hook calls hook for every request but discovery in place of the server: do does what the
// server would do, and may be called or not. nil ends it.
func (s *Server) Hook(hook func(req *http.Request, do func() *http.Response) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Requests returns "VERB path" of every request since the last call, but discovery and watches.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// Watches returns how many watches are open.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// HoldWatches makes the watches of a resource send nothing that happens from now on, until
// ReleaseWatches.
func (s *Server) HoldWatches(resource string) { s.hold(resource, func(int) int { return s.version }) }

// ReleaseWatches lets the watches of a resource send what has happened.
func (s *Server) ReleaseWatches(resource string) { s.hold(resource, func(int) int { return 0 }) }

// ReleaseOne lets the watches of a resource, which are held, send one more event.
func (s *Server) ReleaseOne(resource string) {
	s.hold(resource, func(held int) int {
		for _, e := range s.named(resource).history {
			if e.version > held {
				return e.version
			}
		}
		return held
	})
}

func (s *Server) hold(resource string, until func(held int) int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.named(resource)
	r.held = until(r.held)
	s.changed.Broadcast()
}

// Break ends every watch of a resource. With compact, the history is gone: every watch ends, of
// other resources too, and can only be followed by a new list.
func (s *Server) Break(resource string, compact bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.named(resource)
	r.watches++
	if compact {
		s.oldest = s.version
		for _, each := range s.kinds {
			each.history, each.held = nil, 0
			each.watches++
		}
	}
	s.changed.Broadcast()
}

// Backup returns a function that restores all objects and the resource version as they are now,
// as etcd does from a backup. It ends every watch.
func (s *Server) Backup() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, objects := s.version, map[*resources]map[kube.Key]*unstructured.Unstructured{}
	for _, r := range s.kinds {
		objects[r] = maps.Clone(r.objects) // an object is replaced, never changed
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.version, s.oldest = version, version
		for r, kept := range objects {
			r.objects, r.history, r.held = maps.Clone(kept), nil, 0
			r.watches++
		}
		s.changed.Broadcast()
	}
}

func (s *Server) named(resource string) *resources {
	for _, r := range s.kinds {
		if r.kind.Resource == resource {
			return r
		}
	}
	panic("fakeserver: no resource " + resource)
}

// Edit creates or changes an object by another hand, that of manager: change gets the object, or
// an empty one. It returns the resource version. change may return false to delete it.
func (s *Server) Edit(resource string, key kube.Key, manager string, change func(obj map[string]any) bool) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.named(resource)
	old := r.objects[key]
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	if old != nil {
		obj = old.DeepCopy()
	}
	obj.SetGroupVersionKind(r.kind.GroupVersionKind)
	obj.SetNamespace(key.Namespace)
	obj.SetName(key.Name)
	switch {
	case !change(obj.Object):
		s.remove(r, old)
	case old == nil:
		s.create(r, obj, manager)
	default:
		s.replace(r, old, obj, manager)
	}
	return strconv.Itoa(s.version)
}

// Object returns an object, or nil.
func (s *Server) Object(resource string, key kube.Key) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	if obj := s.named(resource).objects[key]; obj != nil {
		return obj.DeepCopy()
	}
	return nil
}

// Keys returns the keys of a resource, sorted.
func (s *Server) Keys(resource string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for key := range s.named(resource).objects {
		keys = append(keys, key.String())
	}
	slices.Sort(keys)
	return keys
}

// The following are called with mu held.

func (s *Server) create(r *resources, obj *unstructured.Unstructured, manager string) {
	s.uids++
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(time.Now()))
	s.store(r, watch.Added, obj, manager)
}

// replace stores a new state of an object. It does nothing when there is nothing new in it.
func (s *Server) replace(r *resources, old, obj *unstructured.Unstructured, manager string) *unstructured.Unstructured {
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
	obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	obj.SetResourceVersion(old.GetResourceVersion())
	obj.SetManagedFields(old.GetManagedFields())
	obj.SetGeneration(old.GetGeneration())
	if same(old.Object, obj.Object) {
		return old
	}
	if !same(desired(old), desired(obj)) {
		obj.SetGeneration(old.GetGeneration() + 1)
	}
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		s.remove(r, obj)
		return obj
	}
	return s.store(r, watch.Modified, obj, manager)
}

func (s *Server) store(r *resources, kind watch.EventType, obj *unstructured.Unstructured, manager string) *unstructured.Unstructured {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	fields := slices.DeleteFunc(obj.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == manager })
	now := metav1.NewTime(time.Now())
	obj.SetManagedFields(append(fields, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: obj.GetAPIVersion(),
		Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1("{}"),
	}))
	stored := &unstructured.Unstructured{}
	encoded, err := json.Marshal(obj.Object)
	if err == nil {
		err = stored.UnmarshalJSON(encoded)
	}
	if err != nil {
		panic(fmt.Sprintf("fakeserver: store %s: %v", obj.GetName(), err))
	}
	r.objects[kube.KeyOf(stored)] = stored
	s.record(r, kind, stored)
	return stored
}

// remove deletes an object: at once, or when its finalizers have gone.
func (s *Server) remove(r *resources, obj *unstructured.Unstructured) (gone bool) {
	if len(obj.GetFinalizers()) > 0 {
		if obj.GetDeletionTimestamp() == nil {
			deleting := obj.DeepCopy()
			now := metav1.NewTime(time.Now())
			deleting.SetDeletionTimestamp(&now)
			deleting.SetDeletionGracePeriodSeconds(new(int64)) // as kube-apiserver does
			deleting.SetGeneration(obj.GetGeneration() + 1)
			s.store(r, watch.Modified, deleting, "server")
		}
		return false
	}
	s.version++
	last := obj.DeepCopy()
	last.SetResourceVersion(strconv.Itoa(s.version))
	delete(r.objects, kube.KeyOf(obj))
	s.record(r, watch.Deleted, last)
	return true
}

func (s *Server) record(r *resources, kind watch.EventType, obj *unstructured.Unstructured) {
	r.history = append(r.history, event{kind, obj, s.version})
	s.changed.Broadcast()
}

// desired is what the generation counts: everything but metadata and status.
func desired(obj *unstructured.Unstructured) map[string]any {
	rest := maps.Clone(obj.Object)
	delete(rest, "metadata")
	delete(rest, "status")
	return rest
}

func same(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}
