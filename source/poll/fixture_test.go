package poll_test

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
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/internal/apitest/kindserver"
	"github.com/evenkeel-go/evenkeel/internal/testlog"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/source/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type configMap = *corev1.ConfigMap

func newServer() *kindserver.Server[configMap] {
	return kindserver.New[configMap](apiserver.ConfigMaps(), true)
}

func child(name string) configMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
}

func key(name string) kube.Key { return kube.Key{Namespace: "ns", Name: name} }

// logBuffer collects what a source logs.
type logBuffer struct{ testlog.Buffer }

func (b *logBuffer) logger() *slog.Logger { return b.Logger(nil) }

// newInformer returns an informer of a server's objects.
func newInformer(t *testing.T, server informer.Retriever[configMap]) *informer.Informer[configMap] {
	t.Helper()
	objects, err := informer.New(informer.Config[configMap]{Name: "children", Retriever: server, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// target is the controller that sources are prepared for. Its logger writes to logs, if any.
func target(logs ...*logBuffer) controller.Target {
	t := controller.Target{Controller: "test", Logger: slog.New(slog.DiscardHandler)}
	if len(logs) > 0 {
		t.Logger = logs[0].logger()
	}
	return t
}

func prepare(t *testing.T, s *poll.Source) controller.PreparedSource {
	t.Helper()
	prepared, err := s.Prepare(target())
	if err != nil {
		t.Fatal(err)
	}
	return prepared
}

// run prepares a source and runs it until ctx ends, as a controller does.
func run(ctx context.Context, s *poll.Source, enqueue controller.Enqueue, logs ...*logBuffer) error {
	prepared, err := s.Prepare(target(logs...))
	if err != nil {
		return err
	}
	proceed, err := prepared.Start(ctx, enqueue)
	if err != nil {
		return err
	}
	return proceed()
}

// validate returns the mistakes in a source.
func validate(s *poll.Source) error {
	_, err := s.Prepare(target())
	return err
}

// outside is a Poller of items outside the cluster.
type outside struct {
	mu    sync.Mutex
	items []poll.Item
	err   error
	hold  time.Duration // duration of a poll
	times []time.Duration
	since time.Time
}

func (o *outside) set(items ...poll.Item) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.items, o.err = items, nil
}

func (o *outside) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = err
}

// Poll implements poll.Poller. It returns the items with the error too: the source must ignore them then.
func (o *outside) Poll(ctx context.Context, _ any) (poll.Result, error) {
	o.mu.Lock()
	o.times = append(o.times, time.Since(o.since))
	hold := o.hold
	o.mu.Unlock()
	select {
	case <-time.After(hold):
	case <-ctx.Done():
		return poll.Result{}, ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return poll.Result{Items: slices.Clone(o.items)}, o.err
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

func item(id, version string, keys ...kube.Key) poll.Item {
	return poll.Item{ID: id, Version: version, Keys: keys}
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
func runPoll(t *testing.T, c poll.Config, logs ...*logBuffer) (s *poll.Source, q *triggers, stop func()) {
	t.Helper()
	if c.Name == "" {
		c.Name = "outside"
	}
	if c.Jitter == 0 {
		c.Jitter = -1
	}
	if o, ok := c.Poller.(*outside); ok {
		o.since = time.Now()
	}
	s = poll.New(c)
	q, stop = rerun(t, s, logs...)
	return s, q, stop
}

func rerun(t *testing.T, s *poll.Source, logs ...*logBuffer) (q *triggers, stop func()) {
	t.Helper()
	q = &triggers{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, s, q.add, logs...) }() // waited for by stop
	return q, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v; the end of its context is no failure", err)
		}
	}
}

// ready compares the error of Ready; "" means nil.
func ready(t *testing.T, s *poll.Source, want string) {
	t.Helper()
	synctest.Wait()
	if err := s.Ready(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("Ready: %v; want %q in it", err, want)
	}
}

// pollerFunc is a function that implements poll.Poller.
type pollerFunc func(ctx context.Context, token any) (poll.Result, error)

func (f pollerFunc) Poll(ctx context.Context, token any) (poll.Result, error) {
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
func runHTTP(t *testing.T, web *site, c poll.HTTPConfig) (s *poll.Source, q *triggers, stop func()) {
	t.Helper()
	c.URL = secretURL
	c.Client = &http.Client{Transport: web}
	if c.Keys == nil {
		c.Keys = []kube.Key{key("a")}
	}
	return runPoll(t, poll.Config{Poller: poll.HTTP(c)})
}
