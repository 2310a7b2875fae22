package retryrules

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Failures classifies each separate failure in err with read, and returns one result per failure; none if
// err is nil. errors.Join and Aggregate contain separate failures. fmt.Errorf with several %w is one failure.
//
// Failures calls read for the errors of one failure, the outermost first, until it returns a value other
// than the zero M. A failure for which it returns only zero values counts as the zero M. class is the class
// of the error itself, without the errors that it wraps: of a response of the API server, of the end of a
// context, or of a network error. (The class of a network error depends on its cause: a cancelled request is
// retry.Default.) It is "" for all other errors. Failures ignores methods RetryClass.
//
// Failures visits at most as many errors as retry.Classify. If a method of err panics, the result is one zero M.
func Failures[M comparable](err error, read func(err error, class retry.Class) M) (results []M) {
	if err == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			results = make([]M, 1)
		}
	}()
	r := reader[M]{read: read, remaining: usercode.MaxVisited}
	return r.readAll(err)
}

// reader is the state of one call of Failures.
type reader[M comparable] struct {
	read      func(error, retry.Class) M
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
	inner, separate := usercode.Unwrap(err)
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
func ownClass(err error) retry.Class {
	if status, ok := usercode.StatusOf(err); ok {
		return retry.Classify(&apierrors.StatusError{ErrStatus: status})
	}
	if known, _ := usercode.NetworkError(err); !known {
		return ""
	}
	return retry.Classify(err)
}

// Fields returns the fields that the API server names in responses of class retry.Invalid: the invalid fields of
// a 422, and the fields of an apply that another manager owns. Each occurs once, in the server's order:
// "spec.replicas", ".spec.template". The result is nil if the server names none.
func Fields(err error) []string {
	var fields []string
	known := map[string]bool{}
	usercode.VisitErrors(err, func(err error) {
		status, ok := usercode.StatusOf(err)
		if !ok || status.Details == nil || ownClass(err) != retry.Invalid {
			return
		}
		for _, cause := range status.Details.Causes {
			if cause.Field != "" && !known[cause.Field] {
				known[cause.Field] = true
				fields = append(fields, cause.Field)
			}
		}
	})
	return fields
}
