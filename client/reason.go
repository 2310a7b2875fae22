package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Reason says in one word why a request was not done, for callers that switch on it. How soon a
// request should be tried again is another question, which package retry answers.
type Reason string

// The reasons. Of one error that joins several failures, ReasonOf returns the one that stands
// first here: as long as that is there, the others do not matter.
const (
	// ReasonInvalid: the API server refuses what the request says (400, 405, 406, 413, 415, 422), and
	// will refuse the same again. CausesOf names the fields.
	ReasonInvalid Reason = "Invalid"
	// ReasonForbidden: 401 or 403: a Role, a quota, a token, a webhook, a namespace that is being
	// deleted.
	ReasonForbidden Reason = "Forbidden"
	// ReasonOther: everything else: mistakes that were found before any request, an interceptor's
	// refusal, ErrNoNamespace, a context that was cancelled, lost leadership, errors of no
	// request.
	ReasonOther Reason = "Other"
	// ReasonNotServed: the cluster has no such kind, or its objects no such subresource. It says
	// nothing about objects.
	ReasonNotServed Reason = "NotServed"
	// ReasonNotFound: there is no such object (ErrGone).
	ReasonNotFound Reason = "NotFound"
	// ReasonAlreadyExists: there is an object of that name.
	ReasonAlreadyExists Reason = "AlreadyExists"
	// ReasonThrottled: the API server asks to be asked less, or later: 429, or 5xx with a Retry-After.
	// RetryAfter has the time. Evictions that a PodDisruptionBudget forbids are of it.
	ReasonThrottled Reason = "Throttled"
	// ReasonUnreachable: no answer came: a connection that was refused, reset or cut, a name that
	// cannot be resolved, a time limit of the request. A write may have been done.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonTransient: the API server could not do it now (5xx), no longer remembers what was asked
	// for (410), or a time limit of the caller's has passed.
	ReasonTransient Reason = "Transient"
	// ReasonConflict: another write came first (ErrChanged, ErrReplaced), or other field managers have
	// fields that were applied.
	ReasonConflict Reason = "Conflict"
)

// reasons are all of them, in the order of the constants.
func reasons() []Reason {
	return []Reason{
		ReasonInvalid, ReasonForbidden, ReasonOther, ReasonNotServed, ReasonNotFound,
		ReasonAlreadyExists, ReasonThrottled, ReasonUnreachable, ReasonTransient, ReasonConflict,
	}
}

// ReasonOf returns why err came, whatever it is wrapped in; "" for nil.
//
//	switch client.ReasonOf(err) {
//	case client.ReasonNotFound:
//		return nil
//	case client.ReasonInvalid:
//		return controller.Terminal(err)
//	}
//	return err
//
// It knows the errors of this package, of package kube and of apimachinery, and those of Go's
// network connections; errors.Is, errors.As and the functions of apimachinery's package errors
// see them too.
func ReasonOf(err error) Reason {
	found := failuresOf(err)
	for _, reason := range reasons() {
		if slices.Contains(found, reason) {
			return reason
		}
	}
	return ""
}

// IgnoreNotFound returns nil for an error that says that there is no such object, and nothing
// else; other errors as they are. A namespace that is missing (ErrNoNamespace), and a kind that
// is not served, are other errors.
func IgnoreNotFound(err error) error { return ignore(err, ReasonNotFound) }

// IgnoreAlreadyExists returns nil for an error that says that there is an object of that name,
// and nothing else; other errors as they are.
func IgnoreAlreadyExists(err error) error { return ignore(err, ReasonAlreadyExists) }

// ignore returns nil when every failure in err is of that reason.
func ignore(err error, reason Reason) error {
	if slices.ContainsFunc(failuresOf(err), func(r Reason) bool { return r != reason }) {
		return err
	}
	return nil
}

// Cause is one thing that the API server finds wrong with an object.
type Cause struct {
	// Field is its path, as in "spec.replicas" or "spec.template.spec.containers[0].image".
	// Empty: the API server named none.
	Field string
	// Type says in one word what is wrong.
	Type metav1.CauseType
	// Message says it to people.
	Message string
}

// String returns "field: message".
func (c Cause) String() string {
	if c.Field == "" {
		return c.Message
	}
	return c.Field + ": " + c.Message
}

// CausesOf returns what the API server finds wrong with the object of a request that is invalid,
// or, where field managers are in conflict, the fields that others have. Nil: it said nothing.
func CausesOf(err error) []Cause {
	var causes []Cause
	for status := range answersOf(err) {
		if status.Details == nil || apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: status}, metav1.CauseTypeUnexpectedServerResponse) {
			continue
		}
		for _, c := range status.Details.Causes {
			causes = append(causes, Cause{Field: c.Field, Type: c.Type, Message: c.Message})
		}
	}
	return causes
}

