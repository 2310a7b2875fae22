package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/wire"
)

const (
	// silentList is the time without an item after which a streamed list is given up. A server that streams lists sends
	// the closing bookmark at once, even for an empty list. Changes and deletions do not count as items: a server that
	// ignores SendInitialEvents sends them without end.
	silentList = 10 * time.Second
	// longList is the time limit of a streamed list. It is necessary because creations look like items.
	longList = 5 * time.Minute
	// pagedLists is the time during which a part lists in pages after a streamed list was given up. It doubles each
	// time, up to maxPagedLists.
	pagedLists    = 10 * time.Minute
	maxPagedLists = 24 * time.Hour
	// maxBrokenStreams is the number of streamed lists in a row that may end before the list does. The next list is in
	// pages: a server or a proxy may end each stream before a large list has ended.
	maxBrokenStreams = 3
	// stableAfter is the time for which a watch must stay open without events until it counts as working, if the
	// watches before it broke.
	stableAfter = 10 * time.Second
	// shortWatch is the duration below which the Reflector reports a watch without events as very short.
	shortWatch = time.Second
	// progressInterval is the interval at which the stream passes the progress of the watch to the Reflector. The
	// Reflector uses the progress when it opens the next watch, and receives it at the end of the watch in any case.
	progressInterval = 5 * time.Second
)

// stream is a watch. It stores the objects of events, and passes bookmarks and errors to the Reflector. Its Stop waits
// for the end of the watch.
//
// It also records a broken stream, which the Reflector would only log, and a working stream. A watch can break
// repeatedly after it was opened, for example because an object cannot be converted. In that case the request succeeds,
// and the error is an event.
//
// Invariant: one goroutine, pump, processes the events in order. The watchGuard runs in a second one.
type stream struct {
	part   *part
	events events
	out    chan watch.Event
	stop   chan struct{}
	once   sync.Once
	ended  chan struct{}

	current bool // the request was for the present state; immutable

	// Owned by pump.
	listing  bool // the initial events of a streamed list are arriving
	ordered  bool // events come in the order of resource versions
	unbroken bool // also, everything up to the start of the watch had arrived
	opened   time.Time
	got      bool      // an event has arrived
	reached  string    // the resource version of the last event
	sent     string    // the resource version that was last sent to the Reflector
	sentWhen time.Time // when it was sent
}

