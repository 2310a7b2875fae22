package controller

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// maxDetail is the longest detail of a cause that is kept, in bytes.
const maxDetail = 256

// RequeueAfter is a handler's answer that asks for another run after d. It is not a
// failure: the retry count is reset, and nothing is logged as an error.
//
// It may be wrapped. Joined with a real error (errors.Join), the error wins: the run has
// failed and is retried. A change of the object, or a resync, may run the key before; the
// answer of that run then replaces this one. A d of zero or less means at once.
//
// A reason, if there is one, becomes the detail of the next run's cause, so it should be
// one of few: RequeueAfter(time.Minute, "the certificate is being issued").
func RequeueAfter(d time.Duration, reason ...string) error {
	return &RequeueError{After: d, Reason: strings.Join(reason, " ")}
}

// RequeueError is what RequeueAfter returns.
type RequeueError struct {
	// After is how long the key waits.
	After time.Duration
	// Reason is shown as the detail of the next run's cause. Optional.
	Reason string
}

// Error implements error.
func (e *RequeueError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("requeue after %s: %s", e.After, e.Reason)
	}
	return fmt.Sprintf("requeue after %s", e.After)
}

// Terminal marks err as one that trying again cannot mend: the key is not run again,
// not even by resync, until its object changes, a source asks for it, one of its timers fires, or
// the controller is started again. Of an object that has a generation, a change is what makes another one;
// of others (a ConfigMap), whatever changes. It counts as a failure. Terminal(nil) is nil.
func Terminal(err error) error {
	if err == nil {
		return nil
	}
	return &TerminalError{Err: err}
}

// TerminalError is what Terminal returns.
type TerminalError struct{ Err error }

// Error implements error.
func (e *TerminalError) Error() string {
	if e.Err == nil {
		return "terminal"
	}
	return "terminal: " + usercode.Text(e.Err)
}

// Unwrap gives errors.Is and errors.As the marked error.
func (e *TerminalError) Unwrap() error { return e.Err }

// PanicError is the error of a run whose handler panicked.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the panic, as runtime/debug.Stack prints it.
	Stack []byte
}

// Error implements error. The stack is not in it: it would be logged at every retry.
func (e *PanicError) Error() string { return "handler panicked: " + usercode.ValueText(e.Value) }

// Unwrap returns the value of the panic when it was an error, unless that one wraps itself.
func (e *PanicError) Unwrap() error { return usercode.ValueError(e.Value) }

// RecoverPanic turns a panic into a *PanicError in err. It has to be deferred itself:
// defer RecoverPanic(&err).
func RecoverPanic(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}

// Outcome is how a run ended. The set is small and fixed, so that it can be a metric's
// label.
type Outcome string

// The outcomes.
const (
	// OutcomeSuccess: the handler returned nil.
	OutcomeSuccess Outcome = "success"
	// OutcomeRequeue: the handler returned RequeueAfter.
	OutcomeRequeue Outcome = "requeue"
	// OutcomeError: the handler returned an error, and will be tried again.
	OutcomeError Outcome = "error"
	// OutcomeTimeout: as OutcomeError, after Config.Timeout had passed.
	OutcomeTimeout Outcome = "timeout"
	// OutcomePanic: as OutcomeError, by a panic.
	OutcomePanic Outcome = "panic"
	// OutcomeTerminal: the handler returned Terminal.
	OutcomeTerminal Outcome = "terminal"
	// OutcomeCancelled: the handler was cancelled at the end of the drain time, or because
	// leadership was lost, and returned an error.
	OutcomeCancelled Outcome = "cancelled"
	// OutcomeGone: the object was gone; the handler was not called.
	OutcomeGone Outcome = "gone"
)

// Outcomes lists every Outcome, for whoever wants to show zeros.
func Outcomes() []Outcome {
	return []Outcome{
		OutcomeSuccess, OutcomeRequeue, OutcomeError, OutcomeTimeout,
		OutcomePanic, OutcomeTerminal, OutcomeCancelled, OutcomeGone,
	}
}

// Failed reports whether the handler was called and returned an error that is none of the
// answers that are no failures.
func (o Outcome) Failed() bool {
	switch o {
	case OutcomeError, OutcomeTimeout, OutcomePanic, OutcomeTerminal, OutcomeCancelled:
		return true
	}
	return false
}

// errGone is the answer for an object that is gone.
var errGone = errors.New("the object is gone")

// outcomeOf reads a handler's answer, a sound one (see usercode.Error), and returns the
// RequeueError in it, if that is what it comes to.
func outcomeOf(err error, timedOut, cancelled bool) (Outcome, *RequeueError) {
	switch {
	case err == nil:
		return OutcomeSuccess, nil
	case err == errGone: //nolint:errorlint // the very value, which no handler can return
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

// OutcomeOf returns what a handler's answer comes to, for middleware. A run's own time limit, and
// the end of the process's work, are known to the controller alone: they are errors here.
func OutcomeOf(err error) Outcome {
	if !usercode.Sound(err) {
		return OutcomeError
	}
	outcome, _ := outcomeOf(err, false, false)
	return outcome
}

// IsRequeue reports whether err, a handler's answer, asks for another run and says
// nothing else: it is a RequeueError, or wraps one, or joins errors of which each does.
func IsRequeue(err error) bool { return usercode.Sound(err) && soonest(err) != nil }

// panicOf returns the PanicError in a sound error; nil: there is none. Unlike errors.As it calls
// no As methods.
func panicOf(err error) *PanicError {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this walks the tree itself
		case *PanicError:
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

// soonest returns the RequeueError that a sound error comes down to, of several the one that asks
// for the earliest run; nil when there is anything else in err.
func soonest(err error) *RequeueError {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case nil:
		return nil
	case *PanicError:
		return nil // whatever was panicked with
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

// isTerminal reports whether a sound error is terminal: it is a TerminalError, or wraps one, or
// joins errors of which each is terminal or asks for another run only.
func isTerminal(err error) bool {
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case nil:
		return false
	case *TerminalError:
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
