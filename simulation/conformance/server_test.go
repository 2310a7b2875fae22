package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// server is one of the two compared API servers.
type server struct {
	name   string
	client *http.Client
	base   string
	// delayed is true if the server changes what it serves after the response to a write of a definition.
	delayed bool
	// initializing is the number of responses of a storage that was not ready.
	initializing int
	// expire removes the history, so that older versions cannot be read any more. Nil if that is impossible.
	expire func() error
}

// result is a response.
type result struct {
	code     int
	media    string
	warnings []string
	body     string
}

// send makes a request. A failure of the connection is a result with code 0. It repeats the request while the storage of the
// resource is not ready, like other clients.
func (s *server) send(ctx context.Context, method, path, body string, header map[string]string) result {
	for {
		res := s.sendOnce(ctx, method, path, body, header)
		if !s.wait(res) {
			return res
		}
	}
}

// wait reports whether a request has to be repeated, and waits until then. The real server creates the storage of a custom
// resource at the first request after a change of its definition.
func (s *server) wait(res result) bool {
	if !s.delayed || res.code != http.StatusTooManyRequests || !strings.Contains(res.body, "storage is (re)initializing") {
		return false
	}
	s.initializing++
	time.Sleep(20 * time.Millisecond)
	return true
}

func (s *server) sendOnce(ctx context.Context, method, path, body string, header map[string]string) result {
	req, err := s.request(ctx, method, path, body, header)
	if err != nil {
		return result{body: err.Error()}
	}
	res, err := s.client.Do(req)
	if err != nil {
		return result{body: err.Error()}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return result{body: err.Error()}
	}
	return result{code: res.StatusCode, media: res.Header.Get("Content-Type"), warnings: res.Header.Values("Warning"), body: string(text)}
}

func (s *server) request(ctx context.Context, method, path, body string, header map[string]string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.base+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "conformance")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	return req, nil
}

// endAnnotation marks the write after which a watch is not read any more.
const endAnnotation = "conformance-end"

// openWatch is a watch whose events are read until the end of its sequence.
type openWatch struct {
	result result // without the events
	from   string // the version of the list that the watch begins with, or ""
	events chan json.RawMessage
	cancel context.CancelFunc
	ended  chan struct{}
}

// watch opens a watch and reads its events in a goroutine.
func (s *server) watch(ctx context.Context, path string, header map[string]string) *openWatch {
	for {
		w := s.watchOnce(ctx, path, header)
		if !s.wait(w.result) {
			return w
		}
		w.cancel()
	}
}

func (s *server) watchOnce(ctx context.Context, path string, header map[string]string) *openWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &openWatch{events: make(chan json.RawMessage, 10_000), cancel: cancel, ended: make(chan struct{})}
	req, err := s.request(ctx, http.MethodGet, path, "", header)
	var res *http.Response
	if err == nil {
		res, err = s.client.Do(req) //nolint:bodyclose // closed by the goroutine below
	}
	switch {
	case err != nil:
		w.result.body = err.Error()
		fallthrough
	case res.StatusCode != http.StatusOK:
		if res != nil {
			text, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			w.result = result{code: res.StatusCode, media: res.Header.Get("Content-Type"), body: string(text)}
		}
		close(w.events)
		close(w.ended)
		return w
	}
	w.result = result{code: res.StatusCode, media: res.Header.Get("Content-Type")}
	go func() { // ends with the watch; waited for by stop
		defer close(w.ended)
		defer close(w.events)
		defer res.Body.Close()
		if isProtobuf(w.result.media) {
			protobufEvents(res.Body, w.events)
			return
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			w.events <- json.RawMessage(strings.Clone(lines.Text()))
		}
	}()
	return w
}

// isBookmark reports whether an event is a bookmark other than the one after the initial events. The server chooses when
// it sends one.
func isBookmark(event json.RawMessage) bool {
	text := string(event)
	return strings.Contains(text, `"BOOKMARK"`) && !strings.Contains(text, "initial-events-end")
}

// maxWatchDelay is how long a watch may take to show an event before it counts as missing.
const maxWatchDelay = 30 * time.Second

// stop reads events until the one that ends the sequence, and closes the watch.
func (w *openWatch) stop() (events []json.RawMessage, problem string) {
	defer func() { w.cancel(); <-w.ended }()
	timeout := time.NewTimer(maxWatchDelay)
	defer timeout.Stop()
	for {
		select {
		case e, more := <-w.events:
			if !more {
				return events, ""
			}
			if strings.Contains(string(e), `"`+endAnnotation+`":"`) {
				return events, ""
			}
			events = append(events, e)
		case <-timeout.C:
			return events, fmt.Sprintf("the write at the end of the sequence was not seen after %d events", len(events))
		}
	}
}
