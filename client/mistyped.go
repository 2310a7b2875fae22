package client

import (
	"net/http"
	"strings"

	"github.com/evenkeel-go/evenkeel/retry"
)

// rejectedError reports that the API server has rejected an object with status 500, which otherwise means a temporary
// failure.
type rejectedError struct {
	reason string
	err    error
}

// Error implements error.
func (e *rejectedError) Error() string { return e.reason + ": " + e.err.Error() }

// Unwrap returns the API server's response.
func (e *rejectedError) Unwrap() error { return e.err }

// RetryClass determines the class for package retry.
func (e *rejectedError) RetryClass() retry.Class { return retry.Invalid }

// asMistyped recognizes the response to a configuration that does not match the schema (kubernetes/kubernetes,
// apimachinery's structuredmerge.go). The API has no code for it. The live object may also be the one that does not
// match, but then the message differs.
func asMistyped(err error) error {
	status := statusOf(err)
	if status.Code != http.StatusInternalServerError ||
		!strings.HasPrefix(status.Message, "failed to create typed patch object ") {
		return err
	}
	return &rejectedError{"the configuration does not match the schema of its kind", err}
}

// asTooLarge recognizes the response to a write of an object that is too large for etcd, with the message of etcd or of
// its client. A list may exceed the same limits, but its message contains "received", not "send".
func asTooLarge(err error) error {
	message := statusOf(err).Message
	if strings.Contains(message, "trying to send message larger than max") ||
		strings.Contains(message, "etcdserver: request is too large") {
		return &rejectedError{"the object is too large for etcd", err}
	}
	return err
}
