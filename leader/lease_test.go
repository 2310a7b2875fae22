package leader

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server keeps one lease as an API server does: an update needs the current
// resourceVersion, and requests heed their contexts. client-go's fake clientset does
// neither, and both matter here.
type server struct {
	start time.Time

	mu      sync.Mutex
	lease   *coordinationv1.Lease // guarded by mu; nil: there is none
	version int                   // guarded by mu
	writes  []write               // guarded by mu

	validate func(*coordinationv1.Lease) error // of updates; nil: all are valid
}

// write is one that the server accepted.
type write struct {
	At     time.Duration // since the start of the test
	By     string
	Holder string
}

// newServer returns a server with a lease that nobody holds.
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
	s.writes = append(s.writes, write{At: time.Since(s.start), By: by, Holder: *lease.Spec.HolderIdentity})
	return s.lease.DeepCopy()
}

// edit changes the lease from outside any election.
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

func (s *server) read() *coordinationv1.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lease.DeepCopy()
}

func (s *server) holder() string { return *s.read().Spec.HolderIdentity }

// by returns the accepted writes of one client.
func (s *server) by(client string) []write {
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
	all := s.by(client)
	return all[len(all)-1]
}

// client is one process's connection to the server.
type client struct {
	coordinationv1client.LeaseInterface // nil: no other method is called

	name   string
	server *server

	mu       sync.Mutex
	before   func(ctx context.Context, verb string) error // guarded by mu; an error: no effect
	after    func(ctx context.Context, verb string) error // guarded by mu; an error: the answer is lost
	requests int                                          // guarded by mu
}

func (s *server) client(name string) *client { return &client{name: name, server: s} }

func (c *client) Leases(string) coordinationv1client.LeaseInterface { return c }

// fail has all requests answered by before; nil ends it.
func (c *client) fail(before func(ctx context.Context, verb string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before = before
}

// lose has the answers to all requests replaced by after, when it returns an error; nil ends it.
func (c *client) lose(after func(ctx context.Context, verb string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = after
}

// request counts a request and returns what fails it before and after its effect.
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

func (c *client) serve(ctx context.Context, verb string, effect func() (*coordinationv1.Lease, error)) (*coordinationv1.Lease, error) {
	before, after := c.request()
	if err := before(ctx, verb); err != nil {
		return nil, err
	}
	c.server.mu.Lock()
	lease, err := effect()
	c.server.mu.Unlock()
	if lost := after(ctx, verb); lost != nil {
		return nil, lost
	}
	return lease, err
}

func (c *client) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return c.serve(ctx, "get", func() (*coordinationv1.Lease, error) {
		if c.server.lease == nil {
			return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), name)
		}
		return c.server.lease.DeepCopy(), nil
	})
}

func (c *client) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return c.serve(ctx, "create", func() (*coordinationv1.Lease, error) {
		if c.server.lease != nil {
			return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), lease.Name)
		}
		return c.server.store(c.name, lease), nil
	})
}

func (c *client) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return c.serve(ctx, "update", func() (*coordinationv1.Lease, error) {
		switch {
		case c.server.lease == nil:
			return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), lease.Name)
		case c.server.lease.ResourceVersion != lease.ResourceVersion:
			return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("the object has been modified"))
		case c.server.validate != nil:
			if err := c.server.validate(lease); err != nil {
				return nil, err
			}
		}
		return c.server.store(c.name, lease), nil
	})
}

// Ways in which requests fail.

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
			return apierrors.NewForbidden(coordinationv1.Resource("leases"), "printer", errors.New(`User "robot" cannot `+verb+` resource "leases"`))
		}
		return nil
	}
}

// newTestElector makes an Elector named like its client.
func newTestElector(t *testing.T, c *client, changes ...func(*Config)) *Elector {
	t.Helper()
	config := Config{
		Client: c, Name: "printer", Namespace: "prod", Identity: c.name,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(&config)
	}
	e, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// running is a Run under way.
type running struct {
	cancel context.CancelFunc
	result chan error
}

// run runs e until it is cancelled.
func run(t *testing.T, e *Elector, work func(context.Context) error) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, result: make(chan error, 1)}
	go func() { r.result <- e.Run(ctx, work) }() // waited for by the synctest bubble
	return r
}

// stop cancels Run and returns what it returned.
func (r *running) stop() error {
	r.cancel()
	return <-r.result
}

// untilDone is work that ends with its context.
func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// pass lets virtual time pass, and what falls into it happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// logs is what an Elector has logged, one line each.
type logs struct{ buffer lockedBuffer }

func (l *logs) into(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&l.buffer, nil)) }

func (l *logs) count(text string) int { return strings.Count(l.buffer.String(), text) }

// lockedBuffer may be read while it is written to.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
