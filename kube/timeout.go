package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// timeoutError is the error of a request whose response took longer than the Timeout of the rest.Config. Like the error
// of http.Client.Timeout, it is a net.Error and a context.DeadlineExceeded.
type timeoutError struct{ limit time.Duration }

// Error implements error.
func (e timeoutError) Error() string {
	return fmt.Sprintf("the API server took longer than the Timeout of the rest.Config, %s", e.limit)
}

// Timeout and Temporary implement net.Error.
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// Is is for errors.Is.
func (timeoutError) Is(target error) bool {
	return target == context.DeadlineExceeded
}

// sendInTime sends a request. The Timeout of the rest.Config limits the time until the end of the response; for a watch
// and a connection, which may be endless, until its header. http.Client.Timeout would count the wait for the limits of
// the client too, which is over here.
func (t *callTransport) sendInTime(req *http.Request, call Call, term *leadership.Term) (*http.Response, error) {
	limit := t.cluster.timeout
	if limit <= 0 {
		return t.send(req, call, term)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	timer := time.AfterFunc(limit, func() { cancel(timeoutError{limit}) })
	end := func() { timer.Stop(); cancel(nil) }
	explain := func(err error) error {
		if late := (timeoutError{}); errors.As(context.Cause(ctx), &late) && !errors.Is(err, ErrLeadershipLost) {
			return late
		}
		return err
	}
	resp, err := t.send(req.WithContext(ctx), call, term)
	if err != nil {
		err = explain(err)
		end()
		return nil, err
	}
	sent := callOf(req, t.cluster.basePath)
	if sent.Status = resp.StatusCode; sent.Succeeded() && (sent.Verb == "watch" || sent.connects()) {
		timer.Stop()
	} else {
		resp.Body = leadership.Body{ReadCloser: resp.Body, Explain: explain}
	}
	resp.Body = leadership.CancelOnClose(resp.Body, end)
	return resp, nil
}
