package usercode

import "time"

// RetryAfter returns the longest Retry-After in err: of the API server's responses, and of errors with a
// method RetryAfter() time.Duration. ok is false if err has none.
func RetryAfter(err error) (after time.Duration, ok bool) {
	VisitErrors(err, func(err error) {
		if status, isStatus := StatusOf(err); isStatus && status.Details != nil {
			after = max(after, time.Duration(status.Details.RetryAfterSeconds)*time.Second)
		} else if delayed, hasDelay := err.(interface{ RetryAfter() time.Duration }); hasDelay {
			after = max(after, delayed.RetryAfter())
		}
	})
	return after, after > 0
}
