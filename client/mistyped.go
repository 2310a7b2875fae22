package client

import (
	"net/http"
	"strings"

	"github.com/evenkeel-go/evenkeel/retry"
)

// mistypedError reports that a configuration does not match the schema of its kind. The API server returns status 500
// for it (kubernetes/kubernetes, apimachinery's structuredmerge.go), which otherwise means a temporary failure.
type mistypedError struct{ err error }

// Error implements error.
func (e *mistypedError) Error() string {
	return "the configuration does not match the schema of its kind: " + e.err.Error()
}

// Unwrap returns the API server's response.
func (e *mistypedError) Unwrap() error { return e.err }

// RetryClass implements retry.Classed.
func (e *mistypedError) RetryClass() retry.Class { return retry.Invalid }

// asMistyped recognizes the response to a configuration that does not match the schema. The API has no code for it. The
// live object may also be the one that does not match, but then the message differs.
func asMistyped(err error) error {
	status := statusOf(err)
	if status.Code != http.StatusInternalServerError ||
		!strings.HasPrefix(status.Message, "failed to create typed patch object ") {
		return err
	}
	return &mistypedError{err}
}

// tooLargeError reports that an object is too large for etcd. The API server returns status 500 for it, with the
// message of etcd or of its client. The status otherwise means a temporary failure.
type tooLargeError struct{ err error }

// Error implements error.
func (e *tooLargeError) Error() string { return "the object is too large for etcd: " + e.err.Error() }

// Unwrap returns the API server's response.
func (e *tooLargeError) Unwrap() error { return e.err }

// RetryClass implements retry.Classed.
func (e *tooLargeError) RetryClass() retry.Class { return retry.Invalid }

// asTooLarge recognizes the response to a write of an object that is too large for etcd. A list may exceed the same
// limits, but its message contains "received", not "send".
func asTooLarge(err error) error {
	message := statusOf(err).Message
	if strings.Contains(message, "trying to send message larger than max") ||
		strings.Contains(message, "etcdserver: request is too large") {
		return &tooLargeError{err}
	}
	return err
}
