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

// faults is between an operator and its servers. It counts requests, and makes one of them fail.
type faults struct {
	at    point
	fault fault
	world *world
	then  func() error // the user's action at that time; may be nil

	acting sync.Mutex // held while the user acts

	mu           sync.Mutex
	arrived      chan struct{}             // guarded by mu; closed when events arrive
	events       map[string]int            // guarded by mu; by resource: number of deliveries
	foreignWrite string                    // guarded by mu; the object that another client has written
	phase        phase                     // guarded by mu
	counts       map[point]int             // guarded by mu; by point without nth
	passed       []point                   // guarded by mu; in the order in which they began
	met          bool                      // guarded by mu; the request was made
	faultDone    bool                      // guarded by mu; the fault is complete
	watches      map[*watchedBody]struct{} // guarded by mu; open watches
	held         map[string]chan struct{}  // guarded by mu; by resource: closed when its events are released
	expired      map[string]bool           // guarded by mu; by resource: the next watch is too old
}

// point is one request in a life.
type point struct {
	request string // its operation, as in "patch webapps.shop.status"
	during  phase
	nth     int // number among equal requests in that phase, from 1
}

// phase is a part of a life.
type phase string

const (
	creation phase = "creation"
	change   phase = "change"
	deletion phase = "deletion"
	// afterwards is the phase without faults.
	afterwards phase = "end"
)

// enter begins a phase. met reports whether the request of the fault was made before.
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

// writes reports whether the request is a write.
func (p point) writes() bool {
	return !strings.HasPrefix(p.request, "get ") && !strings.HasPrefix(p.request, "watch ")
}

// outside reports whether the request is one to the records.
func (p point) outside() bool { return strings.Contains(p.request, "record ") }

func (p point) String() string { return fmt.Sprintf("%s %d of the %s", p.request, p.nth, p.during) }

func newFaults(w *world, at point, f fault) *faults {
	return &faults{
		at: at, fault: f, world: w,
		arrived: make(chan struct{}), events: map[string]int{}, phase: creation, counts: map[point]int{}, watches: map[*watchedBody]struct{}{}, held: map[string]chan struct{}{}, expired: map[string]bool{},
	}
}

// meets counts a request, and reports whether the fault occurs at it.
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

// end is called after the request, before the operator receives the response.
func (f *faults) end() {
	if f.then != nil {
		seen := f.untilShown("webapps")
		f.acting.Lock()
		if err := f.then(); err != nil {
			f.world.Errorf("the user's action: %v", err)
		}
		f.acting.Unlock()
		seen()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faultDone = true
}

func (f *faults) log() []point {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.passed)
}

func (f *faults) isFaultDone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.faultDone
}

func (f *faults) transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resource, request := operationOf(r)
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

// operationOf returns a request's operation, without parts that differ between worlds.
func operationOf(r *http.Request) (resource, request string) {
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
	if resource == "webapps" && removesFromStatus(r) {
		request += " to ready" // without Reconciling
	}
	return resource, request
}

// removesFromStatus reports whether a request is a JSON patch that removes a part of a status.
func removesFromStatus(r *http.Request) bool {
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
func (r faultyRecords) Ensure(ctx context.Context, record Record) error {
	return r.call("record "+record.Host, func() error { return r.next.Ensure(ctx, record) })
}

// Delete implements Records.
func (r faultyRecords) Delete(ctx context.Context, record Record) error {
	return r.call("no record "+record.Host, func() error { return r.next.Delete(ctx, record) })
}

func (r faultyRecords) call(request string, do func() error) error {
	if !r.faults.meets(request) {
		return do()
	}
	defer r.faults.end()
	return r.faults.fault.outside(r.faults, do)
}

// errReset is the error of package net for a connection that the peer has broken, before or after the request was
// carried out.
var errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

// errBadGateway is the response of a proxy that is not a Kubernetes server.
var errBadGateway = errors.New("502 Bad Gateway")

// answer returns an error response of the API server.
func answer(r *http.Request, err error) *http.Response {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return page(r) // errBadGateway
	}
	status := said.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, encodeErr := json.Marshal(status)
	if encodeErr != nil {
		panic(encodeErr) // a Status can always be encoded
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

// page returns the response for errBadGateway.
func page(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: http.StatusBadGateway, Status: "502 Bad Gateway", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"text/html"}}, Request: r,
		Body: io.NopCloser(strings.NewReader("<html><body><h1>502 Bad Gateway</h1></body></html>")),
	}
}

// cut returns a response without its second half.
func cut(response *http.Response) *http.Response {
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return response
	}
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body[:len(body)/2]), iotest.ErrReader(io.ErrUnexpectedEOF)))
	return response
}

// drop discards a response.
func drop(response *http.Response, err error) {
	if err == nil {
		_ = response.Body.Close()
	}
}

// refuse closes the body of a request that is not sent, as required for a RoundTripper.
func refuse(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// nameOf returns the name of a request's object.
func nameOf(r *http.Request) string { return path.Base(strings.TrimSuffix(r.URL.Path, "/status")) }
