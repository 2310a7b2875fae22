package simulation

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Request is a request for objects, and its result.
type Request struct {
	Time time.Time
	// UserAgent is the client's: the argument of Cluster.RESTConfig.
	UserAgent string
	// Verb is get, list, watch, create, update, patch, apply, delete or deletecollection; or call, of the function
	// Call, whose argument is the name in Key.
	Verb string
	// Resource is the resource in the path, such as deployments; Subresource is the one below the object.
	Resource    schema.GroupVersionResource
	Subresource string
	// Key is the key of the object. The name of a create is known when the response is.
	Key    kube.Key
	DryRun bool
	// Body is the body of the request. It must not be changed.
	Body []byte
	// Status is the HTTP status of the response: 0 if there was no response. Message is the message of an error.
	Status  int
	Message string

	// Only in runs of Explore: instance is that of the tested program that made the request, or nil. isOfModel is true
	// if a model of Kubernetes' controllers made it.
	instance  *instance
	isOfModel bool
}

// verbCall is the Verb of Call.
const verbCall = "call"

// IsWrite reports whether the request changes objects, if it succeeds and is not a dry run.
func (r Request) IsWrite() bool { return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) }

// String returns the request in one line: "webapp-operator: patch webapps/status default/shop: 409 the object has been
// modified".
func (r Request) String() string {
	text := fmt.Sprintf("%s: %s", shortUserAgent(r.UserAgent), r.Verb)
	if r.Resource.Resource != "" {
		text += " " + r.Resource.Resource
	}
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Key != (kube.Key{}) {
		text += " " + r.Key.String()
	}
	if r.DryRun {
		text += " (dry run)"
	}
	switch {
	case r.Status == 0:
		text += ": no response: " + r.Message
	case r.Status >= http.StatusBadRequest:
		text += fmt.Sprintf(": %d %s", r.Status, r.Message)
	}
	return text
}

// shortUserAgent returns "program" or "program/component" for a user agent in the form of Kubernetes' components:
// "program/version (platform) kubernetes/commit/component".
func shortUserAgent(userAgent string) string {
	program, details, long := strings.Cut(userAgent, " ")
	if !long {
		return userAgent
	}
	program, _, _ = strings.Cut(program, "/")
	_, details, _ = strings.Cut(details, " kubernetes/")
	if _, component, ok := strings.Cut(details, "/"); ok {
		return program + "/" + component
	}
	return program
}

// isLease reports whether the request belongs to leader election.
func (r Request) isLease() bool {
	return r.Resource.Group == "coordination.k8s.io"
}

// Requests are requests in the order of their responses.
type Requests []Request

// By returns the requests of a user agent.
func (r Requests) By(userAgent string) Requests {
	return slices.DeleteFunc(slices.Clone(r), func(request Request) bool { return request.UserAgent != userAgent })
}

// Writes returns the requests other than get, list and watch, except those for Leases.
func (r Requests) Writes() Requests {
	return slices.DeleteFunc(slices.Clone(r), func(request Request) bool {
		return !request.IsWrite() || request.isLease()
	})
}

