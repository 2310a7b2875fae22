package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

var (
	// errCrashed is the error of all requests of an instance that has crashed. Its program cannot act on it anymore.
	errCrashed = errors.New("simulation: the program has crashed")
	// errLost is the error of a request whose response is lost.
	errLost = errors.New("read tcp: connection reset by peer")
	// errUnavailable is the error of a call outside of the cluster.
	errUnavailable = errors.New("503 Service Unavailable")
)

// instance is a start of a program. It is the http.RoundTripper of its clients.
type instance struct {
	trial   *trial
	program string
	number  int             // how often the program was started before
	ctx     context.Context //nolint:containedctx // that of the instance, which ends with it
	kill    context.CancelFunc

	mu      sync.Mutex
	dead    bool                          // guarded by mu
	watches []*watchBody                  // guarded by mu; all that were opened
	expired map[schema.GroupResource]bool // guarded by mu; the next watch begins with a new list
}

type instanceKey struct{}

func (i *instance) isDead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dead
}

// crash ends the instance: none of its requests reaches the server anymore.
func (i *instance) crash() {
	i.mu.Lock()
	i.dead = true
	i.mu.Unlock()
	i.kill()
}

// RoundTrip implements http.RoundTripper.
func (i *instance) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.WithContext(context.WithValue(req.Context(), instanceKey{}, i))
	r, ok := parse(req)
	if !ok {
		if i.isDead() {
			return nil, errCrashed
		}
		return i.trial.cluster.log.RoundTrip(req)
	}
	res, err := i.roundTrip(req, r)
	switch {
	case errors.Is(err, errCrashed):
		<-i.ctx.Done()
		if err := req.Context().Err(); err != nil {
			return nil, err
		}
		return nil, errCrashed
	case err != nil:
		return errorResponse(req, err)
	}
	return res, nil
}

func (i *instance) roundTrip(req *http.Request, r Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		var err error
		body, err = io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("read the body of a request: %w", err)
		}
	}
	if err := i.wait(req.Context(), r); err != nil {
		return nil, err
	}
	if r.Verb == "watch" {
		return i.watch(req, r)
	}
	r.Body = body
	if r.Verb == "create" && r.Key.Name == "" {
		r.Key.Name = contentOf(body).Name
	}
	return i.disturb(req.Context(), r, func(ctx context.Context) (*http.Response, error) {
		again := req.Clone(ctx) // the client may use req again
		if body != nil {
			again.Body = io.NopCloser(bytes.NewReader(body))
		}
		return i.trial.cluster.log.RoundTrip(again)
	})
}

// wait waits for the turn of a request.
func (i *instance) wait(ctx context.Context, r Request) error {
	i.trial.gate.wait(&waiting{program: i.program, instance: i, request: r}, ctx.Done())
	if err := ctx.Err(); err != nil {
		return err
	}
	if i.isDead() {
		return errCrashed
	}
	return nil
}

// disturb calls do, or what a fault makes of it. The response of do may be nil.
func (i *instance) disturb(
	ctx context.Context, r Request, do func(ctx context.Context) (*http.Response, error),
) (*http.Response, error) {
	if !isCounted(r) {
		return do(ctx)
	}
	doWithoutResponse := func(ctx context.Context) error {
		res, err := do(ctx)
		if err == nil && res != nil {
			_ = res.Body.Close()
		}
		return err
	}
	kind := i.trial.plan.decide(i, r)
	if i.isDead() { // it crashed during a step of the user
		return nil, errCrashed
	}
	switch kind {
	case crashBefore:
		i.crash()
		return nil, errCrashed
	case crashAfter:
		_ = doWithoutResponse(ctx)
		i.crash()
		return nil, errCrashed
	case crashLate:
		ctx := context.WithoutCancel(ctx)
		i.trial.goroutines.Go(func() { // waited for at the end of the trial
			time.Sleep(lateTime)
			i.trial.gate.wait(&waiting{program: i.program, instance: i, request: r}, i.trial.ctx.Done())
			_ = doWithoutResponse(ctx)
		})
		i.crash()
		return nil, errCrashed
	case lost:
		if err := doWithoutResponse(ctx); err != nil {
			return nil, err
		}
		return nil, errLost
	case unavailable:
		if r.Verb == verbCall {
			return nil, errUnavailable
		}
		return nil, apierrors.NewServiceUnavailable("the API server is restarted")
	}
	return do(ctx)
}

// Call calls do, which acts outside of the cluster for a tested program, such as a fake of the API of a cloud. In a
// program of a [Scenario], Explore crashes the program before and after the call, makes it fail with an error, and
// loses its result: then the effect of do remains, and Call returns an error. ctx must be that of the program, or be
// derived from it. name is what do does, for reports: "create record shop.example.com". Outside of Explore, Call only
// calls do. do must not wait for time or the network.
func Call(ctx context.Context, name string, do func() error) error {
	i, _ := ctx.Value(instanceKey{}).(*instance)
	if i == nil {
		return do()
	}
	r := Request{UserAgent: i.program, Verb: verbCall, Key: kube.Key{Name: name}, instance: i}
	err := i.wait(ctx, r)
	if err == nil {
		_, err = i.disturb(ctx, r, func(context.Context) (*http.Response, error) { //nolint:bodyclose // there is none
			return nil, i.trial.cluster.log.call(r, func() (err error) {
				i.trial.ordered(func() { err = do() })
				return err
			})
		})
	}
	if errors.Is(err, errCrashed) {
		<-i.ctx.Done()
	}
	return err
}

// watch opens a watch.
func (i *instance) watch(req *http.Request, r Request) (*http.Response, error) {
	resource := r.Resource.GroupResource()
	i.mu.Lock()
	expired := i.expired[resource]
	delete(i.expired, resource)
	i.mu.Unlock()
	if expired {
		i.trial.cluster.server.Compact()
	}
	res, err := i.trial.cluster.log.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body := &watchBody{ReadCloser: res.Body, instance: i, request: r, closed: make(chan struct{})}
	i.mu.Lock()
	i.watches = append(i.watches, body)
	i.mu.Unlock()
	res.Body = body
	return res, nil
}

// watched returns the resources that the instance has watched.
func (i *instance) watched() (resources []schema.GroupResource) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, b := range i.watches {
		if r := b.request.Resource.GroupResource(); !slices.Contains(resources, r) {
			resources = append(resources, r)
		}
	}
	return resources
}

// expire breaks the watches of a resource before the next change, and makes the next one begin with a new list.
func (i *instance) expire(resource schema.GroupResource) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expired[resource] = true
	for _, b := range i.watches {
		b.broken = b.broken || b.request.Resource.GroupResource() == resource
	}
}

// watchBody is the body of a watch, whose parts wait for their turns.
type watchBody struct {
	io.ReadCloser
	instance *instance
	request  Request
	broken   bool // guarded by instance.mu; nothing is received anymore
	once     sync.Once
	closed   chan struct{}
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		i := b.instance
		i.trial.gate.wait(&waiting{program: i.program, instance: i, request: b.request, isEvent: true}, b.closed)
	}
	b.instance.mu.Lock()
	defer b.instance.mu.Unlock()
	switch {
	case b.instance.dead:
		return 0, errCrashed
	case b.broken:
		return 0, errLost
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
