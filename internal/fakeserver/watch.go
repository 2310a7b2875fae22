package fakeserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarks is the interval between two bookmarks of a watch.
const bookmarks = time.Minute

// watcher is one watch.
type watcher struct {
	server    *Server
	request   request
	resources *resources
	selected  func(*unstructured.Unstructured) bool
	out       *io.PipeWriter
	next      int // the last version that was checked
	watches   int // resources.watches when the watch began
	ended     bool
	bookmark  bool // a bookmark is due
}

// watch responds to a watch request. mu must be held.
func (s *Server) watch(r request) *http.Response {
	query := r.URL.Query()
	selected, err := r.selection()
	if err != nil {
		return failure(apierrors.NewBadRequest(err.Error()))
	}
	in, out := io.Pipe()
	w := &watcher{server: s, request: r, resources: r.resources, selected: selected, out: out, next: s.version, watches: r.resources.watches}
	var first []any
	switch from, err := strconv.Atoi(query.Get("resourceVersion")); {
	case query.Get("sendInitialEvents") == "true" && err == nil && from > s.version:
		first, w.ended = []any{w.failure(tooLarge())}, true
	case query.Get("sendInitialEvents") == "true":
		for _, obj := range r.resources.objects {
			if selected(obj) {
				first = append(first, w.event(watch.Added, r.shown(obj.Object)))
			}
		}
		first = append(first, w.mark(map[string]any{metav1.InitialEventsAnnotationKey: "true"}))
	case err != nil || from < s.oldest:
		first, w.ended = []any{w.failure(apierrors.NewResourceExpired("too old resource version"))}, true
	default:
		// The version may also be in the future. The watch cache of kube-apiserver accepts that, and sends nothing up
		// to that version.
		w.next = from
	}
	s.open++
	stop := context.AfterFunc(r.Context(), w.end)
	ticker := time.AfterFunc(bookmarks, w.dueBookmark)
	go func() { // ends when the client closes the body, or its context ends
		defer stop()
		defer ticker.Stop()
		w.pump(first, ticker)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
	}()
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		Header: http.Header{"Content-Type": {"application/json;stream=watch"}}, Body: closing{in, w.end},
	}
}

// closing is the body of a watch. Closing it ends the watch.
type closing struct {
	*io.PipeReader
	end func()
}

func (c closing) Close() error {
	c.end()
	return c.PipeReader.Close()
}

func (w *watcher) end() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.ended = true
	w.server.changed.Broadcast()
}

func (w *watcher) dueBookmark() {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	w.bookmark = true
	w.server.changed.Broadcast()
}

func (w *watcher) pump(first []any, ticker *time.Timer) {
	defer func() { _ = w.out.Close() }() // never fails
	encoder := json.NewEncoder(w.out)
	for _, e := range first {
		if encoder.Encode(e) != nil {
			return
		}
	}
	for {
		e, ok := w.wait(ticker)
		if !ok || encoder.Encode(e) != nil {
			return
		}
	}
}

// wait blocks for the next event.
func (w *watcher) wait(ticker *time.Timer) (any, bool) {
	s := w.server
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if w.ended || w.watches != w.resources.watches {
			return nil, false
		}
		for _, e := range w.resources.history {
			if e.version <= w.next || w.resources.held > 0 && e.version > w.resources.held {
				continue
			}
			w.next = e.version
			if w.selected(e.object) {
				return w.event(e.kind, w.request.shown(e.object.Object)), true
			}
			if e.kind == watch.Modified { // the object may have left the selection
				return w.event(watch.Deleted, w.request.shown(e.object.Object)), true
			}
		}
		if w.bookmark {
			w.bookmark = false
			ticker.Reset(bookmarks)
			if w.resources.held == 0 && s.version >= w.next {
				w.next = s.version
				return w.mark(nil), true
			}
		}
		s.changed.Wait()
	}
}

// failure returns the event that ends a watch with an error.
func (w *watcher) failure(err *apierrors.StatusError) any {
	status := err.ErrStatus
	status.Kind, status.APIVersion = "Status", "v1"
	return map[string]any{"type": watch.Error, "object": status}
}

func (w *watcher) event(kind watch.EventType, obj map[string]any) any {
	return map[string]any{"type": kind, "object": obj}
}

func (w *watcher) mark(annotations map[string]any) any {
	meta := map[string]any{"resourceVersion": fmt.Sprint(w.next)}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	kind := w.resources.kind.GroupVersionKind
	if w.request.metadataOnly() {
		kind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	return w.event(watch.Bookmark, map[string]any{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind, "metadata": meta})
}
