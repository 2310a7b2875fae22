// Package fakeapi is an in-memory list and watch of one kind, for tests in virtual time.
//
// It keeps what a controller relies on: one resourceVersion that only grows, an event
// history from which watches start and which can be compacted (410), WatchList with its
// closing bookmark, connections that drop, requests that fail. It checks nothing else:
// no validation, no conflicts. What needs the real semantics is tested on a real server.
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

// Server is the API server of one kind, and the Retriever of it.
type Server[T kube.Object] struct {
	newList   func() runtime.Object
	watchList bool

	mu      sync.Mutex
	changed *sync.Cond // broadcast when history grows or a watcher is to end
	objects map[kube.Key]T
	history []event[T]
	version int // of the last write
	oldest  int // watches from before it are answered with 410
	uids    int
	lists   int
	watches int
	open    map[*watcher[T]]struct{}
	fail    map[string]error
	stale   runtime.Object
	mute    bool // watches bring nothing of what happens
}

type event[T kube.Object] struct {
	kind    watch.EventType
	object  T
	version int
}

// New returns an empty server. newList makes an empty list of T. With watchList, the
// server streams lists.
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

// DropWatches ends every open watch, as a connection that breaks does.
func (s *Server[T]) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.dropped = true
	}
	s.changed.Broadcast()
}

// Compact forgets the history: a watch from before now is answered with 410, and so is an open
// one that has yet to bring something.
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

// ServeStale makes lists answer with what is there now, until Fresh.
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

// Restore sets the server back to version, as an etcd that was restored from a backup:
// objects is all there is.
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

// Mute makes watches, open ones and those that will be opened, bring nothing of what happens,
// or bring it again, with all that was missed. Streamed lists come nevertheless.
func (s *Server[T]) Mute(mute bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = mute
	s.changed.Broadcast()
}

// Bookmark sends a bookmark to all open watches that are not mute.
func (s *Server[T]) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.open {
		w.bookmark = true
	}
	s.changed.Broadcast()
}

// Counts returns how many lists and watches were asked for, and how many watches are open.
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
		// Also when the version is yet to come: the watch cache of kube-apiserver accepts that, and
		// sends nothing up to that version.
		w.next = version
	}
	s.open[w] = struct{}{}
	go w.pump()                       // ends when the watch is stopped, which the Reflector does, or with ctx
	context.AfterFunc(ctx, w.stopNow) // the same end
	return w, nil
}

type watcher[T kube.Object] struct {
	server  *Server[T]
	initial []watch.Event
	next    int // guarded by server.mu; the last version sent
	dropped bool
	// bookmark is guarded by server.mu; one is to be sent.
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
			// What was to be sent next is forgotten.
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
				w.bookmark = false // kube-apiserver sends none below the version that was asked for
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
