package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
)

// faults stand between an operator and the world. They count what passes; at one request something
// goes wrong, once.
type faults struct {
	at    point
	fault fault
	world *world
	then  func() // what a user does at that moment; nil: nothing

	mu      sync.Mutex
	counts  map[string]int            // guarded by mu; of requests, by what they ask for
	passed  []point                   // guarded by mu; in the order in which they began
	met     bool                      // guarded by mu; the request has come
	struck  bool                      // guarded by mu; all that was to happen at it has happened
	watches map[*watchedBody]struct{} // guarded by mu; those that are open
	held    map[string]chan struct{}  // guarded by mu; by resource: closed when its events go on
	expired map[string]bool           // guarded by mu; by resource: the next watch is too old
}

// point is one request of a life.
type point struct {
	request string // what it asks for, as in "patch webapps.status"
	nth     int    // of those that ask for the same, from 1
}

// writes reports whether the request is to change something.
func (p point) writes() bool {
	return !strings.HasPrefix(p.request, "get ") && !strings.HasPrefix(p.request, "watch ")
}

// outside reports whether the request is to the records.
func (p point) outside() bool { return strings.Contains(p.request, "record ") }

func (p point) String() string { return fmt.Sprintf("%s %d", p.request, p.nth) }

func newFaults(w *world, at point, f fault) *faults {
	return &faults{
		at: at, fault: f, world: w,
		counts: map[string]int{}, watches: map[*watchedBody]struct{}{}, held: map[string]chan struct{}{}, expired: map[string]bool{},
	}
}

// meets counts a request, and reports whether it is the one.
func (f *faults) meets(request string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[request]++
	p := point{request, f.counts[request]}
	f.passed = append(f.passed, p)
	if p != f.at || f.met {
		return false
	}
	f.met = true
	return true
}

// end is called when the request has been dealt with, before the operator learns what came of it.
func (f *faults) end() {
	if f.then != nil {
		f.then()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.struck = true
}

func (f *faults) log() []point {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.passed)
}

func (f *faults) hasStruck() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.struck
}

func (f *faults) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resource, request := whatIsAsked(r)
		strikes := f.meets(request)
		do := func() (*http.Response, error) { return next.RoundTrip(r) }
		if r.URL.Query().Get("watch") != "" {
			do = func() (*http.Response, error) { return f.watch(resource, r, next) }
		}
		if !strikes {
			return do()
		}
		defer f.end()
		return f.fault.onWire(f, r, do)
	})
}

// whatIsAsked names what a request asks for, without what differs from one world to another.
func whatIsAsked(r *http.Request) (resource, request string) {
	verb := strings.ToLower(r.Method)
	_, inNamespace, ok := strings.Cut(r.URL.Path, "/namespaces/")
	if !ok {
		return "", verb + " " + r.URL.Path // what the cluster serves
	}
	parts := strings.Split(inNamespace, "/")[1:]
	resource = parts[0]
	if r.URL.Query().Get("watch") != "" {
		return resource, "watch " + resource
	}
	return resource, verb + " " + strings.Join(parts, ".")
}

type faultyRecords struct {
	faults *faults
	next   Records
}

// Ensure implements Records.
func (r faultyRecords) Ensure(ctx context.Context, host, target string) error {
	return r.call("record "+host, func() error { return r.next.Ensure(ctx, host, target) })
}

// Delete implements Records.
func (r faultyRecords) Delete(ctx context.Context, host string) error {
	return r.call("no record "+host, func() error { return r.next.Delete(ctx, host) })
}

func (r faultyRecords) call(request string, do func() error) error {
	if !r.faults.meets(request) {
		return do()
	}
	defer r.faults.end()
	return r.faults.fault.outside(r.faults, do)
}

// watch opens a watch whose events can be held back, and which can break.
func (f *faults) watch(resource string, r *http.Request, next http.RoundTripper) (*http.Response, error) {
	f.mu.Lock()
	expired := f.expired[resource] && r.URL.Query().Get("resourceVersion") != "" && r.URL.Query().Get("sendInitialEvents") == ""
	if expired {
		f.expired[resource] = false
	}
	f.mu.Unlock()
	if expired {
		return answer(r, apierrors.NewResourceExpired("too old resource version")), nil
	}
	response, err := next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	body := &watchedBody{faults: f, resource: resource, inner: response.Body, over: make(chan struct{})}
	f.mu.Lock()
	f.watches[body] = struct{}{}
	f.mu.Unlock()
	response.Body = body
	return response, nil
}

