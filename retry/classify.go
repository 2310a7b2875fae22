package retry

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// Classify returns the class of err, or "" for nil. err may wrap or join other errors.
//
// The class comes from the first of these sources: the error itself (WithClass), the status of the API
// server's response, Go's network errors. If err joins several failures (errors.Join, Aggregate), the most
// permanent one determines the class: the handler cannot succeed before that failure ends. fmt.Errorf with
// several %w counts as one failure, and errors in it without a known class are ignored.
//
// context.Canceled is Default, because only the handler cancels its own requests. Classify never panics: an
// error whose methods panic is Default.
func Classify(err error) (class Class) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			class = Default
		}
	}()
	w := walker{remaining: usercode.MaxVisited}
	if class, _ = w.class(err); class == "" {
		return Default
	}
	return class
}

// walker visits an error and the errors that it wraps, the outermost first.
type walker struct{ remaining int }

// class returns the class of err, and false if it is unknown. A known class may be empty: see WithClass.
func (w *walker) class(err error) (class Class, known bool) {
	if w.remaining--; w.remaining < 0 || err == nil {
		return "", false
	}
	if classed, ok := err.(interface{ RetryClass() Class }); ok {
		return classed.RetryClass(), true
	}
	if status, ok := usercode.StatusOf(err); ok {
		return classOfStatus(status), true
	}
	inner, separate := usercode.Unwrap(err)
	for _, e := range inner {
		c, ok := w.class(e)
		if !ok && separate {
			c, ok = Default, true // a separate failure of unknown class
		}
		class, known = mostPermanent(class, c), known || ok
	}
	if !known {
		class = classOfNetworkError(err)
	}
	return class, known || class != ""
}

// classOfStatus returns the class of a response of the API server, never "". It uses apierrors, which
// handles a reason without a code (handwritten statuses) and a code without a reason (proxies).
func classOfStatus(status metav1.Status) Class {
	err := &apierrors.StatusError{ErrStatus: status}
	switch {
	case apierrors.IsConflict(err):
		return classOfConflict(status)
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case usercode.TerminatingNamespace(err) != "":
		return NamespaceTerminating
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return Forbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err),
		apierrors.IsRequestEntityTooLargeError(err):
		return Invalid
	case apierrors.IsGone(err), apierrors.IsResourceExpired(err):
		return Transient
	case apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err),
		apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), status.Code >= 500:
		if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
			return Throttled
		}
		return Transient
	}
	return Default
}

// classOfConflict returns Conflict for an old resourceVersion, which a new read resolves, and Invalid for a
// field that another manager owns, which a retry does not resolve.
func classOfConflict(status metav1.Status) Class {
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			if cause.Type == metav1.CauseTypeFieldManagerConflict {
				return Invalid
			}
		}
	}
	return Conflict
}

// classOfNetworkError returns the class of an error of a request that got no response, or "" for other
// errors.
func classOfNetworkError(err error) Class {
	switch known, temporary := usercode.NetworkError(err); {
	case !known:
		return ""
	case temporary:
		return Transient
	}
	return Default
}
