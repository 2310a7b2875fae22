package informer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// slowAnswer is the time without a response after which a request is reported. By default kube-apiserver ends
	// requests after 60 s.
	slowAnswer = 90 * time.Second
	// noAnswer is the time without a response after which a request is ended and repeated.
	noAnswer = 5 * time.Minute
)

// errNoAnswer is in the error of a request without a response.
var errNoAnswer = errors.New("the API server, or a proxy before it, does not answer")

// patience reports and then ends a request without a response. Without it, such a request would never end: a list has
// no time limit, and a live connection has no error.
type patience struct {
	part     *part
	verb     string
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	paused   atomic.Bool // pause was called; a timer that had already fired must not end the request
	reported atomic.Bool // slowAnswer was reported since the last response data
}

// patience starts to wait for the response to a request, which must be made with the returned context. The caller must
// call end.
func (p *part) patience(ctx context.Context, verb string) (context.Context, *patience) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &patience{part: p, verb: verb, cancel: cancel}
	w.timer = time.AfterFunc(noAnswer, func() {
		if ctx.Err() == nil { // otherwise the request has ended
			w.expired()
		}
	})
	w.timer.Reset(slowAnswer)
	return ctx, w
}

func (w *patience) expired() {
	if w.paused.Load() {
		return
	}
	if w.reported.CompareAndSwap(false, true) {
		w.part.failed(w.err(slowAnswer))
		w.timer.Reset(noAnswer - slowAnswer)
		return
	}
	w.cancel(w.err(noAnswer))
}

func (w *patience) err(after time.Duration) error {
	return fmt.Errorf("%s %s: %w: nothing has come for %s", w.verb, w.part.describes, errNoAnswer, after)
}

// pause stops the timer, because data has arrived.
func (w *patience) pause() {
	w.paused.Store(true)
	w.timer.Stop()
}

// resume starts the timer again, to wait for more data.
func (w *patience) resume() {
	w.reported.Store(false)
	w.paused.Store(false)
	w.timer.Reset(slowAnswer)
}

// end ends the request's context.
func (w *patience) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// explain returns err, or the timeout error if the request was ended because no response arrived.
func (w *patience) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNoAnswer) {
		return cause
	}
	return err
}
