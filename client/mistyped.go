package client

import (
	"net/http"
	"strings"

	"github.com/evenkeel-go/evenkeel/retry"
)

// mistypedError says that a configuration does not match the schema of its kind. The API server
// answers that with status 500 (kubernetes/kubernetes, apimachinery's structuredmerge.go), which is
// otherwise the status of faults that pass.
type mistypedError struct{ err error }

// Error implements error.
func (e *mistypedError) Error() string {
	return "the configuration does not match the schema of its kind: " + e.err.Error()
}

// Unwrap returns the API server's answer.
func (e *mistypedError) Unwrap() error { return e.err }

// RetryClass implements retry.Classed.
func (e *mistypedError) RetryClass() retry.Class { return retry.Invalid }

// asMistyped recognises the answer to a configuration that cannot be typed. The API has no code for
// it; the live object, which may be the untyped one, is named in other words.
func asMistyped(err error) error {
	status := answerOf(err)
	if status.Code != http.StatusInternalServerError || !strings.HasPrefix(status.Message, "failed to create typed patch object ") {
		return err
	}
	return &mistypedError{err}
}

// tooLargeError says that an object is too large for etcd. The API server answers that with status 500
// in the words of etcd and of its client, and the status is otherwise that of faults that pass.
type tooLargeError struct{ err error }

// Error implements error.
func (e *tooLargeError) Error() string { return "the object is too large for etcd: " + e.err.Error() }

// Unwrap returns the API server's answer.
func (e *tooLargeError) Unwrap() error { return e.err }

// RetryClass implements retry.Classed.
func (e *tooLargeError) RetryClass() retry.Class { return retry.Invalid }

// asTooLarge recognises the answer to a write of an object that etcd does not take. A list may exceed
// the same limits: it was "received", not sent.
func asTooLarge(err error) error {
	message := answerOf(err).Message
	if strings.Contains(message, "trying to send message larger than max") || strings.Contains(message, "etcdserver: request is too large") {
		return &tooLargeError{err}
	}
	return err
}
