package apiserver

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

const (
	// writeSize is how much is written at once.
	writeSize = 64 << 10
	// bookmarkInterval is how often a watch gets a bookmark; kube-apiserver's is about this.
	bookmarkInterval = time.Minute
	// watchTimeout is how long a watch lasts that does not say.
	watchTimeout = time.Hour
)

// list answers a list. As in kube-apiserver, limit does not count for resourceVersion 0.
func list(w http.ResponseWriter, c *corpus, query url.Values) {
	objects, version := c.snapshot()
	from, limit := 0, len(objects)
	if query.Get("resourceVersion") != "0" && query.Get("limit") != "" {
		var err error
		if limit, err = strconv.Atoi(query.Get("limit")); err != nil || limit <= 0 {
			limit = len(objects)
		}
		if from, err = position(query.Get("continue")); err != nil || from > len(objects) {
			fail(w, http.StatusGone, metav1.StatusReasonExpired, "the continue token is not known")
			return
		}
	}
	to, next := min(from+limit, len(objects)), ""
	if to < len(objects) {
		next = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(to)))
	}
	items := objects[from:to]
	w.Header().Set("Content-Type", c.format.contentType(false))
	b := make([]byte, 0, 2*writeSize)
	b = append(b, c.maker.listHead(c.format, version, next, items)...)
	for i, item := range items {
		b = appendItem(b, c.format, i, item)
		if len(b) >= writeSize {
			if _, err := w.Write(b); err != nil {
				return
			}
			b = b[:0]
		}
	}
	_, _ = w.Write(append(b, listTail(c.format)...)) // a client that went away says so itself
}

func position(token string) (int, error) {
	if token == "" {
		return 0, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// watcher writes the events of one watch.
type watcher struct {
	c       *corpus
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  []byte
}

// watchFrom answers a watch: first all objects when the client wants them (a streamed list, or
// resourceVersion 0), then what changes.
func watchFrom(w http.ResponseWriter, r *http.Request, c *corpus, query url.Values) {
	var version uint64
	if text := query.Get("resourceVersion"); text != "" {
		var err error
		if version, err = strconv.ParseUint(text, 10, 64); err != nil {
			fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
	}
	timeout := watchTimeout
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	w.Header().Set("Content-Type", c.format.contentType(true))
	w.WriteHeader(http.StatusOK)
	x := &watcher{c: c, w: w, control: http.NewResponseController(w), buffer: make([]byte, 0, 2*writeSize)}
	bookmarks := isTrue(query, "allowWatchBookmarks")
	initial := isTrue(query, "sendInitialEvents")
	if initial || version == 0 {
		var err error
		if version, err = x.sendAll(initial && bookmarks); err != nil {
			return
		}
	} else if err := x.flush(); err != nil { // the header: the watch is established
		return
	}
	x.follow(r, version, bookmarks, timeout)
}

// sendAll sends every object as added.
func (x *watcher) sendAll(mark bool) (version uint64, err error) {
	objects, version := x.c.snapshot()
	for _, object := range objects {
		if err := x.add("ADDED", object); err != nil {
			return 0, err
		}
	}
	if mark {
		if err := x.bookmark(version, true); err != nil {
			return 0, err
		}
	}
	return version, x.flush()
}

// follow sends what changes after version until the client goes or the timeout has passed.
func (x *watcher) follow(r *http.Request, version uint64, bookmarks bool, timeout time.Duration) {
	end := time.NewTimer(timeout)
	defer end.Stop()
	ticker := time.NewTicker(bookmarkInterval)
	defer ticker.Stop()
	for {
		changes, wake, known := x.c.after(version)
		if !known {
			x.expired()
			return
		}
		for _, change := range changes {
			if err := x.send(change); err != nil {
				return
			}
			version = change.version
		}
		if err := x.flush(); err != nil {
			return
		}
		select {
		case <-wake:
		case <-ticker.C:
			if bookmarks && x.bookmark(version, false) != nil {
				return
			}
		case <-end.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// send adds a change, stamped with the time: it is written at once when it is the only one.
func (x *watcher) send(c change) error {
	before := len(x.buffer)
	var at int
	x.buffer, at = x.c.maker.appendEvent(x.buffer, x.c.format, "MODIFIED", c.object)
	stamp := x.buffer[at+c.stamp : at+c.stamp+probe.StampWidth]
	copy(stamp, fmt.Sprintf("%0*d", probe.StampWidth, time.Now().UnixNano()))
	if before > writeSize {
		return x.write()
	}
	return nil
}

func (x *watcher) add(event string, object []byte) error {
	x.buffer, _ = x.c.maker.appendEvent(x.buffer, x.c.format, event, object)
	if len(x.buffer) > writeSize {
		return x.write()
	}
	return nil
}

func (x *watcher) bookmark(version uint64, initialEventsEnd bool) error {
	object, err := x.c.bookmark(version, initialEventsEnd)
	if err != nil {
		return err
	}
	return x.add("BOOKMARK", object)
}

// expired is the error for a version that is too old: the client must list again.
func (x *watcher) expired() {
	status := failure(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
	object, err := encode(status, x.c.format)
	if err != nil {
		return
	}
	x.buffer, _ = typeOf{apiVersion: "v1", kind: "Status"}.appendEvent(x.buffer, x.c.format, "ERROR", object)
	_ = x.flush() // the watch ends in any case
}

func (x *watcher) write() error {
	_, err := x.w.Write(x.buffer)
	x.buffer = x.buffer[:0]
	return err
}

func (x *watcher) flush() error {
	if err := x.write(); err != nil {
		return err
	}
	return x.control.Flush()
}
