package operator

import (
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// untilShown returns a function that waits for events of a resource after this call, unless they are delayed, so that
// the operator receives them before its next step.
func (f *faults) untilShown(resource string) (wait func()) {
	f.mu.Lock()
	before := f.events[resource]
	f.mu.Unlock()
	return func() {
		timer := time.NewTimer(while)
		defer timer.Stop()
		for {
			f.mu.Lock()
			shown, arrived := f.events[resource] > before || f.held[resource] != nil, f.arrived
			f.mu.Unlock()
			if shown {
				return
			}
			select {
			case <-arrived:
			case <-timer.C:
				return
			}
		}
	}
}

// show records that events will be delivered.
func (f *faults) show(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events[resource]++
	close(f.arrived)
	f.arrived = make(chan struct{})
}

// watch opens a watch with events that can be delayed, and that can break.
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

// breakWatches breaks the watches of some resources.
func (f *faults) breakWatches(how error, resources ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for body := range f.watches {
		if slices.Contains(resources, body.resource) {
			body.end(how)
		}
	}
}

// expire breaks the watches of some resources, and makes their resource version too old.
func (f *faults) expire(resources ...string) {
	f.mu.Lock()
	for _, resource := range resources {
		f.expired[resource] = true
	}
	f.mu.Unlock()
	f.breakWatches(io.EOF, resources...)
}

// hold delays the events of some resources until release is called.
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
		b.faults.show(b.resource)
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

// while is the delay of events: longer than some retries, and shorter than all time limits.
const while = 500 * time.Millisecond

func (f *faults) holdForAWhile(resources ...string) { time.AfterFunc(while, f.hold(resources...)) }