// String returns the requests, one a line with its time. Equal ones in a row are one line.
func (r Requests) String() string {
	var b strings.Builder
	for i := 0; i < len(r); {
		text, last := r[i].String(), i
		for last+1 < len(r) && r[last+1].String() == text {
			last++
		}
		fmt.Fprintf(&b, "%s  %s", clock(r[i].Time), text)
		if last > i {
			fmt.Fprintf(&b, " (%d times until %s)", last-i+1, clock(r[last].Time))
		}
		b.WriteByte('\n')
		i = last + 1
	}
	return b.String()
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

const (
	// requestsAtOnce is the number of requests that take no time, and throttle the time of each further one, until as
	// many times throttle have passed without one. So a loop without delay does not stop virtual time. Runs of Explore,
	// of which many have such a loop, have a longer time.
	requestsAtOnce  = 2000
	throttle        = time.Millisecond
	exploreThrottle = 10 * time.Millisecond
	// watchTimeout replaces timeouts of 5 to 10 minutes, which client-go's Reflector chooses at random: their mean.
	watchTimeout = 450 * time.Second
	// requestsKept is the number of requests that a cluster remembers for its report.
	requestsKept = 200
)

type hook struct {
	f func(r Request, send func()) error
}

// requestLog is between all clients and the server: it records requests and calls the hooks of the test.
type requestLog struct {
	server   *apiserver.Server
	dog      *watchdog // nil: the virtual time is not watched
	throttle time.Duration

	mu        sync.Mutex
	latest    Requests    // the last requestsKept writes and failed requests; guarded by mu
	recording []*Requests // guarded by mu
	hooks     []*hook     // immutable, guarded by mu
	writes    int         // number of writes, except of Leases; guarded by mu
	lastWrite time.Time   // start or end of the last one; guarded by mu
	running   int         // number of writes in progress; guarded by mu
	throttled time.Time   // the time until which requests are counted; guarded by mu
}

func newRequestLog(server *apiserver.Server, dog *watchdog) *requestLog {
	return &requestLog{server: server, dog: dog, throttle: throttle, lastWrite: time.Now()}
}

// RoundTrip implements http.RoundTripper.
func (l *requestLog) RoundTrip(req *http.Request) (*http.Response, error) {
	r, ok := parse(req)
	if !ok {
		return l.server.Transport().RoundTrip(req) // discovery
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("read the body of a request: %w", err)
		}
		r.Body = body
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	if r.Verb == "watch" {
		req = withFixedTimeout(req)
	}
	l.begin(r)
	res, err := l.send(r, req)
	l.finish(r, res, err)
	return res, err
}

// withFixedTimeout replaces a timeout of a watch that client-go's Reflector may have chosen at random, so that runs are
// reproducible. Shorter and longer timeouts are kept: the client has a reason for them.
func withFixedTimeout(req *http.Request) *http.Request {
	query := req.URL.Query()
	requested, err := strconv.Atoi(query.Get("timeoutSeconds"))
	if requested := time.Duration(requested) * time.Second; err != nil || requested < watchTimeout*2/3 ||
		requested > watchTimeout*4/3 {
		return req
	}
	query.Set("timeoutSeconds", strconv.Itoa(int(watchTimeout.Seconds())))
	req = req.Clone(req.Context())
	req.URL.RawQuery = query.Encode()
	return req
}

// send calls the hooks and the server.
func (l *requestLog) send(r Request, req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	hooks := l.hooks
	l.mu.Unlock()
	var res *http.Response
	var err error
	sent := false
	send := func() {
		if !sent {
			sent = true
			res, err = l.server.Transport().RoundTrip(req) //nolint:bodyclose // the caller's, or closed below
		}
	}
	for _, h := range hooks {
		if failure := h.f(r, send); failure != nil {
			if res != nil {
				_ = res.Body.Close()
			}
			return errorResponse(req, failure)
		}
	}
	send()
	return res, err
}

// begin counts a request, and delays it if too many are made at one time.
func (l *requestLog) begin(r Request) {
	l.dog.observe()
	l.mu.Lock()
	now := time.Now()
	if l.throttled.Before(now) {
		l.throttled = now
	}
	l.throttled = l.throttled.Add(l.throttle)
	wait := l.throttled.Sub(now) > requestsAtOnce*l.throttle
	if r.IsWrite() && !r.isLease() {
		l.running++
		l.writes++
		l.lastWrite = now
	}
	l.mu.Unlock()
	if wait {
		time.Sleep(l.throttle)
	}
}

// finish records a request.
func (l *requestLog) finish(r Request, res *http.Response, err error) {
	r.Time = time.Now()
	r.complete(res, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.IsWrite() && !r.isLease() {
		l.running--
		l.lastWrite = r.Time
	}
	for _, recording := range l.recording {
		*recording = append(*recording, r)
	}
	if r.IsWrite() && !r.isLease() || r.Status >= http.StatusInternalServerError || r.Status == 0 {
		if len(l.latest) >= 2*requestsKept {
			l.latest = slices.Clone(l.latest[requestsKept:])
		}
		r.Body = nil
		l.latest = append(l.latest, r)
	}
}

// activity returns the number of writes, and the time of the last one, which is now if one is in progress.
func (l *requestLog) activity() (writes int, last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running > 0 {
		return l.writes, time.Now()
	}
	return l.writes, l.lastWrite
}

// last returns the latest requests.
func (l *requestLog) last(n int) Requests {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.latest[max(0, len(l.latest)-n):])
}

// call calls do, and records it like a request.
func (l *requestLog) call(r Request, do func() error) error {
	l.begin(r)
	err := do()
	l.finish(r, &http.Response{StatusCode: http.StatusOK}, err)
	return err
}

// record records the requests that are answered from now on.
func (l *requestLog) record(r *Requests) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.recording = append(l.recording, r)
}

// Record returns the requests that were answered while f ran, of all clients.
func (c *Cluster) Record(f func()) Requests {
	l, recorded := c.log, &Requests{}
	l.record(recorded)
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.recording = slices.DeleteFunc(l.recording, func(other *Requests) bool { return other == recorded })
	}()
	f()
	c.wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return *recorded
}

// Intercept calls f before each request for objects, of all clients, until remove is called. If f returns an error, the
// client gets it instead of the server's response: an error of apimachinery's package api/errors as the server's
// response, another one as a broken connection. f can call send first, so that the server executes the request and only
// the response is lost. Without an error the client gets the server's response. f may make requests, for example as
// another client that writes first; f is called for them too. f may be called by several goroutines at once. All
// clients include the test and the models of Kubernetes' controllers, so f usually selects a Request.UserAgent.
// Informers of recent clients make no list: they begin with a watch that sends all objects.
func (c *Cluster) Intercept(f func(r Request, send func()) error) (remove func()) {
	l, added := c.log, &hook{f}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hooks = append(slices.Clip(l.hooks), added)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hooks = slices.DeleteFunc(slices.Clone(l.hooks), func(h *hook) bool { return h == added })
	}
}
