package retry

import "time"

// Policy is the exponential backoff of a class: the first retry comes after Base, each further one after
// Factor times the previous delay, up to Max. Jitter shortens each delay. A delay is at least as long as the
// Retry-After of the server, even beyond Max, up to 10 min.
//
// Zero fields take the default of the class (docs/architecture.md#handler-results).
type Policy struct {
	// Base is the delay after the first failure.
	Base time.Duration
	// Max is the longest delay.
	Max time.Duration
	// Factor multiplies the delay after each failure. It must be at least 1, which means a constant delay.
	Factor float64
	// Jitter is the largest fraction, from 0 to 1, by which a delay is randomly shortened, so that keys
	// that failed together are not retried together. Negative: no jitter.
	Jitter float64
	// MaxRetries is the number of retries before a failing key is given up. 0 means the default: no
	// limit, but no retries for Terminal. Negative means no retries: the key is given up at its first
	// failure. (In Kooper's ProcessingJobRetries 0 means no retries.)
	MaxRetries int
	// QuietFailures is the number of failures in a row that are logged at debug level only. Negative:
	// none.
	QuietFailures int
}