// RetryAfter returns for how long the API server asks to be left alone: the longest Retry-After
// of the answers in err. It returns false when there is none.
func RetryAfter(err error) (after time.Duration, ok bool) {
	for status := range answersOf(err) {
		if status.Details != nil {
			after = max(after, time.Duration(status.Details.RetryAfterSeconds)*time.Second)
		}
	}
	return after, after > 0
}

// answersOf yields what the API server said, of each answer that err wraps or joins.
func answersOf(err error) func(yield func(metav1.Status) bool) {
	return func(yield func(metav1.Status) bool) { visit(err, yield) }
}

func visit(err error, yield func(metav1.Status) bool) bool {
	if status, ok := err.(apierrors.APIStatus); ok {
		return yield(status.Status())
	}
	inner, _ := unwrap(err)
	for _, e := range inner {
		if !visit(e, yield) {
			return false
		}
	}
	return true
}

// failuresOf returns the reasons of the failures that err consists of; none for nil.
func failuresOf(err error) []Reason {
	if err == nil {
		return nil
	}
	if found := known(err); len(found) > 0 {
		return found
	}
	return []Reason{ReasonOther}
}

// known returns the reasons that are known of err and of what it wraps: the outermost word counts.
func known(err error) []Reason {
	if err == nil {
		return nil
	}
	if reason := reasonOfOne(err); reason != "" {
		return []Reason{reason}
	}
	inner, several := unwrap(err)
	var all []Reason
	for _, e := range inner {
		if several {
			all = append(all, failuresOf(e)...)
			continue
		}
		// Words for one failure: the first one that means something.
		if all = known(e); len(all) > 0 {
			break
		}
	}
	return all
}

// unwrap returns what err wraps, and whether these are failures of their own (errors.Join)
// rather than words for one (fmt.Errorf with several %w).
func unwrap(err error) (inner []error, several bool) {
	switch e := err.(type) { //nolint:errorlint // one step at a time
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}, false
	case interface{ Unwrap() []error }:
		words := reflect.TypeOf(fmt.Errorf("%w, %w", io.EOF, io.EOF))
		return e.Unwrap(), reflect.TypeOf(err) != words
	case interface{ Errors() []error }: // apimachinery's Aggregate
		return e.Errors(), true
	}
	return nil, false
}

// reasonOfOne returns the reason that err itself gives, or "".
func reasonOfOne(err error) Reason {
	switch err {
	case ErrGone: //nolint:errorlint // who calls it unwraps
		return ReasonNotFound
	case ErrChanged, ErrReplaced:
		return ReasonConflict
	case kube.ErrNotServed:
		return ReasonNotServed
	case ErrNoNamespace, kube.ErrLeadershipLost, context.Canceled:
		return ReasonOther
	case context.DeadlineExceeded:
		return ReasonTransient
	case io.EOF, io.ErrUnexpectedEOF, net.ErrClosed:
		return ReasonUnreachable
	}
	switch e := err.(type) { //nolint:errorlint // the same
	case apierrors.APIStatus:
		return reasonOfStatus(e.Status())
	case *url.Error:
		return reasonOfCall(e)
	case syscall.Errno: // which is a net.Error, also when it is of a file
		switch e {
		case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT:
			return ReasonUnreachable
		}
		return ""
	case net.Error: // *net.OpError, *net.DNSError
		return ReasonUnreachable
	}
	// net/http's HTTP/2 has neither types nor values for an answer that was cut.
	if text := err.Error(); strings.HasPrefix(text, "http2: ") || strings.HasPrefix(text, "stream error: stream ID ") {
		return ReasonUnreachable
	}
	return ""
}

// reasonOfCall returns the reason of an error that came in place of an answer.
func reasonOfCall(err *url.Error) Reason {
	switch {
	case err.Op == "parse": // a text that is no URL; nothing was sent
		return ""
	case errors.Is(err, kube.ErrLeadershipLost), errors.Is(err, context.Canceled):
		return ReasonOther
	}
	return ReasonUnreachable
}

// reasonOfStatus returns the reason of an answer. Answers made by hand have a reason without a
// code, those of proxies a code without a reason; apierrors knows both.
func reasonOfStatus(status metav1.Status) Reason {
	err := &apierrors.StatusError{ErrStatus: status}
	delayed := status.Details != nil && status.Details.RetryAfterSeconds > 0
	switch {
	case apierrors.IsNotFound(err):
		return ReasonNotFound
	case apierrors.IsAlreadyExists(err):
		return ReasonAlreadyExists
	case apierrors.IsConflict(err):
		return ReasonConflict
	case apierrors.IsTooManyRequests(err):
		return ReasonThrottled
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return ReasonForbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err), apierrors.IsRequestEntityTooLargeError(err):
		return ReasonInvalid
	case apierrors.IsGone(err), apierrors.IsResourceExpired(err):
		return ReasonTransient
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), status.Code >= 500:
		if delayed {
			return ReasonThrottled
		}
		return ReasonTransient
	}
	return ReasonOther
}
