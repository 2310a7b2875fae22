package apiserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// minWatchTimeout is the time after which the server ends a watch, plus up to as much at random, unless the request has
	// timeoutSeconds.
	minWatchTimeout = 30 * time.Minute
	// bookmarkInterval is the time between bookmarks, and finalBookmark the time before the end of a watch when it gets the
	// last one.
	bookmarkInterval = time.Minute
	finalBookmark    = 2 * time.Second
)

func (r *request) watch(options internalversion.ListOptions, selected selection) (*response, error) {
	version, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return nil, err
	}
	st := &stream{
		request: r, selected: selected, bookmarks: options.AllowWatchBookmarks,
		done: r.Context().Done(), cause: r.Context().Err, closed: make(chan struct{}),
	}
	s, t := r.server, r.table
	s.mu.Lock()
	defer s.mu.Unlock()
	timeout := minWatchTimeout + time.Duration(s.random.Uint64()%uint64(minWatchTimeout))
	if seconds := options.TimeoutSeconds; seconds != nil && *seconds > 0 {
		timeout = time.Duration(*seconds) * time.Second
	}
	st.deadline = time.Now().Add(timeout)
	st.timeout = time.NewTimer(timeout)
	if next := st.untilBookmark(); options.AllowWatchBookmarks && next > 0 {
		st.bookmark = time.NewTimer(next)
	}
	st.generation = t.closed
	st.cursor = s.version
	switch initial := options.SendInitialEvents; {
	case initial != nil && *initial:
		if version > s.version {
			st.fail(tooLarge(version, s.version))
			break
		}
		st.sendInitial()
	case options.ResourceVersion == "" || version == 0: // from now on
	case version < t.compacted:
		st.fail(tooOld(version, t.compacted))
	default:
		st.cursor = version
	}
	if t.streams == nil {
		t.streams = map[*stream]struct{}{}
	}
	t.streams[st] = struct{}{}
	res := newResponse(http.StatusOK, r.out.media, nil)
	if r.out.media != mediaJSON {
		res.header.Set("Content-Type", string(r.out.media)+";stream=watch")
	}
	res.stream = st
	return res, nil
}

// stream is the body of a watch. It has no goroutine: Read takes the events from the history, and waits for more.
type stream struct {
	request  *request
	selected selection
	// done and cause are those of the request's context.
	done  <-chan struct{}
	cause func() error

	closed    chan struct{}
	closeOnce sync.Once

	// Immutable after watch.
	deadline  time.Time
	timeout   *time.Timer
	bookmark  *time.Timer // nil without bookmarks
	bookmarks bool

	// Used by the reader only, after watch has returned.
	buffer     bytes.Buffer
	ended      bool
	generation int

	// cursor is the version up to which events were taken. backlog contains events after it that the history lost. Guarded
	// by Server.mu.
	cursor  uint64
	backlog []event
}

// Read returns the next events, and waits for one if there is none. It returns io.EOF after the time of the watch, and
// when the server ended it.
func (st *stream) Read(p []byte) (int, error) {
	for {
		select {
		case <-st.closed:
			return 0, http.ErrBodyReadAfterClose
		default:
		}
		if st.buffer.Len() > 0 {
			return st.buffer.Read(p)
		}
		if st.ended {
			return 0, io.EOF
		}
		wait := st.take()
		if st.buffer.Len() > 0 || st.ended {
			continue
		}
		var bookmark <-chan time.Time
		if st.bookmark != nil {
			bookmark = st.bookmark.C
		}
		select {
		case <-wait:
		case <-st.closed:
			return 0, http.ErrBodyReadAfterClose
		case <-st.done:
			return 0, st.cause()
		case <-st.timeout.C:
			st.ended = true
		case <-bookmark:
			st.sendBookmark()
			if next := st.untilBookmark(); next > 0 {
				st.bookmark.Reset(next)
			}
		}
	}
}

// buffered reports whether Read returns without waiting. A server flushes when it does not.
func (st *stream) buffered() bool { return st.buffer.Len() > 0 }

// Close ends the watch. A Read that waits returns.
func (st *stream) Close() error {
	st.closeOnce.Do(func() {
		close(st.closed)
		st.timeout.Stop()
		if st.bookmark != nil {
			st.bookmark.Stop()
		}
		s := st.request.server
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(st.request.table.streams, st)
	})
	return nil
}

