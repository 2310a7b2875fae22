package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// silentList is how long a streamed list may send nothing before it is given up. A
	// server that streams lists sends the closing bookmark even of an empty one at once.
	silentList = 10 * time.Second
	// standing is how long a watch must stand, when those before it broke, until it is
	// believed to work although no event has come.
	standing = 10 * time.Second
	// slowStop is how long a stopped watch has for closing its channel.
	slowStop = 5 * time.Second
	// shortWatch is what the Reflector calls a very short watch, when it had no event.
	shortWatch = time.Second
)

// stream is a watch on its way to the Reflector. It notes what the Reflector would only
// log: that the stream broke, and that it works. And its Stop waits for the watch's end.
//
// A watch can break again and again after it was opened, for instance because an object
// cannot be converted: the request succeeds, and an error comes as an event.
type stream[T kube.Object] struct {
	part   *part[T]
	inner  watch.Interface
	events chan watch.Event
	stop   chan struct{}
	once   sync.Once
	ended  chan struct{}

	// Owned by pump.
	listing bool // the initial events of a streamed list are coming
	opened  time.Time
	got     bool // an event has come
}

// newStream begins to hand on the events of inner, a watch that was opened under ctx.
func newStream[T kube.Object](ctx context.Context, p *part[T], inner watch.Interface, listing bool) *stream[T] {
	s := &stream[T]{
		part: p, inner: inner, listing: listing, opened: time.Now(),
		events: make(chan watch.Event), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go s.pump(ctx) // waited for by Stop, which the Reflector calls for every watch
	return s
}

// ResultChan implements watch.Interface.
func (s *stream[T]) ResultChan() <-chan watch.Event { return s.events }

// Stop implements watch.Interface. It returns when the watch has ended, which it shows by
// closing its channel (the contract of watch.Interface), or has had time enough to.
func (s *stream[T]) Stop() {
	s.once.Do(func() { close(s.stop) })
	s.inner.Stop()
	<-s.ended
	patience := time.NewTimer(slowStop)
	defer patience.Stop()
	for {
		select {
		case _, open := <-s.inner.ResultChan(): // what was under way is dropped
			if !open {
				return
			}
		case <-patience.C:
			s.part.informer.logger.Warn("a stopped watch has not closed its channel: whatever feeds it may live on",
				"informer", s.part.informer.name, "retrieves", s.part.description, "waited", slowStop)
			return
		}
	}
}

// pump hands the events on until the watch ends or is stopped.
func (s *stream[T]) pump(ctx context.Context) {
	defer close(s.ended)
	defer close(s.events)
	patience := time.NewTimer(standing)
	if s.listing {
		patience.Reset(silentList)
	}
	defer patience.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-patience.C:
			if !s.listing {
				s.part.works()
				continue
			}
			s.send(s.part.refuseStreamedLists())
			return
		case event, open := <-s.inner.ResultChan():
			// A watch whose context has ended may say so in any way.
			if ctx.Err() != nil {
				return
			}
			if !open {
				s.closed()
				return
			}
			s.note(event)
			if s.listing {
				patience.Reset(silentList)
			}
			if !s.send(event) {
				return
			}
		}
	}
}

// note learns from an event.
func (s *stream[T]) note(event watch.Event) {
	s.got = true
	switch {
	case event.Type == watch.Error:
		if err := apierrors.FromObject(event.Object); !isHistoryGone(err) {
			s.part.broke(fmt.Errorf("watch %s: the stream broke: %w", s.part.description, err))
		}
	case s.listing:
		if event.Type == watch.Bookmark && endsList(event) {
			s.listing = false
		}
	default:
		s.part.works()
	}
}

func endsList(bookmark watch.Event) bool {
	object, err := meta.Accessor(bookmark.Object)
	return err == nil && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// closed learns from the end of the stream.
func (s *stream[T]) closed() {
	if !s.got && time.Since(s.opened) < shortWatch {
		s.part.broke(fmt.Errorf("watch %s: the stream ends as soon as it is opened", s.part.description))
	}
}

func (s *stream[T]) send(event watch.Event) bool {
	select {
	case s.events <- event:
		return true
	case <-s.stop:
		return false
	}
}

// errNoStreamedLists is what a part answers to the Reflector's wish for a streamed list
// after one did not come.
var errNoStreamedLists = errors.New("the Retriever's Watch does not stream lists")

// refuseStreamedLists makes the part list in pages from now on, and returns the event
// that tells the Reflector.
func (p *part[T]) refuseStreamedLists() watch.Event {
	p.mu.Lock()
	p.noStreams = true
	p.mu.Unlock()
	p.informer.logger.Warn("a streamed list has sent nothing: listing in pages from now on; a Retriever whose Watch ignores SendInitialEvents should say so in Description.WatchList",
		"informer", p.informer.name, "retrieves", p.description, "waited", silentList)
	return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(errNoStreamedLists).ErrStatus}
}