// newStream starts to process the events of a watch that was opened with ctx and opts. At the end it calls release,
// which ends ctx.
func newStream(ctx context.Context, p *part, e events, opts metav1.ListOptions, release func()) *stream {
	s := &stream{
		part: p, events: e, opened: time.Now(), sentWhen: time.Now(),
		listing: opts.SendInitialEvents != nil && *opts.SendInitialEvents,
		current: asksForNoHistory(opts),
		out:     make(chan watch.Event), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	s.ordered = !s.listing && opts.ResourceVersion != "" && opts.ResourceVersion != "0"
	s.unbroken = s.ordered && apiobject.VersionNotAfter(opts.ResourceVersion, p.progress.now().newest)
	go func() { // waited for by Stop, which the Reflector calls for every watch
		defer close(s.ended)
		defer release()
		s.pump(ctx)
	}()
	return s
}

// ResultChan implements watch.Interface.
func (s *stream) ResultChan() <-chan watch.Event { return s.out }

// Stop implements watch.Interface. It returns when the watch has ended, or after a timeout.
func (s *stream) Stop() {
	s.once.Do(func() { close(s.stop) })
	s.events.stop()
	<-s.ended
	if !s.events.join() {
		s.part.logger.Warn("a stopped watch has not closed its channel: whatever feeds it may live on", "waited",
			slowStop)
	}
}

// pump processes events until the watch ends or is stopped.
func (s *stream) pump(ctx context.Context) {
	defer close(s.out)
	var silent atomic.Bool
	// waited is the time that the server has spent on a streamed list, itemSince the part of it since the latest item.
	var waited, itemSince time.Duration
	timer := time.AfterFunc(stableAfter, s.part.status.stayedOpen)
	if s.listing {
		timer.Stop()
		timer = time.AfterFunc(silentList, func() { silent.Store(true); s.events.stop() })
	}
	defer func() { timer.Stop() }()
	guard := &watchGuard{part: s.part, stop: s.events.stop, opened: s.opened}
	defer guard.wait()
	guarded, cancel := context.WithCancel(ctx)
	defer cancel()
	if !s.listing {
		guard.begin(guarded)
	}
	for {
		asked := time.Now()
		event, err := s.events.next()
		waited += time.Since(asked)
		if err == nil && event.Object != nil && event.Type != watch.Bookmark && event.Object.Key.Name == "" {
			err = errNoName
		}
		// A watch whose context has ended may return any error.
		if ctx.Err() != nil || isClosed(s.stop) || s.isOver(err, silent.Load() && s.listing, guard.hasEnded()) {
			return
		}
		listing, arrived := s.listing, time.Now()
		if listing {
			timer.Stop() // a slow subscriber is not a silent server
			itemSince += arrived.Sub(asked)
			if event.Type == watch.Added {
				itemSince = 0
			}
		}
		guard.setBusy(true) // the guard must not count this time either
		goesOn := s.take(event)
		guard.setBusy(false)
		if !goesOn {
			return
		}
		switch {
		case listing && s.listing:
			timer.Reset(min(silentList-itemSince, longList-waited))
		case listing:
			timer = time.AfterFunc(stableAfter, s.part.status.stayedOpen)
			guard.begin(guarded)
		}
	}
}

// isOver ends the stream if it has not sent its list, if it is silent, or if next has returned an error. Otherwise it
// returns false.
func (s *stream) isOver(err error, listsNothing, silent bool) bool {
	switch {
	case listsNothing:
		s.send(s.avoidStreamedLists())
	case silent:
		s.send(silentWatchEvent())
	case err != nil:
		s.end(err)
	default:
		return false
	}
	return true
}

// take processes an event. It returns false if the stream must end.
func (s *stream) take(event wire.Event) bool {
	s.got = true
	if event.Type == watch.Error {
		s.failed(event.Status)
		return false
	}
	if event.Type != watch.Added {
		s.ordered = !s.listing
	}
	s.reached = event.Object.ResourceVersion
	switch event.Type {
	case watch.Added, watch.Modified:
		s.part.contents.arrived(event.Object, s.typeForNew(), s.origin(event.Type))
	case watch.Deleted:
		s.part.contents.deleted(event.Object, s.origin(event.Type))
	case watch.Bookmark:
		s.part.contents.bookmarked(s.reached, s.origin(event.Type))
		if s.listing && event.Object.Annotations()[metav1.InitialEventsAnnotationKey] == "true" {
			s.listing, s.ordered = false, true
			s.part.listed(s.reached) // the Reflector may call listed too late: events may follow at once
			s.unbroken = apiobject.VersionNotAfter(s.reached, s.part.progress.now().newest)
			return s.send(bookmark(s.reached, true))
		}
		if !s.listing {
			s.part.progress.sawBookmark()
			s.part.status.notSilent()
			return s.sendProgress()
		}
	}
	if s.listing {
		return true // progress within a list is meaningless before its end
	}
	s.part.status.delivered()
	return time.Since(s.sentWhen) <= progressInterval || s.sendProgress()
}

// failed reports an error event, which is the last event of its watch.
func (s *stream) failed(status *metav1.Status) {
	err := apierrors.FromObject(status)
	gone := isHistoryGone(err)
	reported := fmt.Errorf("watch %s: the stream broke: %w", s.part.describes, err)
	if gone {
		s.part.historyGone(reported)
	} else {
		s.part.failed(reported, true)
	}
	if s.listing && (gone && s.current || apierrors.IsTooManyRequests(err)) {
		// The Reflector would retry at once, or after a sleep that ignores its context. It ignores an internal error
		// and falls back to a list.
		status = &apierrors.NewInternalError(err).ErrStatus
	}
	if s.sendProgress() {
		s.send(watch.Event{Type: watch.Error, Object: status})
	}
}

func (s *stream) typeForNew() ChangeType {
	if s.listing {
		return s.part.status.typeForNew()
	}
	return Added
}

func (s *stream) origin(event watch.EventType) origin {
	switch {
	case s.listing:
		return fromList
	case s.unbroken && event != watch.Added:
		return unbroken
	case s.ordered:
		return fromWatch
	}
	return fromStart
}

// end ends a stream after next has returned err.
func (s *stream) end(err error) {
	switch {
	case !endsStream(err):
		err = fmt.Errorf("watch %s: read the stream: %w", s.part.describes, err)
		s.part.failed(err, true)
		if s.sendProgress() {
			s.send(watch.Event{Type: watch.Error, Object: statusOf(err)})
		}
	case !s.got && time.Since(s.opened) < shortWatch:
		if s.part.status.endedAtOnce() {
			s.part.failed(fmt.Errorf("watch %s: the stream ends as soon as it is opened", s.part.describes), true)
		}
	case s.listing:
		s.part.failed(fmt.Errorf("list %s: the stream ended before the list did", s.part.describes), true)
		if s.part.requests.streamBroke() {
			s.send(s.avoidStreamedLists())
		}
	default:
		s.part.status.endedLater()
		s.sendProgress()
	}
}

// endsStream reports whether err is a normal or abrupt end of a stream. The next watch continues from there.
func endsStream(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.Canceled) ||
		utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		strings.Contains(err.Error(), "stream error: stream ID") // HTTP/2's RST_STREAM, mostly sent by proxies
}

// sendProgress passes the progress of the watch to the Reflector. It returns false if the stream was stopped.
func (s *stream) sendProgress() bool {
	if !s.ordered || s.reached == "" || s.reached == s.sent {
		return true
	}
	s.sent, s.sentWhen = s.reached, time.Now()
	return s.send(bookmark(s.reached, false))
}

func (s *stream) send(event watch.Event) bool {
	select {
	case s.out <- event:
		return true
	case <-s.stop:
		return false
	}
}

func bookmark(resourceVersion string, endsList bool) watch.Event {
	about := metav1.ObjectMeta{ResourceVersion: resourceVersion}
	if endsList {
		about.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{ObjectMeta: about}}
}

// errNoStreamedLists is returned if the Reflector requests a streamed list after a streamed list did not end.
var errNoStreamedLists = errors.New("the Retriever's Watch does not stream lists")

// avoidStreamedLists makes the part list in pages for some time, and returns the error event for the Reflector.
func (s *stream) avoidStreamedLists() watch.Event {
	s.part.logger.Warn("streamed lists do not end: listing in pages for some time; a Retriever whose Watch ignores "+
		"SendInitialEvents must not set Description.WatchList",
		"for", s.part.requests.avoidStreams())
	return watch.Event{Type: watch.Error, Object: &apierrors.NewInternalError(errNoStreamedLists).ErrStatus}
}
