package controller

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Defaults of Retry. The curve is the per-item one of client-go's
// DefaultTypedControllerRateLimiter, which the field's controllers have in common.
const (
	DefaultRetryBase   = 5 * time.Millisecond
	DefaultRetryMax    = 1000 * time.Second
	DefaultRetryJitter = 0.2
)

// Retry says when a failed key is run again: after Base, then after twice that, and so
// on up to Max, each shortened by a random part of up to Jitter. A success, or a run
// that ends in RequeueAfter, begins anew.
type Retry struct {
	// Base is the delay after the first failure. Default 5 ms.
	Base time.Duration
	// Max is the longest delay. Default 1000 s.
	Max time.Duration
	// Jitter is the largest part, from 0 to 1, by which a delay is shortened at random,
	// so that keys that failed together do not come back together. Default 0.2; negative:
	// none.
	Jitter float64
	// MaxRetries is how often a key that keeps failing is run again before it is given
	// up. A key that was given up is run at its object's next change and at the next
	// resync, with the whole budget again. Default 0: it is never given up.
	MaxRetries int
}

func (r Retry) withDefaults() Retry {
	r.Base = cmp.Or(r.Base, DefaultRetryBase)
	r.Max = cmp.Or(r.Max, DefaultRetryMax)
	r.Jitter = max(cmp.Or(r.Jitter, DefaultRetryJitter), 0)
	return r
}

// validate names the mistakes in a policy with its defaults set.
func (r Retry) validate() error {
	var errs []error
	if r.Base < 0 {
		errs = append(errs, fmt.Errorf("Retry.Base is %s: it cannot be negative", r.Base))
	}
	if r.Max < r.Base {
		errs = append(errs, fmt.Errorf("Retry.Max is %s, below Retry.Base, %s", r.Max, r.Base))
	}
	if r.Jitter > 1 {
		errs = append(errs, fmt.Errorf("Retry.Jitter is %g: it cannot exceed 1", r.Jitter))
	}
	if r.MaxRetries < 0 {
		errs = append(errs, fmt.Errorf("Retry.MaxRetries is %d: leave it 0 to retry for ever", r.MaxRetries))
	}
	return errors.Join(errs...)
}

// delay returns how long to wait after the given number of failures in a row (1: the
// first).
func (r Retry) delay(failures int) time.Duration {
	d := r.Base
	for i := 1; i < failures && d < r.Max; i++ {
		d *= 2
	}
	d = min(d, r.Max)
	return d - time.Duration(rand.Float64()*r.Jitter*float64(d))
}

// exhausted reports whether a key with that many failures in a row is to be given up.
func (r Retry) exhausted(failures int) bool {
	return r.MaxRetries > 0 && failures > r.MaxRetries
}