// take encodes the events after the cursor into the buffer. It returns a channel that is closed at the next event.
func (st *stream) take() <-chan struct{} {
	s, t := st.request.server, st.request.table
	s.mu.Lock()
	events := append(st.backlog, t.history[t.after(st.cursor):]...)
	st.backlog = nil
	st.cursor = max(st.cursor, s.version)
	ended := t.closed != st.generation
	wait := t.wait()
	s.mu.Unlock()
	for _, e := range events {
		st.send(e)
	}
	st.ended = st.ended || ended
	return wait
}

// send encodes an event if its object was selected before or after it.
func (st *stream) send(e event) {
	after := e.kind != watch.Deleted && st.includes(e.record)
	before := st.includes(e.old)
	switch {
	case after && before:
		st.sendObject(watch.Modified, e.record)
	case after:
		st.sendObject(watch.Added, e.record)
	case before && e.kind == watch.Deleted:
		st.sendObject(watch.Deleted, e.record)
	case before:
		// The object is not selected any more: clients get its last selected state, with the version of the event.
		last := e.old.obj.DeepCopyObject().(object)
		last.SetResourceVersion(strconv.FormatUint(e.version, 10))
		st.sendObject(watch.Deleted, &record{kind: e.record.kind, key: e.record.key, version: e.version, obj: last})
	}
}

func (st *stream) includes(rec *record) bool {
	if rec == nil || st.selected.name != "" && rec.obj.GetName() != st.selected.name {
		return false
	}
	return st.selected.includes(rec)
}

func (st *stream) sendObject(kind watch.EventType, rec *record) {
	text, err := st.request.encodeRecord(rec)
	st.frame(kind, text, err)
}

// sendInitial sends the current objects, and the bookmark after them if the client asked for bookmarks. Server.mu is held.
func (st *stream) sendInitial() {
	for _, rec := range within(st.request.table.snapshot(), st.selected.namespace) {
		if st.includes(rec) {
			st.sendObject(watch.Added, rec)
		}
	}
	if st.bookmarks {
		st.sendBookmarkAt(st.cursor, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
}

// sendBookmark sends a bookmark with the version up to which the client has all events.
func (st *stream) sendBookmark() {
	st.take() // events that arrived since
	s := st.request.server
	s.mu.Lock()
	version := st.cursor
	s.mu.Unlock()
	st.sendBookmarkAt(version, nil)
}

func (st *stream) sendBookmarkAt(version uint64, annotations map[string]string) {
	kind := st.request.kind
	obj := kind.empty()
	obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	obj.SetResourceVersion(strconv.FormatUint(version, 10))
	if annotations != nil {
		obj.SetAnnotations(annotations)
	}
	st.sendObject(watch.Bookmark, &record{kind: kind, obj: obj})
}

// untilBookmark returns the time until the next bookmark. It is not positive after the last one.
func (st *stream) untilBookmark() time.Duration {
	return min(time.Until(st.deadline)-finalBookmark, bookmarkInterval)
}

// fail sends an error, and ends the watch.
func (st *stream) fail(err error) {
	text, encodeErr := st.request.server.codecs.encode(statusOf(err), st.request.out.media)
	st.frame(watch.Error, text, encodeErr)
	st.ended = true
}

// frame writes an event with an encoded object into the buffer. An object that cannot be encoded ends the watch.
func (st *stream) frame(kind watch.EventType, text []byte, err error) {
	if err == nil {
		err = st.writeFrame(kind, text)
	}
	if err != nil {
		st.ended = true
	}
}

func (st *stream) writeFrame(kind watch.EventType, text []byte) error {
	switch st.request.out.media {
	case mediaJSON:
		fmt.Fprintf(&st.buffer, `{"type":%q,"object":`, kind)
		st.buffer.Write(bytes.TrimSuffix(text, []byte("\n")))
		st.buffer.WriteString("}\n")
		return nil
	case mediaProtobuf:
		var frame bytes.Buffer
		e := &metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: text}}
		if err := st.request.server.codecs.rawProtobuf.Encode(e, &frame); err != nil {
			return fmt.Errorf("encode a watch event: %w", err)
		}
		st.buffer.Write(binary.BigEndian.AppendUint32(nil, uint32(frame.Len())))
		st.buffer.Write(frame.Bytes())
		return nil
	}
	return errors.New("watches are sent as JSON or protobuf")
}