// breakWatches breaks the watches of some resources; none: all.
func (f *faults) breakWatches(how error, resources ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for body := range f.watches {
		if len(resources) == 0 || slices.Contains(resources, body.resource) {
			body.end(how)
		}
	}
}

// expire lets the watches of all resources break, and what they go on with be too old.
func (f *faults) expire(resources ...string) {
	f.mu.Lock()
	for _, resource := range resources {
		f.expired[resource] = true
	}
	f.mu.Unlock()
	f.breakWatches(io.EOF, resources...)
}

// hold holds the events of some resources back until they are released.
func (f *faults) hold(resources ...string) (release func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	until := make(chan struct{})
	for _, resource := range resources {
		f.held[resource] = until
	}
	return sync.OnceFunc(func() { close(until) })
}

// watchedBody is the body of a watch.
type watchedBody struct {
	faults   *faults
	resource string
	inner    io.ReadCloser
	once     sync.Once
	over     chan struct{} // closed at the end
	why      error         // valid when over is closed
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.inner.Read(p)
	b.faults.mu.Lock()
	held := b.faults.held[b.resource]
	b.faults.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-b.over:
		}
	}
	select {
	case <-b.over:
		return 0, b.why
	default:
		return n, err
	}
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	b.end(net.ErrClosed)
	b.faults.mu.Lock()
	delete(b.faults.watches, b)
	b.faults.mu.Unlock()
	return nil
}

func (b *watchedBody) end(why error) {
	b.once.Do(func() {
		b.why = why
		close(b.over)
		_ = b.inner.Close() // ends a Read
	})
}

// errReset is what package net says when the other side has broken a connection: before the request
// was carried out, or after it.
var errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

// errBadGateway is said by something on the way that speaks no Kubernetes.
var errBadGateway = errors.New("502 Bad Gateway")

// answer is a refusal as the API server says it.
func answer(r *http.Request, err error) *http.Response {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return page(r) // errBadGateway
	}
	status := said.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, encodeErr := json.Marshal(status)
	if encodeErr != nil {
		panic(encodeErr) // a Status can be encoded
	}
	response := &http.Response{
		StatusCode: int(status.Code), Status: http.StatusText(int(status.Code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: r,
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		response.Header.Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	return response
}

// page is how errBadGateway comes.
func page(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusBadGateway, Status: "502 Bad Gateway", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/html"}}, Request: r,
		Body: io.NopCloser(strings.NewReader("<html><body><h1>502 Bad Gateway</h1></body></html>")),
	}
}

// cut is an answer whose second half does not come.
func cut(response *http.Response) *http.Response {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return response
	}
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), failingReader{io.ErrUnexpectedEOF}))
	return response
}

type failingReader struct{ err error }

// Read implements io.Reader.
func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// drop forgets an answer.
func drop(response *http.Response, err error) {
	if err == nil {
		_ = response.Body.Close()
	}
}

// refuse closes the body of a request that is not sent: a RoundTripper's duty.
func refuse(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// nameOf is the name of the object of a request.
func nameOf(r *http.Request) string { return path.Base(strings.TrimSuffix(r.URL.Path, "/status")) }

// while is how long events are held back: longer than some retries, shorter than the patience of
// anybody.
const while = 500 * time.Millisecond

func (f *faults) holdForAWhile(resources ...string) { time.AfterFunc(while, f.hold(resources...)) }

// meddle has another hand write to the object of a request, if it is there.
func (f *faults) meddle(r *http.Request) {
	w := f.world
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: nameOf(r)}
	var obj kube.Object
	switch resource, _ := whatIsAsked(r); resource {
	case "webapps":
		obj = &v1.WebApp{ObjectMeta: meta}
	case "deployments":
		obj = &appsv1.Deployment{ObjectMeta: meta}
	case "services":
		obj = &corev1.Service{ObjectMeta: meta}
	case "configmaps":
		obj = &corev1.ConfigMap{ObjectMeta: meta}
	default:
		w.Errorf("who would write to %s?", resource)
		return
	}
	_, _, err := client.SetAnnotations(r.Context(), w.client, obj, map[string]string{"example.com/meddler": "was here"})
	if err != nil && !errors.Is(err, client.ErrGone) {
		w.Errorf("write first: %v", err)
	}
}
