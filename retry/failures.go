package retry

import (
	"fmt"
	"io"
	"reflect"
)

// Failures classifies each separate failure in err with read, and returns one result per failure; none if
// err is nil. errors.Join and Aggregate contain separate failures. fmt.Errorf with several %w is one failure.
//
// Failures calls read for the errors of one failure, the outermost first, until it returns a value other
// than the zero M. A failure for which it returns only zero values counts as the zero M. class is the class
// of the error itself, without the errors that it wraps: of a response of the API server, of the end of a
// context, or of a network error. (The class of a network error depends on its cause: a cancelled request is
// Default.) It is "" for all other errors. Failures ignores RetryClass of Classed errors.
//
// Failures visits at most as many errors as Classify. If a method of err panics, the result is one zero M.
func Failures[M comparable](err error, read func(err error, class Class) M) (results []M) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			results = make([]M, 1)
		}
	}()
	r := reader[M]{read: read, remaining: maxErrors}
	return r.readAll(err)
}

// reader is the state of one call of Failures.
type reader[M comparable] struct {
	read      func(error, Class) M
	remaining int
}

// readAll returns at least one result. err must not be nil.
func (r *reader[M]) readAll(err error) []M {
	if results := r.readKnown(err); len(results) > 0 {
		return results
	}
	return make([]M, 1)
}

// readKnown returns the results of the failures in err, or none if err is a single unknown failure.
func (r *reader[M]) readKnown(err error) (results []M) {
	if r.remaining--; r.remaining < 0 || err == nil {
		return nil
	}
	var zero M
	if result := r.read(err, ownClass(err)); result != zero {
		return []M{result}
	}
	inner, separate := unwrap(err)
	for _, e := range inner {
		switch {
		case separate && e != nil:
			results = append(results, r.readAll(e)...)
		case !separate:
			if results = r.readKnown(e); len(results) > 0 {
				return results
			}
		}
	}
	return results
}

// ownClass returns the class of a status or a network error, or "" for other errors.
func ownClass(err error) Class {
	if status, ok := statusOf(err); ok {
		return classOfStatus(status)
	}
	if classOfNetworkError(err) == "" {
		return ""
	}
	return Classify(err)
}

// unwrap returns the errors that err wraps, and whether they are separate failures: those of errors.Join
// and Aggregate are, those of fmt.Errorf are not.
func unwrap(err error) (inner []error, separate bool) {
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
