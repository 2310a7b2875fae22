package retry

import (
	"fmt"
	"io"
	"reflect"
)

// Failures returns what the separate failures in err mean to read: one answer for each of them,
// none for nil. errors.Join, and what else lists errors, has several; fmt.Errorf with several %w
// is one failure in several words.
//
// read is asked of the errors in err from the outside in, until it answers with anything but the
// zero M: of several words, the first one that means something counts. A failure that it knows
// nothing of is the zero M. class is what the error is by itself, whatever it wraps: an answer of
// the API server, an end of a context, or one of the errors that Go's network packages return in
// place of an answer (what that was caused by counts: a cancelled request is Default). It is ""
// for all others, and what an error says itself (Classed) is not asked.
//
// It is for those who sort errors in another way than by patience, and is bounded as Classify
// is: an err whose methods panic is one failure of which nothing is known.
func Failures[M comparable](err error, read func(err error, class Class) M) (meanings []M) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			meanings = make([]M, 1)
		}
	}()
	r := reading[M]{read: read, left: maxErrors}
	return r.failures(err)
}

// reading is one call of Failures.
type reading[M comparable] struct {
	read func(error, Class) M
	left int
}

// failures returns one meaning at least, of an err that is not nil.
func (r *reading[M]) failures(err error) []M {
	if known := r.known(err); len(known) > 0 {
		return known
	}
	return make([]M, 1)
}

// known returns the meanings of the failures in err; none when it is one of which nothing is
// known.
func (r *reading[M]) known(err error) (all []M) {
	if r.left--; r.left < 0 || err == nil {
		return nil
	}
	var none M
	if meaning := r.read(err, classAlone(err)); meaning != none {
		return []M{meaning}
	}
	inner, several := unwrap(err)
	for _, e := range inner {
		switch {
		case several && e != nil:
			all = append(all, r.failures(e)...)
		case !several:
			if all = r.known(e); len(all) > 0 {
				return all
			}
		}
	}
	return all
}

// classAlone returns the class of an error by itself, or "".
func classAlone(err error) Class {
	if status, ok := statusOf(err); ok {
		return classOfStatus(status)
	}
	if classOfCall(err) == "" {
		return ""
	}
	return Classify(err)
}

// unwrap returns what err wraps, and whether these are failures of their own rather than words
// for the same one.
func unwrap(err error) (inner []error, several bool) {
	switch e := err.(type) { //nolint:errorlint // one step at a time
	case interface{ Unwrap() error }:
		return []error{e.Unwrap()}, false
	case interface{ Unwrap() []error }:
		words := reflect.TypeOf(fmt.Errorf("%w, %w", io.EOF, io.EOF))
		return e.Unwrap(), reflect.TypeOf(err) != words
	case interface{ Errors() []error }: // apimachinery's Aggregate
		return e.Errors(), true
	}
	return nil, false
}
