package client

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Reason is the reason why a request failed, for callers that switch on it. Package retry decides when to retry.
type Reason string

// The reasons. For an error that joins several failures, ReasonOf returns the first one in this order: the most
// permanent one.
const (
	// ReasonInvalid: the API server rejects the content of the request (400, 405, 406, 413, 415, 422), and will
	// reject the same request again. StatusCauses names the fields.
	ReasonInvalid Reason = "Invalid"
	// ReasonForbidden: 401 or 403, caused by a Role, a quota, a token, a webhook, or a namespace that is being
	// deleted.
	ReasonForbidden Reason = "Forbidden"
	// ReasonOther: all other errors: mistakes found before any request, a rejection by an interceptor,
	// ErrNoNamespace, a webhook that did not find something, a cancelled context, lost leadership, errors
	// without a request.
	ReasonOther Reason = "Other"
	// ReasonNotServed: the cluster does not serve the kind, or the kind has no such subresource. The state of
	// objects is unknown.
	ReasonNotServed Reason = "NotServed"
	// ReasonNotFound: the object does not exist (ErrGone).
	ReasonNotFound Reason = "NotFound"
	// ReasonAlreadyExists: an object with this name exists.
	ReasonAlreadyExists Reason = "AlreadyExists"
	// ReasonThrottled: the API server asks for fewer requests: 429, or 5xx with a Retry-After, which
	// apierrors.SuggestsClientDelay returns. Evictions that a PodDisruptionBudget forbids have this reason.
	ReasonThrottled Reason = "Throttled"
	// ReasonUnreachable: no response: a connection that was refused, reset or closed, a name that does not
	// resolve, a timeout of the request. A write may have been done.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonTransient: the API server failed temporarily (5xx), has dropped the requested state (410), or the
	// caller's deadline has passed.
	ReasonTransient Reason = "Transient"
	// ReasonConflict: another write came first (ErrChanged, ErrReplaced), or other field managers own applied
	// fields.
	ReasonConflict Reason = "Conflict"
)

// reasons returns all reasons in the order of the constants.
func reasons() []Reason {
	return []Reason{
		ReasonInvalid, ReasonForbidden, ReasonOther, ReasonNotServed, ReasonNotFound,
		ReasonAlreadyExists, ReasonThrottled, ReasonUnreachable, ReasonTransient, ReasonConflict,
	}
}

// ReasonOf returns the reason of err, or of an error that it wraps; "" for nil.
//
//	switch client.ReasonOf(err) {
//	case client.ReasonNotFound:
//		return nil
//	case client.ReasonInvalid:
//		return controller.Terminal(err)
//	}
//	return err
//
// It recognizes the errors of this package, of package kube and of apimachinery, and Go's network errors.
// errors.Is, errors.As and the functions of apimachinery's package errors work on them too.
func ReasonOf(err error) Reason {
	found := failuresOf(err)
	for _, reason := range reasons() {
		if slices.Contains(found, reason) {
			return reason
		}
	}
	return ""
}

// IgnoreNotFound returns nil for an error that only means that the object does not exist, and any other error
// unchanged: also a missing namespace (ErrNoNamespace), a kind that is not served, and the rejection by a
// webhook that did not find something.
func IgnoreNotFound(err error) error { return ignore(err, ReasonNotFound) }

// IgnoreAlreadyExists returns nil for an error that only means that an object with this name exists, and any other
// error unchanged.
func IgnoreAlreadyExists(err error) error { return ignore(err, ReasonAlreadyExists) }

// ignore returns nil if all failures in err have this reason.
func ignore(err error, reason Reason) error {
	if slices.ContainsFunc(failuresOf(err), func(r Reason) bool { return r != reason }) {
		return err
	}
	return nil
}

// StatusCauses returns the causes in the API server's responses: the invalid fields of an object, or the fields
// that other managers own. Nil if the API server names none.
func StatusCauses(err error) []metav1.StatusCause {
	var causes []metav1.StatusCause
	responses := retryrules.Failures(err, func(err error, _ retry.Class) apierrors.APIStatus {
		response, _ := err.(apierrors.APIStatus)
		return response
	})
	for _, response := range responses {
		if response == nil {
			continue
		}
		status := response.Status()
		if status.Details == nil || apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: status},
			metav1.CauseTypeUnexpectedServerResponse) {
			continue
		}
		causes = append(causes, status.Details.Causes...)
	}
	return causes
}

// failuresOf returns the reasons of the failures in err; none for nil.
func failuresOf(err error) []Reason {
	found := retryrules.Failures(err, reasonOfOne)
	for i := range found {
		found[i] = cmp.Or(found[i], ReasonOther)
	}
	return found
}

// reasonOfOne returns the reason of err itself, without the errors that it wraps, or "". class is its class in
// package retry.
func reasonOfOne(err error, class retry.Class) Reason {
	switch err {
	case ErrGone: //nolint:errorlint // retryrules.Failures unwraps
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
		return reasonOfResponse(err, class)
	case class == retry.Transient:
		return ReasonUnreachable
	}
	return ReasonOther
}

// reasonOfResponse returns the reason of a response of the API server.
func reasonOfResponse(err error, class retry.Class) Reason {
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
	case retry.Forbidden, retry.NamespaceTerminating:
		return ReasonForbidden
	case retry.Throttled:
		return ReasonThrottled
	case retry.Transient:
		return ReasonTransient
	}
	return ReasonOther
}
