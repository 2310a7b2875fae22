package client

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Reason says in one word why a request was not done, for callers that switch on it. How soon a
// request should be tried again is another question, which package retry answers.
type Reason string

// The reasons. Of one error that joins several failures, ReasonOf returns the one that stands
// first here: as long as that is there, the others do not matter.
const (
	// ReasonInvalid: the API server refuses what the request says (400, 405, 406, 413, 415, 422), and
	// will refuse the same again. StatusCauses names the fields.
	ReasonInvalid Reason = "Invalid"
	// ReasonForbidden: 401 or 403: a Role, a quota, a token, a webhook, a namespace that is being
	// deleted.
	ReasonForbidden Reason = "Forbidden"
	// ReasonOther: everything else: mistakes that were found before any request, an interceptor's
	// refusal, ErrNoNamespace, what a webhook did not find that is not the object, a context that
	// was cancelled, lost leadership, errors of no request.
	ReasonOther Reason = "Other"
	// ReasonNotServed: the cluster has no such kind, or its objects no such subresource. It says
	// nothing about objects.
	ReasonNotServed Reason = "NotServed"
	// ReasonNotFound: there is no such object (ErrGone).
	ReasonNotFound Reason = "NotFound"
	// ReasonAlreadyExists: there is an object of that name.
	ReasonAlreadyExists Reason = "AlreadyExists"
	// ReasonThrottled: the API server asks to be asked less, or later: 429, or 5xx with a Retry-After.
	// retry.RetryAfter returns the delay. Evictions that a PodDisruptionBudget forbids are of it.
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
// else; other errors as they are. A namespace that is missing (ErrNoNamespace), a kind that is
// not served, and a webhook's refusal because something else is missing, are other errors.
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

// StatusCauses returns what the API server finds wrong with the object of a request that is invalid,
// or, where field managers are in conflict, the fields that others have. Nil: it said nothing.
func StatusCauses(err error) []metav1.StatusCause {
	var causes []metav1.StatusCause
	answers := retry.Failures(err, func(err error, _ retry.Class) apierrors.APIStatus {
		answer, _ := err.(apierrors.APIStatus)
		return answer
	})
	for _, answer := range answers {
		if answer == nil {
			continue
		}
		status := answer.Status()
		if status.Details == nil || apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: status}, metav1.CauseTypeUnexpectedServerResponse) {
			continue
		}
		causes = append(causes, status.Details.Causes...)
	}
	return causes
}

// failuresOf returns the reasons of the failures that err consists of; none for nil.
func failuresOf(err error) []Reason {
	found := retry.Failures(err, reasonOfOne)
	for i := range found {
		found[i] = cmp.Or(found[i], ReasonOther)
	}
	return found
}

// reasonOfOne returns the reason that err itself gives, whatever it wraps, or "". class is what
// package retry knows of it.
func reasonOfOne(err error, class retry.Class) Reason {
	switch err {
	case ErrGone: //nolint:errorlint // retry.Failures unwraps
		return ReasonNotFound
	case ErrChanged, ErrReplaced:
		return ReasonConflict
	case kube.ErrNotServed:
		return ReasonNotServed
	case ErrNoNamespace, errElsewhere:
		return ReasonOther
	case context.DeadlineExceeded:
		return ReasonTransient
	}
	_, answered := err.(apierrors.APIStatus)
	switch {
	case class == "":
		return ""
	case answered:
		return reasonOfAnswer(err, class)
	case class == retry.Transient:
		return ReasonUnreachable
	}
	return ReasonOther
}

// reasonOfAnswer returns the reason of an answer of the API server.
func reasonOfAnswer(err error, class retry.Class) Reason {
	switch {
	case apierrors.IsNotFound(err):
		return ReasonNotFound
	case apierrors.IsAlreadyExists(err):
		return ReasonAlreadyExists
	case apierrors.IsConflict(err):
		return ReasonConflict
	}
	switch class {
	case retry.Invalid:
		return ReasonInvalid
	case retry.Forbidden:
		return ReasonForbidden
	case retry.Throttled:
		return ReasonThrottled
	case retry.Transient:
		return ReasonTransient
	}
	return ReasonOther
}
