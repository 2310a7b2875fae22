package informer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// slowResponse is the time without data after which a request is reported. By default kube-apiserver ends requests
	// after 60 s.
	slowResponse = 90 * time.Second
	// noResponse is the time without data after which a request is ended and repeated.
	noResponse = 5 * time.Minute
)

// errNoResponse is in the error of a request without a response.
var errNoResponse = errors.New("the API server, or a proxy before it, does not answer")

// responseTimer reports and then ends a request without a response. Without it, such a request would never end: a list
// has no time limit, and a live connection has no error.
//
// Invariants: it does not end a request after pause, even if its timer had already fired. It reports nothing after end.
type responseTimer struct {
	part     *part
	verb     string
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	paused   atomic.Bool   // pause was called
	reported atomic.Bool   // slowResponse was reported since the last response data
	expiring chan struct{} // capacity 1; has a token while the timer's function runs
}

// responseTimer starts to wait for the response to a request, which must be made with the returned context. The caller
// must call end.
func (p *part) responseTimer(ctx context.Context, verb string) (context.Context, *responseTimer) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := &responseTimer{part: p, verb: verb, cancel: cancel, expiring: make(chan struct{}, 1)}
	t.timer = time.AfterFunc(noResponse, func() {
		t.expiring <- struct{}{}
		defer func() { <-t.expiring }()
		if ctx.Err() == nil { // otherwise the request has ended
			t.expired()
		}
	})
	t.timer.Reset(slowResponse)
	return ctx, t
}

func (t *responseTimer) expired() {
	if t.paused.Load() {
		return
	}
	if t.reported.CompareAndSwap(false, true) {
		// Before the report, because OnError may take long, and data may arrive meanwhile.
		t.timer.Reset(noResponse - slowResponse)
		t.part.failed(t.err(slowResponse), false)
		return
	}
	t.cancel(t.err(noResponse))
}

func (t *responseTimer) err(after time.Duration) error {
	return fmt.Errorf("%s %s: %w: nothing has come for %s", t.verb, t.part.describes, errNoResponse, after)
}

// pause stops the timer, because data has arrived.
func (t *responseTimer) pause() {
	t.paused.Store(true)
	t.timer.Stop()
}

// resume starts the timer again, to wait for more data.
func (t *responseTimer) resume() {
	t.reported.Store(false)
	t.paused.Store(false)
	t.timer.Reset(slowResponse)
}

// end ends the request's context, and waits until the timer's function has returned.
func (t *responseTimer) end() {
	t.timer.Stop()
	t.cancel(nil)
	t.expiring <- struct{}{}
	<-t.expiring
}

// explain returns err, or the timeout error if the request was ended because no response arrived.
func (t *responseTimer) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNoResponse) {
		return cause
	}
	return err
}
