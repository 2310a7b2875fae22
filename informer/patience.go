package informer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// slowAnswer is the time without a response after which a request is reported. kube-apiserver ends requests itself
	// after 60 s by default.
	slowAnswer = 90 * time.Second
	// noAnswer is the time without a response after which a request is ended, and made again.
	noAnswer = 5 * time.Minute
)

// errNoAnswer is in the error of a request that brings nothing.
var errNoAnswer = errors.New("the API server, or a proxy before it, does not answer")

// patience reports and then ends a request without a response. Nothing else does: a list has no time limit, and a live
// connection has no error.
type patience struct {
	part     *part
	verb     string
	cancel   context.CancelCauseFunc
	timer    *time.Timer
	paused   atomic.Bool // the timer may have fired before it was stopped, and starts itself again
	reported atomic.Bool // since something has come
}

// patience starts to wait for the response to a request, which must be made with the returned context. The caller must
// call end.
func (p *part) patience(ctx context.Context, verb string) (context.Context, *patience) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &patience{part: p, verb: verb, cancel: cancel}
	w.timer = time.AfterFunc(noAnswer, func() {
		if ctx.Err() == nil { // otherwise nobody waits for the answer any more
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

// pause notes that something has come, and that nothing is waited for.
func (w *patience) pause() {
	w.paused.Store(true)
	w.timer.Stop()
}

// resume waits for more.
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

// explain returns err, or that the request was ended because nothing came.
func (w *patience) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errNoAnswer) {
		return cause
	}
	return err
}
