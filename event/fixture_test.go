package event_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/event"
	"github.com/evenkeel-go/evenkeel/internal/testrun"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer stores Events in memory and rejects invalid ones as a real API server does. It is the transport of the
// clients, because a network would block virtual time.
type apiServer struct {
	// answer may answer a request. If it returns nil, the server handles the request.
	answer func(*http.Request) (*http.Response, error)
	start  time.Time

	mu       sync.Mutex
	events   map[string]*eventsv1.Event // guarded by mu; by namespace/name
	requests []string                   // guarded by mu; "12s POST"
}

func newAPIServer() *apiServer {
	return &apiServer{start: time.Now(), events: map[string]*eventsv1.Event{}}
}

// RoundTrip implements http.RoundTripper.
func (s *apiServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, fmt.Sprint(time.Since(s.start), " ", req.Method))
	s.mu.Unlock()
	if s.answer != nil {
		if resp, err := s.answer(req); resp != nil || err != nil {
			return resp, err
		}
	}
	return s.handle(req)
}

// failFor makes fail answer the requests of the first time d.
func (s *apiServer) failFor(d time.Duration, fail func(*http.Request) (*http.Response, error)) {
	s.answer = func(req *http.Request) (*http.Response, error) {
		if time.Since(s.start) < d {
			return fail(req)
		}
		return nil, nil //nolint:nilnil // the fake server answers
	}
}

// hang does not respond.
func hang(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// loseFirstResponse makes the server store the first request, call meanwhile, and drop the connection.
func (s *apiServer) loseFirstResponse(t *testing.T, meanwhile func()) {
	t.Helper()
	first := true
	s.answer = func(req *http.Request) (*http.Response, error) {
		if !first {
			return nil, nil //nolint:nilnil // the fake server answers
		}
		first = false
		if _, err := s.handle(req); err != nil {
			t.Error(err)
		}
		meanwhile()
		return nil, errRefused
	}
}

func (s *apiServer) handle(req *http.Request) (*http.Response, error) {
	path, ok := strings.CutPrefix(req.URL.Path, "/apis/events.k8s.io/v1/namespaces/")
	namespace, name, found := strings.Cut(path, "/events")
	body, err := io.ReadAll(req.Body)
	if !ok || !found || err != nil {
		return nil, fmt.Errorf("%s %s: unexpected: %w", req.Method, req.URL.Path, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch req.Method + " " + req.Header.Get("Content-Type") {
	case "POST application/json":
		e := &eventsv1.Event{}
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(e); err != nil {
			return nil, err
		}
		key := namespace + "/" + e.Name
		if problems := problemsOf(e, namespace); problems != "" {
			return status(apierrors.NewBadRequest(problems)), nil
		} else if s.events[key] != nil {
			return status(apierrors.NewAlreadyExists(resource(), e.Name)), nil
		}
		s.events[key] = e
		return reply(http.StatusCreated, e), nil
	case "PATCH application/merge-patch+json":
		e := s.events[namespace+name]
		if e == nil {
			return status(apierrors.NewNotFound(resource(), name)), nil
		}
		patch := struct{ Series *eventsv1.EventSeries }{}
		if err := json.Unmarshal(body, &patch); err != nil || patch.Series == nil || patch.Series.Count < 2 {
			return nil, fmt.Errorf("patch %s: unexpected: %w", body, err)
		}
		e.Series = patch.Series
		return reply(http.StatusOK, e), nil
	}
	return nil, fmt.Errorf("unexpected: %s, a %s", req.Method, req.Header.Get("Content-Type"))
}

func resource() schema.GroupResource {
	return schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
}

// problemsOf validates a new Event like Kubernetes.
func problemsOf(e *eventsv1.Event, namespace string) string {
	var problems []string
	check := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, problem)
		}
	}
	check(e.APIVersion == "events.k8s.io/v1" && e.Kind == "Event", "kind")
	check(e.Namespace == namespace && (e.Regarding.Namespace == namespace || e.Regarding.Namespace == "" && namespace == "default"), "namespace")
	check(validation.IsDNS1123Subdomain(e.Name) == nil, "name")
	check(!e.EventTime.IsZero(), "eventTime")
	check(e.Type == "Normal" || e.Type == "Warning", "type")
	check(validation.IsQualifiedName(e.ReportingController) == nil, "reportingController")
	for field, value := range map[string]string{"reason": e.Reason, "action": e.Action, "reportingInstance": e.ReportingInstance} {
		check(value != "" && len(value) <= 128, field)
	}
	check(len(e.Note) <= 1024, "note")
	check(e.Series == nil || e.Series.Count >= 2 && !e.Series.LastObservedTime.IsZero(), "series")
	return strings.Join(problems, ", ")
}

func reply(code int, body any) *http.Response {
	encoded, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(encoded)),
	}
}

func status(err *apierrors.StatusError) *http.Response {
	err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return reply(int(err.ErrStatus.Code), err.ErrStatus)
}

// list returns "name reason xcount" of all Events in the order of their creation.
func (s *apiServer) list() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, e := range s.events {
		count := int32(1)
		if e.Series != nil {
			count = e.Series.Count
		}
		lines = append(lines, fmt.Sprintf("%s %s x%d", e.Regarding.Name, e.Reason, count))
	}
	return lines
}

// one returns the only Event.
func (s *apiServer) one(t *testing.T) *eventsv1.Event {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) != 1 {
		t.Fatalf("the server has %d Events, want 1", len(s.events))
	}
	for _, e := range s.events {
		return e.DeepCopy()
	}
	return nil
}

func (s *apiServer) log() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.requests...)
}

func (s *apiServer) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.events)
}

var errRefused = errors.New("connection refused")

func (s *apiServer) cluster(tb testing.TB) *kube.Cluster {
	tb.Helper()
	tb.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://api.test", Transport: s})
	if err != nil {
		tb.Fatal(err)
	}
	return cluster
}

// recorder returns a Recorder that does not run, and its log.
func (s *apiServer) recorder(t *testing.T, config event.Config) (*event.Recorder, *lines) {
	t.Helper()
	logged := &lines{}
	config.Cluster = s.cluster(t)
	config.Controller = "shop.example.com/operator"
	config.Cluster.SetLogger(slog.New(slog.NewTextHandler(logged, nil)))
	recorder, err := event.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return recorder, logged
}

// running returns a Recorder that runs until the test ends, and its log.
func (s *apiServer) running(t *testing.T, config event.Config) (*event.Recorder, *lines) {
	t.Helper()
	recorder, logged := s.recorder(t, config)
	testrun.Start(t, recorder.Run)
	return recorder, logged
}

// newRunning returns a server, a Recorder that runs until the test ends, and its log.
func newRunning(t *testing.T, config event.Config) (*apiServer, *event.Recorder, *lines) {
	t.Helper()
	server := newAPIServer()
	recorder, logged := server.running(t, config)
	return server, recorder, logged
}

// start runs a Recorder until stop is called or the test ends.
func start(t *testing.T, ctx context.Context, recorder *event.Recorder) (stop func()) { //nolint:revive // t comes first in tests
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { // waited for by stop
		if err := recorder.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, string(p))
	return len(p), nil
}

func (l *lines) with(part string) (count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		if strings.Contains(line, part) {
			count++
		}
	}
	return count
}

func pod(name string) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: name, UID: "u1", ResourceVersion: "7",
	}
}

// expectStats compares the recorder's figures.
func expectStats(t *testing.T, recorder *event.Recorder, want event.Stats) {
	t.Helper()
	if diff := cmp.Diff(want, recorder.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}
