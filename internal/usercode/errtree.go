package usercode

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxVisited bounds the number of errors that the readers of one error visit. An error may wrap itself, and
// nested joins grow exponentially.
const MaxVisited = 1000

// VisitErrors calls f for err and for all errors that it wraps. It stops if one of their methods panics.
func VisitErrors(err error, f func(error)) {
	defer func() { _ = recover() }() // the caller keeps the results so far
	remaining := MaxVisited
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

// StatusOf returns the status of err itself if it is a response of the API server.
func StatusOf(err error) (metav1.Status, bool) {
	if status, ok := err.(apierrors.APIStatus); ok {
		return status.Status(), true
	}
	return metav1.Status{}, false
}

// TerminatingNamespace returns the name of the namespace in which an object could not be created because the namespace
// is being deleted, if err, or an error that it wraps, is such a response of the API server; otherwise "".
func TerminatingNamespace(err error) (namespace string) {
	VisitErrors(err, func(err error) {
		status, ok := StatusOf(err)
		if !ok || status.Details == nil || namespace != "" {
			return
		}
		for _, cause := range status.Details.Causes {
			if cause.Type == corev1.NamespaceTerminatingCause { // "namespace shop is being terminated"
				name, _ := strings.CutPrefix(cause.Message, "namespace ")
				namespace, _, _ = strings.Cut(name, " ")
				namespace = cmp.Or(namespace, "unknown")
			}
		}
	})
	return namespace
}
