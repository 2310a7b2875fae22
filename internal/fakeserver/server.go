// Package fakeserver is an API server in memory, for tests in virtual time. It is an http.RoundTripper, so that any
// client can use it, also in a bubble of testing/synctest.
//
// It implements what controllers rely on: one resourceVersion for all objects, which only grows; conflicts;
// generations; deletion with finalizers and preconditions; field managers; lists, streamed lists and watches from a
// history that can be compacted. It can also fail like a real server: respond late or not at all, return errors, and
// delay a watch.
//
// It checks no schema and sets no defaults. It supports only JSON patches and merge patches. Tests that need more use a
// real server.
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

// Kind is a kind that the server serves.
type Kind struct {
	schema.GroupVersionKind
	// Resource is the kind's name in paths, such as "configmaps".
	Resource      string
	ClusterScoped bool
	// Status is true if the kind has a status subresource.
	Status bool
}

// Server is an API server in memory. Create it with New.
type Server struct {
	mu      sync.Mutex
	changed *sync.Cond            // broadcast when a watch may have something to send
	kinds   map[string]*resources // by group/version/resource
	version int
	oldest  int // watches from an earlier version get a 410
	uids    int
	open    int // number of open watches
	hook    func(*http.Request, func() *http.Response) (*http.Response, error)
	seen    []string // verb and path of every request except discovery
}

type resources struct {
	kind    Kind
	objects map[kube.Key]*unstructured.Unstructured
	history []event
	held    int // watches send nothing after this version; 0: no limit
	watches int
}

type event struct {
	kind    watch.EventType
	object  *unstructured.Unstructured
	version int
}

// New returns an empty server that serves kinds.
func New(kinds ...Kind) *Server {
	s := &Server{kinds: map[string]*resources{}, version: 1000, oldest: 1000}
	s.changed = sync.NewCond(&s.mu)
	for _, kind := range kinds {
		s.kinds[kind.GroupVersion().String()+"/"+kind.Resource] = &resources{kind: kind, objects: map[kube.Key]*unstructured.Unstructured{}}
	}
	return s
}

// Config returns the config of a client of the server. userAgent is also the name of the client's field manager.
func (s *Server) Config(userAgent string) *rest.Config {
	return &rest.Config{Host: "http://fakeserver", Transport: s, UserAgent: userAgent}
}

// Hook makes the server call hook for every request except discovery. do processes the request as the server would.
// hook may call it or not. Hook(nil) removes the hook.
func (s *Server) Hook(hook func(req *http.Request, do func() *http.Response) (*http.Response, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = hook
}

// Requests returns "VERB path" of every request since the last call, except discovery and watches.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen
	s.seen = nil
	return seen
}

// Watches returns the number of open watches.
func (s *Server) Watches() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// HoldWatches makes the watches of a resource send no later changes until ReleaseWatches.
func (s *Server) HoldWatches(resource string) { s.hold(resource, func(int) int { return s.version }) }

// ReleaseWatches makes the watches of a resource send the held changes, and later ones.
func (s *Server) ReleaseWatches(resource string) { s.hold(resource, func(int) int { return 0 }) }

// ReleaseOne makes the held watches of a resource send one more event.
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

// Break ends every watch of a resource. With compact, it also deletes the history and ends the watches of all other
// resources. A new list is then necessary.
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

// Backup returns a function that restores the present objects and resource version, as etcd does from a backup. The
// function ends every watch.
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

// Edit creates, changes or deletes an object, as another client with the field manager manager. change gets the object,
// or an empty one. It returns false to delete the object. Edit returns the resource version.
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

// The following methods must be called with mu held.

func (s *Server) create(r *resources, obj *unstructured.Unstructured, manager string) {
	s.uids++
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(time.Now()))
	s.store(r, watch.Added, obj, manager)
}

// replace stores a new state of an object. It does nothing if the state did not change.
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

// remove deletes an object. If the object has finalizers, remove only sets its deletionTimestamp.
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

// desired returns the fields whose changes increment the generation: all fields except metadata and status.
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
