package leader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/kube"
)

// server is an API server with one lease: an update needs the current resourceVersion, and requests respect their
// contexts. client-go's fake clientset does neither.
type server struct {
	start time.Time

	mu      sync.Mutex
	lease   *coordinationv1.Lease // guarded by mu; nil if it does not exist
	version int                   // guarded by mu
	writes  []write               // guarded by mu

	validate func(*coordinationv1.Lease) error // validates updates; nil accepts all
	policy   *policy                           // nil: dry runs are accepted
}

// policy is the one of FenceManifest, which sees the lease late.
type policy struct {
	lag     time.Duration
	unbound bool // the tokens of the requests are not bound to Pods
}

// admit returns the error of a write of the Pod whose uid is the name of the client. mu must be held.
func (s *server) admit(by string) error {
	if s.policy == nil {
		return nil
	}
	holder := ""
	for _, w := range s.writes {
		if w.At+s.policy.lag <= time.Since(s.start) {
			holder = w.Holder
		}
	}
	message := "this Pod does not hold the lease prod/printer"
	if s.policy.unbound {
		message = unboundToken
	} else if strings.HasPrefix(holder, by+identitySeparator) {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: `leases.coordination.k8s.io "fence-x" is forbidden: ValidatingAdmissionPolicy 'fence.prod.printer' with binding 'fence.prod.printer' ` +
			`denied request: ` + message,
	}}
}

// write is a write that the server accepted.
type write struct {
	At     time.Duration // since the start of the test
	By     string
	Holder string
}

// newServer returns a server with a lease without a holder.
func newServer() *server {
	nobody := ""
	return &server{start: time.Now(), lease: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "printer"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &nobody},
	}}
}

// store accepts a write. mu must be held.
func (s *server) store(by string, lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	s.lease = lease.DeepCopy()
	s.lease.ResourceVersion = strconv.Itoa(s.version)
	s.writes = append(s.writes, write{At: time.Since(s.start), By: by, Holder: holderOf(&lease.Spec)})
	return s.lease.DeepCopy()
}

// edit changes the lease as a client outside of the election.
func (s *server) edit(change func(*coordinationv1.Lease)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lease := s.lease.DeepCopy()
	change(lease)
	s.store("kubectl", lease)
}

func (s *server) remove() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = nil
}

// restore replaces the lease with an earlier state, as a restored etcd does.
func (s *server) restore(lease *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

func (s *server) read() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

func (s *server) holder() string { return holderOf(&s.read().Spec) }

// writesBy returns the accepted writes of one client.
func (s *server) writesBy(client string) []write {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []write
	for _, w := range s.writes {
		if w.By == client {
			found = append(found, w)
		}
	}
	return found
}

// last returns the latest accepted write of one client.
func (s *server) last(client string) write {
	all := s.writesBy(client)
	return all[len(all)-1]
}

// client is the transport of one process's requests.
type client struct {
	name   string
	server *server

	mu       sync.Mutex
	before   func(ctx context.Context, verb string) error // guarded by mu; if it fails, the request has no effect
	after    func(ctx context.Context, verb string) error // guarded by mu; if it fails, the response is lost
	requests int                                          // guarded by mu
}

func (s *server) client(name string) *client { return &client{name: name, server: s} }

// fail makes all requests fail for which before returns an error; nil ends it.
func (c *client) fail(before func(ctx context.Context, verb string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

// loseResponses replaces responses by the errors that after returns; nil ends it.
func (c *client) loseResponses(after func(ctx context.Context, verb string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = after
}

// request counts a request, and returns the functions that make it fail before and after its effect.
func (c *client) request() (before, after func(context.Context, string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	pass := func(ctx context.Context, _ string) error { return ctx.Err() }
	before, after = pass, pass
	if c.before != nil {
		before = c.before
	}
	if c.after != nil {
		after = c.after
	}
	return before, after
}

func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests
}

// RoundTrip implements http.RoundTripper.
func (c *client) RoundTrip(req *http.Request) (*http.Response, error) {
	verb := map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update"}[req.Method]
	want := "/apis/coordination.k8s.io/v1/namespaces/prod/leases"
	if verb != "create" {
		want += "/printer"
	}
	if verb == "create" && req.URL.Query().Get("dryRun") == metav1.DryRunAll {
		verb = "probe"
	}
	if verb == "" || req.URL.Path != want {
		return nil, fmt.Errorf("unexpected request: %s %s", req.Method, req.URL.Path)
	}
	var sent coordinationv1.Lease
	if req.Body != nil {
		defer req.Body.Close()
		if err := json.NewDecoder(req.Body).Decode(&sent); err != nil {
			return nil, err
		}
	}
	before, after := c.request()
	if err := before(req.Context(), verb); err != nil {
		return response(req, nil, err)
	}
	c.server.mu.Lock()
	lease, err := c.server.serve(c.name, verb, &sent)
	c.server.mu.Unlock()
	if lost := after(req.Context(), verb); lost != nil {
		return response(req, nil, lost)
	}
	return response(req, lease, err)
}

// serve handles a request. mu must be held.
func (s *server) serve(by, verb string, sent *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	resource := coordinationv1.Resource("leases")
	switch {
	case verb == "probe":
		return sent, s.admit(by)
	case verb == "create" && s.lease != nil:
		return nil, apierrors.NewAlreadyExists(resource, "printer")
	case verb == "create":
		return s.store(by, sent), nil
	case s.lease == nil:
		return nil, apierrors.NewNotFound(resource, "printer")
	case verb == "get":
		return s.lease.DeepCopy(), nil
	case s.lease.ResourceVersion != sent.ResourceVersion:
		return nil, apierrors.NewConflict(resource, "printer", errors.New("the object has been modified"))
	case s.validate != nil:
		if err := s.validate(sent); err != nil {
			return nil, err
		}
	}
	return s.store(by, sent), nil
}

// response returns a response with a lease, or with the status of an error. Other errors are those of the connection.
func response(req *http.Request, lease *coordinationv1.Lease, err error) (*http.Response, error) {
	var body any
	code := http.StatusOK
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		s := status.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		body, code = s, int(s.Code)
	} else if err != nil {
		return nil, err
	} else {
		lease.Kind, lease.APIVersion = "Lease", "coordination.k8s.io/v1"
		body = lease
	}
	encoded, err := json.Marshal(body)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(bytes.NewReader(encoded)), ContentLength: int64(len(encoded)),
	}, err
}

// connect returns a Cluster that uses c as its transport.
func connect(t *testing.T, c *client) *kube.Cluster {
	t.Helper()
	cluster, err := kube.Connect(&rest.Config{Host: "http://api.invalid", Transport: c})
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

// Failures of requests.

func refuse(context.Context, string) error {
	return apierrors.NewServiceUnavailable("no leader in etcd")
}

func hang(ctx context.Context, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func forbid(verbs ...string) func(context.Context, string) error {
	return func(_ context.Context, verb string) error {
		if slices.Contains(verbs, verb) {
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), "printer",
				errors.New(`User "robot" cannot `+verb+` resource "leases"`))
		}
		return nil
	}
}
