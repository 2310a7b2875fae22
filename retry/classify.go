package retry

import (
	"context"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Classify returns the class of err, which may be wrapped and joined; "" for nil.
//
// What an error says itself (Classed) counts first, then what the API server answered, then
// what is known of Go's network errors. Of several failures in one error (errors.Join, and
// what else lists errors) the most permanent one gives the class: the run cannot succeed
// before that one is gone. fmt.Errorf with several %w is one failure in several words, of
// which those that mean nothing here do not count.
//
// A cancelled context is Default: it was the handler's own doing. It does not panic, even if
// methods of err do: such an error is Default.
func Classify(err error) (class Class) {
	if err == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			class = Default
		}
	}()
	w := walk{left: maxErrors}
	if class, _ = w.class(err); class == "" {
		return Default
	}
	return class
}

// RetryAfter returns how long the server asks to be left alone: the longest Retry-After of the
// answers in err, and of other errors that have a method RetryAfter() time.Duration. It
// returns false when there is none.
func RetryAfter(err error) (after time.Duration, ok bool) { //nolint:revive // the header's name is known to everybody
	visit(err, func(err error) {
		if status, is := statusOf(err); is && status.Details != nil {
			after = max(after, time.Duration(status.Details.RetryAfterSeconds)*time.Second)
		} else if delayed, is := err.(interface{ RetryAfter() time.Duration }); is {
			after = max(after, delayed.RetryAfter())
		}
	})
	return after, after > 0
}

// Fields returns the fields that the API server named when it refused an object: those of a
// 422, and those that an apply did not get from their managers. Each is named once, in the
// server's order: "spec.replicas", ".spec.template". Nil: none was named.
func Fields(err error) []string {
	var fields []string
	visit(err, func(err error) {
		status, ok := statusOf(err)
		if !ok || status.Details == nil || classOfStatus(status) != Invalid {
			return
		}
		for _, cause := range status.Details.Causes {
			if cause.Field != "" && !slices.Contains(fields, cause.Field) {
				fields = append(fields, cause.Field)
			}
		}
	})
	return fields
}

// maxErrors bounds how many errors one error is taken to consist of. Errors that wrap
// themselves have no end, and joins of joins of many failed children none that matters.
const maxErrors = 1000

// walk goes through an error from the outside in.
type walk struct{ left int }

// class returns the class of err, and false when nothing is known of it. A known class may be
// empty: see Classed.
func (w *walk) class(err error) (class Class, known bool) {
	if w.left--; w.left < 0 || err == nil {
		return "", false
	}
	if classed, ok := err.(Classed); ok { //nolint:errorlint // the walk itself unwraps
		return classed.RetryClass(), true
	}
	if status, ok := statusOf(err); ok {
		return classOfStatus(status), true
	}
	inner, several := unwrap(err)
	for _, e := range inner {
		c, ok := w.class(e)
		if !ok && several {
			c, ok = Default, true // a failure of its own, of which nothing is known
		}
		class, known = worse(class, c), known || ok
	}
	if !known {
		class = classOfCall(err)
	}
	return class, known || class != ""
}

// visit calls f for err and for all that it wraps, and survives what their methods do.
func visit(err error, f func(error)) {
	defer func() { _ = recover() }() // the answer is then what was found so far
	left := maxErrors
	var visitAll func(error)
	visitAll = func(err error) {
		if left--; left < 0 || err == nil {
			return
		}
		f(err)
		inner, _ := unwrap(err)
		for _, e := range inner {
			visitAll(e)
		}
	}
	visitAll(err)
}

func statusOf(err error) (metav1.Status, bool) {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status(), true
	}
	return metav1.Status{}, false
}

// classOfStatus returns the class of an answer of the API server. It never is "". Answers made
// by hand have a reason without a code, those of proxies a code without a reason; apierrors
// knows both.
func classOfStatus(status metav1.Status) Class {
	err := &apierrors.StatusError{ErrStatus: status}
	switch {
	case apierrors.IsConflict(err):
		return classOfConflict(status)
	case apierrors.IsTooManyRequests(err):
		return Throttled
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return Forbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsMethodNotSupported(err),
		apierrors.IsNotAcceptable(err), apierrors.IsUnsupportedMediaType(err), apierrors.IsRequestEntityTooLargeError(err):
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

// classOfConflict tells an old resourceVersion, which a new read mends, from a field that
// belongs to another manager, which trying again does not.
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

// classOfCall returns the class of an error that came instead of an answer, or "".
func classOfCall(err error) Class {
	switch err { //nolint:errorlint // the walk itself unwraps
	case context.Canceled:
		return Default
	case context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed:
		return Transient
	}
	switch e := err.(type) { //nolint:errorlint // the same
	case *url.Error:
		if e.Op == "parse" { // url.Parse's, the only one that no request was made for
			return ""
		}
		return Transient
	case syscall.Errno:
		if isUnreachable(e) {
			return Transient
		}
		return ""
	case *net.ParseError, *net.AddrError, net.UnknownNetworkError, net.InvalidAddrError:
		// Texts that are no addresses. They are a net.Error, and stay what they are.
		return ""
	case net.Error: // *net.OpError, *net.DNSError and everything that timed out
		return Transient
	}
	if inner, _ := unwrap(err); len(inner) == 0 && isCutStream(err.Error()) {
		return Transient // only of the innermost: of many joined errors the text alone may be endless
	}
	return ""
}

func isUnreachable(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN, syscall.ENETDOWN:
		return true
	}
	return false
}

// isCutStream knows the errors of net/http's HTTP/2, which have neither types nor values that
// others could compare.
func isCutStream(message string) bool {
	return strings.HasPrefix(message, "http2: ") || strings.HasPrefix(message, "stream error: stream ID ")
}
