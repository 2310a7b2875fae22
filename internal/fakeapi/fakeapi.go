// Package fakeapi is an in-memory list and watch of one kind, for tests in virtual time.
//
// It implements what a controller relies on: one resourceVersion that only grows, an event history from which watches
// start and which can be compacted (410), WatchList with its closing bookmark, broken connections, and failing
// requests. It has no validation and detects no conflicts. Tests that need the full semantics use a real server.
package fakeapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/gotype"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Server is an API server of one kind, and the Retriever of it.
type Server[T kube.Object] struct {
	newList   func() runtime.Object
	watchList bool

	mu      sync.Mutex
	changed *sync.Cond // broadcast when history grows or a watcher must end
	objects map[kube.Key]T
	history []event[T]
	version int // version of the last write
	oldest  int // watches from an earlier version get a 410
	uids    int
	lists   int
	watches int
	open    map[*watcher[T]]struct{}
	fail    map[string]error
	stale   runtime.Object
	mute    bool // watches send no changes
}

type event[T kube.Object] struct {
	kind    watch.EventType
	object  T
	version int
}

// New returns an empty server. newList returns an empty list of T. With watchList, the server streams lists.
func New[T kube.Object](newList func() runtime.Object, watchList bool) *Server[T] {
	s := &Server[T]{
		newList: newList, watchList: watchList,
		objects: map[kube.Key]T{}, open: map[*watcher[T]]struct{}{}, fail: map[string]error{},
		version: 100, oldest: 100,
	}
	s.changed = sync.NewCond(&s.mu)
	return s
}

// Put creates obj, or updates the object under its key. It returns the stored object.
func (s *Server[T]) Put(obj T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj = obj.DeepCopyObject().(T)
	kind := watch.Modified
	if old, found := s.objects[kube.KeyOf(obj)]; found {
		obj.SetUID(old.GetUID())
	} else {
		kind = watch.Added
		s.uids++
		obj.SetUID(types.UID(fmt.Sprintf("uid-%d", s.uids)))
	}
	s.write(kind, obj)
	s.objects[kube.KeyOf(obj)] = obj
	return obj.DeepCopyObject().(T)
}

// Delete removes the object under key, which must exist.
func (s *Server[T]) Delete(key kube.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj := s.objects[key].DeepCopyObject().(T)
	delete(s.objects, key)
	s.write(watch.Deleted, obj)
}

func (s *Server[T]) write(kind watch.EventType, obj T) {
	s.version++
	obj.SetResourceVersion(strconv.Itoa(s.version))
	s.history = append(s.history, event[T]{kind, obj, s.version})
	s.changed.Broadcast()
}

// DropWatches ends every open watch, like a broken connection.
func (s *Server[T]) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.dropped = true
	}
	s.changed.Broadcast()
}

// Compact deletes the history. A watch from an earlier version gets a 410, and so does an open watch that has not sent
// all changes.
func (s *Server[T]) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oldest = s.version
	s.history = nil
}

// Fail makes requests with verb ("list", "watch") fail with err, until err is nil.
func (s *Server[T]) Fail(verb string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail[verb] = err
}

// ServeStale makes lists return the objects that exist now, until Fresh is called.
func (s *Server[T]) ServeStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = s.list()
}

// Fresh ends ServeStale.
func (s *Server[T]) Fresh() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = nil
}

// Restore resets the server to version, like an etcd that was restored from a backup. It then has only objects.
func (s *Server[T]) Restore(version int, objects ...T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.oldest, s.history = version, version, nil
	s.objects = map[kube.Key]T{}
	for _, obj := range objects {
		s.objects[kube.KeyOf(obj)] = obj
	}
	for w := range s.open {
		w.dropped = true
	}
	s.changed.Broadcast()
}

// Mute makes all watches, open and new, send no changes. Mute(false) makes them send changes again, including the
// missed ones. Streamed lists are sent in any case.
func (s *Server[T]) Mute(mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = mute
	s.changed.Broadcast()
}

// Bookmark sends a bookmark to all open watches, unless they are mute.
func (s *Server[T]) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.bookmark = true
	}
	s.changed.Broadcast()
}

// Counts returns the numbers of list requests, of watch requests, and of open watches.
func (s *Server[T]) Counts() (lists, watches, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists, s.watches, len(s.open)
}

// Describe implements informer.Retriever.
func (s *Server[T]) Describe() informer.Description[T] {
	return informer.Description[T]{WatchList: s.watchList}
}

