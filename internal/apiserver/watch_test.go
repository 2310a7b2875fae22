package apiserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// openWatch opens a watch and returns its lines. The watch ends with the context.
func openWatch(tb testing.TB, ctx context.Context, s *Server, path string) (*bufio.Reader, io.Closer) { //nolint:revive // tb comes first, as in all helpers
	tb.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://apiserver.invalid"+path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	res, err := s.Transport().RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	return bufio.NewReader(res.Body), res.Body
}

func nextEvent(tb testing.TB, r *bufio.Reader, wants ...string) {
	tb.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		tb.Fatal(err)
	}
	for _, want := range wants {
		if !strings.Contains(line, want) {
			tb.Errorf("event %s, want %s", line, want)
		}
	}
}

// A watch from a version like "00" gets the objects that exist, without a bookmark after them, unless it refuses them.
func TestWatchFromZeros(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	putObjects(t, s, 1)
	initial, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&resourceVersion=00&allowWatchBookmarks=true")
	defer body.Close()
	none, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&resourceVersion=00&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=false")
	defer body.Close()
	mustSend(t, s, "POST", configMapsPath, `{"metadata":{"name":"later"}}`)
	nextEvent(t, initial, "ADDED", "cm-0000")
	nextEvent(t, initial, "ADDED", "later")
	nextEvent(t, none, "ADDED", "later")
}

// A client does not need to close a watch that it has read to the end.
func TestEndedWatchIsNotOpen(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *Server, cancel func()){
		"timeout":       func(*Server, func()) {},
		"server":        func(s *Server, _ func()) { s.CloseWatches() },
		"context":       func(_ *Server, cancel func()) { cancel() },
		"failure (410)": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				path := configMapsPath + "?watch=true&timeoutSeconds=60"
				if end == nil {
					putObjects(t, s, 1)
					s.Compact()
					path += "&resourceVersion=1"
				}
				events, body := openWatch(t, ctx, s, path)
				if s.OpenWatches() != 1 {
					t.Errorf("%d open watches, want 1", s.OpenWatches())
				}
				if end != nil {
					end(s, cancel)
				}
				text, err := io.ReadAll(events)
				if (err != nil) != (name == "context") {
					t.Errorf("read %s, %v", text, err)
				}
				if s.OpenWatches() != 0 {
					t.Errorf("%d open watches after %v, want 0", s.OpenWatches(), err)
				}
				if n, repeatedErr := events.Read(make([]byte, 1)); n != 0 || repeatedErr == nil {
					t.Errorf("the next read returned %d bytes and %v", n, repeatedErr)
				}
				if err := body.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestWatchEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		ctx, cancel := context.WithCancel(t.Context())
		events, body := openWatch(t, ctx, s, configMapsPath+"?watch=true")
		defer body.Close()
		ended := make(chan error)
		go func() { // waited for below
			_, err := events.ReadString('\n')
			ended <- err
		}()
		synctest.Wait()
		cancel()
		putObjects(t, s, 1) // too late
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v, want the context's error", err)
		}
	})
}

func TestWatchEndsAfterTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		start := time.Now()
		if text := mustSend(t, s, "GET", configMapsPath+"?watch=true&timeoutSeconds=90&allowWatchBookmarks=true&resourceVersion=1000", ""); strings.Count(text, "BOOKMARK") != 2 {
			t.Errorf("%s, want a bookmark after a minute and one before the end", text)
		}
		if took := time.Since(start); took != 90*time.Second {
			t.Errorf("the watch ended after %s, want 90s", took)
		}
		mustSend(t, s, "GET", configMapsPath+"?watch=true", "")
		if took := time.Since(start) - 90*time.Second; took < minWatchTimeout || took > 2*minWatchTimeout {
			t.Errorf("a watch without timeoutSeconds ended after %s", took)
		}
	})
}

// Open watches survive a compaction of the events that they have not sent, and end with CloseWatches.
func TestWatchDuringCompaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		events, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&resourceVersion=1000")
		defer body.Close()
		putObjects(t, s, 2)
		s.Compact()
		putObjects(t, s.Fork(), 0)
		mustSend(t, s, "DELETE", configMapsPath+"/cm-0000", "")
		nextEvent(t, events, `"ADDED"`, "cm-0000")
		nextEvent(t, events, `"ADDED"`, "cm-0001")
		nextEvent(t, events, `"DELETED"`, "cm-0000", `"resourceVersion":"1003"`)
		s.CloseWatches()
		if line, err := events.ReadString('\n'); err != io.EOF {
			t.Errorf("%q %v after CloseWatches, want EOF", line, err)
		}
	})
}

// An object that leaves the selection is DELETED with its last selected state, and ADDED when it comes back.
func TestWatchOfSelection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		events, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&labelSelector=app%3Dweb")
		defer body.Close()
		patch := func(labels string) {
			mustSend(t, s, "PATCH", configMapsPath+"/cm-0000", `{"metadata":{"labels":`+labels+`}}`, "Content-Type", "application/merge-patch+json")
		}
		putObjects(t, s, 1)
		patch(`{"app":"db"}`)
		patch(`{"other":"x"}`)
		patch(`{"app":"web"}`)
		nextEvent(t, events, `"ADDED"`)
		nextEvent(t, events, `"DELETED"`, `"app":"web"`, `"resourceVersion":"1002"`)
		nextEvent(t, events, `"ADDED"`, `"resourceVersion":"1004"`)
	})
}

// Over a real connection, the handler streams events.
func TestWatchOverListener(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	listener := httptest.NewServer(s)
	defer listener.Close()
	defer listener.Client().CloseIdleConnections()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, listener.URL+configMapsPath+"?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := listener.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	putObjects(t, s, 2)
	events := bufio.NewReader(res.Body)
	nextEvent(t, events, `"ADDED"`, "cm-0000")
	nextEvent(t, events, `"ADDED"`, "cm-0001")
}

// Readers, writers and compactions run at once; each watch gets every version once, in order.
func TestConcurrentWatches(t *testing.T) {
	t.Parallel()
	const writes, watches = 300, 4
	s := newServer(t, func(c *Config) { c.History = 10 })
	ended := make(chan string, watches)
	for range watches {
		events, body := openWatch(t, t.Context(), s, configMapsPath+"?watch=true&resourceVersion=1000")
		go func() { // waited for below
			defer body.Close()
			for i := range writes {
				line, err := events.ReadString('\n')
				if err != nil || !strings.Contains(line, `"cm-`+pad(i)+`"`) {
					ended <- line
					return
				}
			}
			ended <- ""
		}()
	}
	putObjects(t, s, writes)
	for range watches {
		if problem := <-ended; problem != "" {
			t.Errorf("unexpected event %s", problem)
		}
	}
}

func pad(i int) string {
	return string([]byte{'0', byte('0' + i/100), byte('0' + i/10%10), byte('0' + i%10)})
}
