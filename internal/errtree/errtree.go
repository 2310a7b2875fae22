// Package errtree reads errors that wrap or join other errors, and joins the mistakes in a Config. Packages retry and
// internal/retryrules classify them.
package errtree

import (
	"fmt"
	"io"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxErrors bounds the number of errors that the readers of one error visit. An error may wrap itself, and
// nested joins grow exponentially.
const MaxErrors = 1000

// Visit calls f for err and for all errors that it wraps. It stops if one of their methods panics.
func Visit(err error, f func(error)) {
	defer func() { _ = recover() }() // the caller keeps the results so far
	remaining := MaxErrors
	var visitAll func(error)
	visitAll = func(err error) {
		if remaining--; remaining < 0 || err == nil {
			return
		}
		f(err)
		inner, _ := Unwrap(err)
		for _, e := range inner {
			visitAll(e)
		}
	}
	visitAll(err)
}

// Unwrap returns the errors that err wraps, and whether they are separate failures: those of errors.Join
// and Aggregate are, those of fmt.Errorf are not.
func Unwrap(err error) (inner []error, separate bool) {
	switch e := err.(type) { //nolint:errorlint // one step at a time
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}, false
	case interface{ Unwrap() []error }:
		wrapErrors := reflect.TypeOf(fmt.Errorf("%w, %w", io.EOF, io.EOF))
		return e.Unwrap(), reflect.TypeOf(err) != wrapErrors
	case interface{ Errors() []error }: // apimachinery's Aggregate
		return e.Errors(), true
	}
	return nil, false
}

// Status returns the status of err itself if it is a response of the API server.
func Status(err error) (metav1.Status, bool) {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status(), true
	}
	return metav1.Status{}, false
}
