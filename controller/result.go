package controller

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// maxDetail is the maximum length of a cause's detail, in bytes.
const maxDetail = 256

// RequeueAfter is a handler result that requests another run after d. It is not a failure: the retry count is reset,
// and nothing is logged as an error.
//
// The error may be wrapped. Joined with another error (errors.Join), the other error takes precedence: the run has
// failed and is retried. A change of the object, or a resync, may run the key earlier; the result of that run then
// replaces this one. A d of zero or less means at once.
//
// The optional reason becomes the detail of the next run's cause, so keep its cardinality low:
// RequeueAfter(time.Minute, "the certificate is being issued").
func RequeueAfter(d time.Duration, reason ...string) error {
	return &RequeueError{After: d, Reason: strings.Join(reason, " ")}
}

// RequeueError is the error that RequeueAfter returns.
type RequeueError struct {
	// After is the delay.
	After time.Duration
	// Reason becomes the detail of the next run's cause. Optional.
	Reason string
	// Priority orders the key when it is ready again. A handler that needs another priority than RequeueAfter's returns
	// a *RequeueError itself. If another cause runs the key earlier, PriorityHigh is kept, and otherwise the priority
	// of that cause applies. Default PriorityNormal.
	Priority Priority
}

// Error implements error.
func (e *RequeueError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("requeue after %s: %s", e.After, e.Reason)
	}
	return fmt.Sprintf("requeue after %s", e.After)
}

// Terminal marks err as an error that a retry cannot fix. The key does not run again, not even by resync, until its
// object changes, a source enqueues it, one of its timers fires, or the controller is restarted. For an object with a
// generation, only a change of the generation counts; for other objects (a ConfigMap), any change. The run counts as
// a failure. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &usercode.TerminalError{Err: err}
}

// Outcome is how a run ended. The set is small and fixed, so it may be used as a metric label.
type Outcome string

// The outcomes.
const (
	// OutcomeSuccess: the handler returned nil.
	OutcomeSuccess Outcome = "success"
	// OutcomeRequeue: the handler returned RequeueAfter.
	OutcomeRequeue Outcome = "requeue"
	// OutcomeError: the handler returned an error, and is retried.
	OutcomeError Outcome = "error"
	// OutcomeTimeout: like OutcomeError, after Config.Timeout had passed.
	OutcomeTimeout Outcome = "timeout"
	// OutcomePanic: like OutcomeError, but the handler panicked.
	OutcomePanic Outcome = "panic"
	// OutcomeTerminal: the handler returned Terminal.
	OutcomeTerminal Outcome = "terminal"
	// OutcomeCancelled: the handler returned an error after its context was cancelled, because the drain time was
	// over or leadership was lost.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeGone: the object does not exist; the handler was not called.
	OutcomeGone Outcome = "gone"
)

// Failed reports whether the handler was called and failed: the outcome is not success, requeue or gone.
func (o Outcome) Failed() bool {
	switch o {
	case OutcomeError, OutcomeTimeout, OutcomePanic, OutcomeTerminal, OutcomeCancelled:
		return true
	}
	return false
}

// errGone is returned when the object does not exist.
var errGone = errors.New("the object is gone")

// outcomeOf returns the outcome of a handler's error. err must be sound (see usercode.Error). For OutcomeRequeue it
// also returns the RequeueError.
func outcomeOf(err error, timedOut, cancelled bool) (Outcome, *RequeueError) {
	switch {
	case err == nil:
		return OutcomeSuccess, nil
	case err == errGone: //nolint:errorlint // the identical value, which no handler can return
		return OutcomeGone, nil
	case panicOf(err) != nil:
		return OutcomePanic, nil //nolint:nilerr // the Outcome stands for the error
	case soonest(err) != nil:
		return OutcomeRequeue, soonest(err)
	case isTerminal(err):
		return OutcomeTerminal, nil
	case cancelled:
		return OutcomeCancelled, nil
	case timedOut:
		return OutcomeTimeout, nil
	default:
		return OutcomeError, nil
	}
}

// OutcomeOf returns the outcome of a handler's error, for middleware: OutcomeTerminal for an error of Terminal,
// OutcomeRequeue if the error only requests another run. Only the controller detects the timeout and the cancellation
// of a run: they are errors here.
func OutcomeOf(err error) Outcome {
	if !usercode.Sound(err) {
		return OutcomeError
	}
	outcome, _ := outcomeOf(err, false, false)
	return outcome
}

// panicOf returns the HandlerPanicError in a sound error, or nil. Unlike errors.As it calls no As methods.
func panicOf(err error) *usercode.HandlerPanicError {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this walks the tree itself
		case *usercode.HandlerPanicError:
			return e
		case interface{ Unwrap() []error }:
			for _, branch := range e.Unwrap() {
				if panicked := panicOf(branch); panicked != nil {
					return panicked
				}
			}
			return nil
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// soonest returns the RequeueError in a sound error that contains no other error, or nil. If there are several, it
// returns the one with the earliest run.
func soonest(err error) *RequeueError {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case nil:
		return nil
	case *usercode.HandlerPanicError:
		return nil // regardless of the panic's value
	case *RequeueError:
		return e
	case interface{ Unwrap() []error }:
		var first *RequeueError
		for _, branch := range e.Unwrap() {
			requeue := soonest(branch)
			if requeue == nil {
				return nil
			}
			if first == nil || requeue.After < first.After {
				first = requeue
			}
		}
		return first
	}
	return soonest(errors.Unwrap(err))
}

// isTerminal reports whether a sound error is terminal: it is a usercode.TerminalError, wraps one, or joins errors that
// are all terminal or requeues, with at least one terminal error.
func isTerminal(err error) bool {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case nil:
		return false
	case *usercode.TerminalError:
		return e != nil
	case interface{ Unwrap() []error }:
		for _, branch := range e.Unwrap() {
			if !isTerminal(branch) && soonest(branch) == nil {
				return false
			}
		}
		return soonest(err) == nil
	}
	return isTerminal(errors.Unwrap(err))
}
