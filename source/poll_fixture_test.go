package source_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source"
)

// outside is a Poller of items outside the cluster.
type outside struct {
	mu    sync.Mutex
	items []source.Item
	err   error
	hold  time.Duration // duration of a poll
	times []time.Duration
	since time.Time
}

func (o *outside) set(items ...source.Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.items, o.err = items, nil
}

func (o *outside) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// Poll implements source.Poller. It returns the items with the error too: the source must ignore them then.
func (o *outside) Poll(ctx context.Context, _ any) (source.PollResult, error) {
	o.mu.Lock()
	o.times = append(o.times, time.Since(o.since))
	hold := o.hold
	o.mu.Unlock()
	select {
	case <-time.After(hold):
	case <-ctx.Done():
		return source.PollResult{}, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return source.PollResult{Items: slices.Clone(o.items)}, o.err
}

// polled returns when each poll began, in minutes since the start.
func (o *outside) polled() (minutes []float64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, at := range o.times {
		minutes = append(minutes, at.Minutes())
	}
	return minutes
}

func item(id, version string, keys ...kube.Key) source.Item {
	return source.Item{ID: id, Version: version, Keys: keys}
}

// triggers collects what a poll has enqueued.
type triggers struct {
	mu  sync.Mutex
	all []string
	// asked is how often a Trigger with All was enqueued.
	asked int
}

func (q *triggers) add(key kube.Key, why controller.Trigger) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if why.All {
		q.asked++
		return
	}
	line := fmt.Sprintf("%s: %s %s", key, why.Type, why.Detail)
	if why.Type == controller.CauseListed {
		line += " (low)"
	}
	if !why.FromList {
		line += " (as an event)"
	}
	q.all = append(q.all, line)
}

// expect compares what was enqueued since the last call, after all goroutines are idle.
func (q *triggers) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	slices.Sort(q.all)
	if diff := cmp.Diff(want, q.all); diff != "" {
		t.Errorf("enqueued (-want +got):\n%s", diff)
	}
	q.all = nil
}

// runPoll creates a source and runs it until stop. Unless the config sets them, it has no jitter and no log.
func runPoll(t *testing.T, c source.PollConfig) (s *source.PollSource, q *triggers, stop func()) {
	t.Helper()
	if c.Name == "" {
		c.Name = "outside"
	}
	if c.Jitter == 0 {
		c.Jitter = -1
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if o, ok := c.Poller.(*outside); ok {
		o.since = time.Now()
	}
	s = source.Poll(c)
	q, stop = rerun(t, s)
	return s, q, stop
}

func rerun(t *testing.T, s *source.PollSource) (q *triggers, stop func()) {
	t.Helper()
	q = &triggers{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, q.add) }() // waited for by stop
	return q, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v; the end of its context is no failure", err)
		}
	}
}

// ready compares the error of Ready; "" means nil.
func ready(t *testing.T, s *source.PollSource, want string) {
	t.Helper()
	synctest.Wait()
	if err := s.Ready(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("Ready: %v; want %q in it", err, want)
	}
}

// pollerFunc is a function that implements source.Poller.
type pollerFunc func(ctx context.Context, token any) (source.PollResult, error)

func (f pollerFunc) Poll(ctx context.Context, token any) (source.PollResult, error) {
	return f(ctx, token)
}

// site is an HTTP server in memory.
type site struct {
	mu      sync.Mutex
	answer  func(*http.Request) reply
	request *http.Request // the last request
}

// does sets the function that answers requests.
func (s *site) does(answer func(*http.Request) reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// says sets the response to all requests: a status, a body and headers ("name: value").
func (s *site) says(status int, body string, headers ...string) {
	s.does(func(*http.Request) reply { return reply{status: status, body: body, headers: headers} })
}

// reply is a response of a site.
type reply struct {
	status  int
	body    string
	headers []string // "name: value"
	err     error    // instead of a response; with a status, the error after the body
}

// RoundTrip implements http.RoundTripper.
func (s *site) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.request = request
	answer := s.answer
	s.mu.Unlock()
	r := answer(request)
	if r.status == 0 {
		return nil, r.err
	}
	response := &http.Response{StatusCode: r.status, Header: http.Header{}, ContentLength: -1, Request: request}
	for _, header := range r.headers {
		name, value, _ := strings.Cut(header, ": ")
		response.Header.Set(name, value)
	}
	body := io.Reader(strings.NewReader(r.body))
	if r.err != nil {
		body = io.MultiReader(body, iotest.ErrReader(r.err))
	}
	response.Body = io.NopCloser(body)
	return response, nil
}

// conditions returns the conditions of the last request.
func (s *site) conditions() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(s.request.Header.Get("If-None-Match") + " " + s.request.Header.Get("If-Modified-Since"))
}

const (
	secretURL = "https://user:password@example.com/policy?token=secret#part"
	shownURL  = "https://example.com/policy"
)

// runHTTP polls a site every minute.
func runHTTP(t *testing.T, web *site, c source.HTTPConfig) (s *source.PollSource, q *triggers, stop func()) {
	t.Helper()
	c.URL = secretURL
	c.Client = &http.Client{Transport: web}
	if c.Keys == nil {
		c.Keys = []kube.Key{key("a")}
	}
	return runPoll(t, source.PollConfig{Poller: source.HTTP(c)})
}