// List implements informer.Retriever.
func (s *Server[T]) List(_ context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists++
	if err := s.fail["list"]; err != nil {
		return nil, err
	}
	if version, err := strconv.Atoi(opts.ResourceVersion); err == nil && version > s.version {
		return nil, tooLarge()
	}
	if s.stale != nil {
		return s.stale.DeepCopyObject(), nil
	}
	return s.list(), nil
}

func (s *Server[T]) list() runtime.Object {
	list := s.newList()
	var items []runtime.Object
	for _, obj := range s.objects {
		items = append(items, obj.DeepCopyObject())
	}
	if err := meta.SetList(list, items); err != nil {
		panic(fmt.Sprintf("fakeapi: fill a %T: %v", list, err))
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		panic(fmt.Sprintf("fakeapi: %T is not a list: %v", list, err))
	}
	accessor.SetResourceVersion(strconv.Itoa(s.version))
	return list
}

func tooLarge() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusGatewayTimeout, Reason: metav1.StatusReasonTimeout,
		Message: "Too large resource version",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}},
	}}
}

// Watch implements informer.Retriever.
func (s *Server[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches++
	if err := s.fail["watch"]; err != nil {
		return nil, err
	}
	w := &watcher[T]{server: s, next: s.version, events: make(chan watch.Event), stop: make(chan struct{})}
	version, err := strconv.Atoi(opts.ResourceVersion)
	switch {
	case opts.SendInitialEvents != nil && *opts.SendInitialEvents:
		if err == nil && version > s.version {
			return nil, tooLarge()
		}
		for _, obj := range s.objects {
			w.initial = append(w.initial, watch.Event{Type: watch.Added, Object: obj.DeepCopyObject()})
		}
		end := gotype.New[T]()
		end.SetResourceVersion(strconv.Itoa(s.version))
		end.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
		w.initial = append(w.initial, watch.Event{Type: watch.Bookmark, Object: end})
	case err != nil:
		return nil, fmt.Errorf("fakeapi: watch without a resource version: %w", err)
	case version < s.oldest:
		gone := apierrors.NewResourceExpired("too old resource version")
		w.initial = []watch.Event{{Type: watch.Error, Object: &gone.ErrStatus}}
	default:
		// The version may also be in the future. The watch cache of kube-apiserver accepts that, and sends nothing up
		// to that version.
		w.next = version
	}
	s.open[w] = struct{}{}
	go w.pump()                       // ends when the Reflector stops the watch, or when ctx ends
	context.AfterFunc(ctx, w.stopNow) // as for pump
	return w, nil
}

type watcher[T kube.Object] struct {
	server  *Server[T]
	initial []watch.Event
	next    int // guarded by server.mu; the last version sent
	dropped bool
	// bookmark is guarded by server.mu. It is true if a bookmark must be sent.
	bookmark bool
	events   chan watch.Event
	once     sync.Once
	stop     chan struct{}
}

// Stop implements watch.Interface.
func (w *watcher[T]) Stop() { w.stopNow() }

// ResultChan implements watch.Interface.
func (w *watcher[T]) ResultChan() <-chan watch.Event { return w.events }

func (w *watcher[T]) stopNow() {
	w.once.Do(func() {
		close(w.stop)
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		w.dropped = true
		w.server.changed.Broadcast()
	})
}

func (w *watcher[T]) pump() {
	defer close(w.events)
	defer func() {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		delete(w.server.open, w)
	}()
	for _, e := range w.initial {
		if !w.send(e) || e.Type == watch.Error {
			return
		}
	}
	for {
		e, ok := w.wait()
		if !ok || !w.send(e) || e.Type == watch.Error {
			return
		}
	}
}

// wait blocks for the next event of the history.
func (w *watcher[T]) wait() (watch.Event, bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if w.dropped {
			return watch.Event{}, false
		}
		if w.next < s.oldest {
			// The next event is no longer in the history.
			gone := apierrors.NewResourceExpired("too old resource version")
			return watch.Event{Type: watch.Error, Object: &gone.ErrStatus}, true
		}
		if !s.mute {
			for _, e := range s.history {
				if e.version > w.next {
					w.next = e.version
					return watch.Event{Type: e.kind, Object: e.object.DeepCopyObject()}, true
				}
			}
			if w.bookmark && s.version < w.next {
				w.bookmark = false // kube-apiserver sends no bookmark below the requested version
			}
			if w.bookmark {
				w.bookmark = false
				at := gotype.New[T]()
				at.SetResourceVersion(strconv.Itoa(s.version))
				return watch.Event{Type: watch.Bookmark, Object: at}, true
			}
		}
		s.changed.Wait()
	}
}

func (w *watcher[T]) send(e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-w.stop:
		return false
	}
}
