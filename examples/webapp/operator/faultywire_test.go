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
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faults stand between an operator and the world. They count what passes; at one request something
// goes wrong, once.
type faults struct {
	at    point
	fault fault
	world *world
	then  func() error // what a user does at that moment; nil: nothing

	acting sync.Mutex // held while the user acts

	mu          sync.Mutex
	arrived     chan struct{}             // guarded by mu; closed when events have come
	events      map[string]int            // guarded by mu; by resource: how often some have come
	meddledWith string                    // guarded by mu; to what another hand has written
	phase       phase                     // guarded by mu
	counts      map[point]int             // guarded by mu; by point without nth
	passed      []point                   // guarded by mu; in the order in which they began
	met         bool                      // guarded by mu; the request has come
	struck      bool                      // guarded by mu; all that was to happen at it has happened
	watches     map[*watchedBody]struct{} // guarded by mu; those that are open
	held        map[string]chan struct{}  // guarded by mu; by resource: closed when its events go on
	expired     map[string]bool           // guarded by mu; by resource: the next watch is too old
}

// point is one request of a life.
type point struct {
	request string // what it asks for, as in "patch webapps.shop.status"
	during  phase
	nth     int // of those that ask for the same in that phase, from 1
}

// phase is a part of a life.
type phase string

const (
	creation phase = "creation"
	change   phase = "change"
	deletion phase = "deletion"
	// afterwards nothing goes wrong any more.
	afterwards phase = "end"
)

// enter begins a part of the life. met reports whether the request at which something goes wrong has
// come before.
func (w *world) enter(p phase) (met bool) {
	f := w.faults
	if f == nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.phase = p
	return f.met
}

// writes reports whether the request is to change something.
func (p point) writes() bool {
	return !strings.HasPrefix(p.request, "get ") && !strings.HasPrefix(p.request, "watch ")
}

// outside reports whether the request is to the records.
func (p point) outside() bool { return strings.Contains(p.request, "record ") }

func (p point) String() string { return fmt.Sprintf("%s %d of the %s", p.request, p.nth, p.during) }

func newFaults(w *world, at point, f fault) *faults {
	return &faults{
		at: at, fault: f, world: w,
		arrived: make(chan struct{}), events: map[string]int{}, phase: creation, counts: map[point]int{}, watches: map[*watchedBody]struct{}{}, held: map[string]chan struct{}{}, expired: map[string]bool{},
	}
}

// meets counts a request, and reports whether it is the one.
func (f *faults) meets(request string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := point{request: request, during: f.phase}
	f.counts[p]++
	p.nth = f.counts[p]
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
		seen := f.untilShown("webapps")
		f.acting.Lock()
		if err := f.then(); err != nil {
			f.world.Errorf("the user's act: %v", err)
		}
		f.acting.Unlock()
		seen()
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
	request = verb + " " + strings.Join(parts, ".")
	if resource == "webapps" && takesAway(r) {
		request += " to ready" // Reconciling goes
	}
	return resource, request
}

// takesAway reports whether a request is a JSON patch that removes something from a status.
func takesAway(r *http.Request) bool {
	if r.GetBody == nil || !strings.HasSuffix(r.URL.Path, "/status") {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	patch, err := io.ReadAll(body)
	return err == nil && bytes.Contains(patch, []byte(`"op":"remove"`))
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
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF)))
	return response
}

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
