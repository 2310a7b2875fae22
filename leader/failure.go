package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// requestFailed records why a request for the lease has failed. It logs each kind of failure once between two
// successes. mu must be held.
func (e *Elector) requestFailed(verb string, err error) {
	e.err = fmt.Errorf("%s lease %s: %w", verb, e.lease, err)
	if hint := hintFor(err, e.config.Namespace); hint != "" {
		e.err = fmt.Errorf("%w: %s", e.err, hint)
	}
	if e.errSince.IsZero() {
		e.errSince = time.Now()
	}
	e.errVerb = verb
	kind := verb + " " + failureKind(err)
	if e.logged[kind] {
		return
	}
	if e.logged == nil {
		e.logged = map[string]bool{}
	}
	e.logged[kind] = true
	err = e.err
	e.logLater(func() { e.logger.Warn("lease request failed", "error", err) })
}

// requestSucceeded removes the recorded failure. mu must be held.
func (e *Elector) requestSucceeded() {
	if e.err == nil {
		return
	}
	outage := time.Since(e.errSince)
	e.logLater(func() { e.logger.Info("lease requests succeed again", "after", outage) })
	e.err, e.errVerb, e.errSince, e.logged = nil, "", time.Time{}, nil
}

// readSucceeded removes the recorded failure of a read. A failure of a write remains. mu must be held.
func (e *Elector) readSucceeded() {
	if e.errVerb == "get" {
		e.requestSucceeded()
	}
}

// logLater registers a log record that unlock writes: the user's log handler may call Status. mu must be held.
func (e *Elector) logLater(record func()) { e.pending = append(e.pending, record) }

// unlock unlocks mu and writes the pending log records.
func (e *Elector) unlock() {
	pending := e.pending
	e.pending = nil
	e.mu.Unlock()
	for _, record := range pending {
		record()
	}
}

// disconnectAfter closes the lease's connections if a request timed out: HTTP/2 would send the next request on the same
// connection, for up to 45 s after it died.
func (e *Elector) disconnectAfter(request context.Context, err error) {
	if errors.Is(cmp.Or(request.Err(), err), context.DeadlineExceeded) {
		e.leases.disconnect()
	}
}

// failureKind returns the kind of a failure. It is the same for each attempt.
func failureKind(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	return "failure"
}

// hintFor returns how to fix a failure, or "".
func hintFor(err error, namespace string) string {
	switch {
	case apierrors.IsForbidden(err):
		return "a Role must allow get, create and update of leases (coordination.k8s.io) in namespace " + namespace
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("create namespace %s, or set another one", namespace)
	}
	return ""
}
