package apiserver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// minWatchTimeout is the time after which the server ends a watch, plus up to as much at random, unless the request
	// has timeoutSeconds.
	minWatchTimeout = 30 * time.Minute
	// bookmarkInterval is the time between bookmarks, and finalBookmark the time before the end of a watch when it gets
	// the last one.
	bookmarkInterval = time.Minute
	finalBookmark    = 2 * time.Second
	// minConversionBackoff and maxConversionBackoff limit the time between two attempts to convert the object of an
	// event.
	minConversionBackoff = time.Second
	maxConversionBackoff = 30 * time.Second
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
	initial, at, problem := st.begin(options, version)
	switch send := options.SendInitialEvents; {
	case problem != nil:
		st.fail(problem)
	case st.sendInitial(initial) && st.bookmarks && send != nil && *send:
		st.sendBookmark(at, map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	res := newResponse(http.StatusOK, r.out.media, nil)
	if r.out.media != mediaJSON {
		res.header.Set("Content-Type", string(r.out.media)+";stream=watch")
	}
	res.stream = st
	return res, nil
}

// begin sets the limits of a watch and the version after which it begins. It returns the objects that a watch with
// initial events sends first, with their version, or the error that ends the watch at once.
func (st *stream) begin(options internalversion.ListOptions, version uint64) (initial []*record, at uint64, err error) {
	s, t := st.request.server, st.request.table
	s.mu.Lock()
	defer s.mu.Unlock()
	timeout := minWatchTimeout + time.Duration(s.timeouts.Uint64()%uint64(minWatchTimeout))
	if seconds := options.TimeoutSeconds; seconds != nil && *seconds > 0 {
		timeout = time.Duration(*seconds) * time.Second
	}
	st.deadline = time.Now().Add(timeout)
	st.timeout = time.NewTimer(timeout)
	if next := st.untilBookmark(); options.AllowWatchBookmarks && next > 0 {
		st.bookmark = time.NewTimer(next)
	}
	st.generation = st.request.generation
	st.cursor = s.version
	if t.streams == nil {
		t.streams = map[*stream]struct{}{}
	}
	t.streams[st] = struct{}{}
	switch send := options.SendInitialEvents; {
	case send != nil && *send && version > s.version:
		return nil, 0, tooLarge(version, s.version)
	case send != nil && *send, send == nil && version == 0: // a version like "00" has no default for the initial events
		return t.snapshot(), s.version, nil
	case version == 0: // from now on
	case version < t.compacted:
		if st.request.kind.Uncached {
			return nil, 0, apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old.")
		}
		return nil, 0, tooOld(version, t.compacted)
	default:
		st.cursor = version
	}
	return nil, 0, nil
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
	backoff    time.Duration    // after the latest failed conversion
	retry      <-chan time.Time // of a failed conversion

	// cursor is the version up to which events were taken; it can be in the future. backlog contains taken events that
	// were not sent, because they left the history before. bookmarkDue is set by SendBookmarks. Guarded by Server.mu.
	cursor      uint64
	backlog     []event
	bookmarkDue bool
}

// Read returns the next events, and waits for one if there is none. It returns io.EOF after the time of the watch, and
// when the server ended it. After an error the watch is not open any more.
func (st *stream) Read(p []byte) (int, error) {
	n, err := st.read(p)
	if err != nil {
		st.release()
	}
	return n, err
}

func (st *stream) read(p []byte) (int, error) {
	for {
		select {
		case <-st.closed:
			return 0, http.ErrBodyReadAfterClose
		case <-st.done: // before the events, so that the result of a write after the end of the context is not random
			return 0, st.cause()
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
		case <-st.retry:
		case <-bookmark:
			st.requestBookmark()
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
		st.release()
	})
	return nil
}

// release removes the watch from the open ones, and stops its timers.
func (st *stream) release() {
	st.timeout.Stop()
	if st.bookmark != nil {
		st.bookmark.Stop()
	}
	s := st.request.server
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(st.request.table.streams, st)
}

// requestBookmark makes the next take send a bookmark.
func (st *stream) requestBookmark() {
	s := st.request.server
	s.mu.Lock()
	defer s.mu.Unlock()
	st.bookmarkDue = true
}

// take encodes the events after the cursor into the buffer, and a bookmark if one is due. It returns a channel that is
// closed at the next event. When the server has ended the watch, its client gets no further events. A watch from a
// version in the future gets no bookmark until that version exists, and a held watch gets none.
func (st *stream) take() <-chan struct{} {
	s, t := st.request.server, st.request.table
	s.mu.Lock()
	if t.closed != st.generation {
		s.mu.Unlock()
		st.ended = true
		return nil
	}
	events, version := st.pending(), st.cursor
	bookmark := st.bookmarkDue && version <= s.version && t.held == nil
	st.bookmarkDue = false
	wait := t.wait()
	s.mu.Unlock()
	for i, e := range events {
		err := st.send(e)
		switch {
		case err != nil && st.request.kind.External:
			st.delay(events[i:])
			return wait
		case err != nil:
			st.fail(err)
		}
		if st.ended { // nothing follows an error
			return nil
		}
	}
	st.backoff = 0
	if bookmark {
		st.sendBookmark(version, nil)
	}
	return wait
}

// delay makes the watch send events later, because an External kind failed to convert the first one. The real server
// does the same: its watch cache watches again from the latest version that it has, with a backoff.
func (st *stream) delay(events []event) {
	st.backoff = min(max(2*st.backoff, minConversionBackoff), maxConversionBackoff)
	st.retry = time.After(st.backoff)
	s := st.request.server
	s.mu.Lock()
	defer s.mu.Unlock()
	st.backlog = append(slices.Clip(events), st.backlog...)
}

// send encodes an event if its object was selected before or after it. Error: the object cannot be converted to the
// version of the watch.
func (st *stream) send(e event) error {
	if st.selected.name != "" && e.record.obj.GetName() != st.selected.name || st.selected.namespace != "" &&
		e.record.obj.GetNamespace() != st.selected.namespace {
		return nil
	}
	kind := st.request.kind
	var err error
	if e.record, err = e.record.as(kind); err != nil {
		return err
	}
	if e.old != nil && !st.selected.everything() {
		if e.old, err = e.old.as(kind); err != nil {
			return err
		}
	}
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
		last := e.old.obj.DeepCopyObject().(Object)
		last.SetResourceVersion(strconv.FormatUint(e.version, 10))
		st.sendObject(watch.Deleted, &record{kind: e.record.kind, key: e.record.key, version: e.version, obj: last})
	}
	return nil
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

// sendInitial sends the objects of a version. It reports whether all could be sent.
func (st *stream) sendInitial(records []*record) bool {
	for _, rec := range within(records, st.selected.namespace) {
		rec, err := rec.as(st.request.kind)
		if err != nil {
			st.fail(err)
			return false
		}
		if st.includes(rec) {
			st.sendObject(watch.Added, rec)
		}
	}
	return true
}

// sendBookmark sends a bookmark: the client has all events up to version.
func (st *stream) sendBookmark(version uint64, annotations map[string]string) {
	kind := st.request.kind
	obj := kind.empty()
	obj.GetObjectKind().SetGroupVersionKind(kind.GroupVersionKind)
	obj.SetResourceVersion(strconv.FormatUint(version, 10))
	if annotations != nil {
		obj.SetAnnotations(annotations)
	}
	if kind.Rules.Blank != nil {
		kind.Rules.Blank(obj)
	}
	st.sendObject(watch.Bookmark, &record{kind: kind, obj: obj})
}

// untilBookmark returns the time until the next bookmark. It is not positive after the last one.
func (st *stream) untilBookmark() time.Duration {
	return min(time.Until(st.deadline)-finalBookmark, bookmarkInterval)
}

// fail sends an error, and ends the watch.
func (st *stream) fail(err error) {
	text, encodeErr := st.request.serving.codecs.encode(statusOf(err), st.request.out.media)
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
		if err := st.request.serving.codecs.rawProtobuf.Encode(e, &frame); err != nil {
			return fmt.Errorf("encode a watch event: %w", err)
		}
		st.buffer.Write(binary.BigEndian.AppendUint32(nil, uint32(frame.Len())))
		st.buffer.Write(frame.Bytes())
		return nil
	}
	return errors.New("watches are sent as JSON or protobuf")
}
