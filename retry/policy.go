package retry

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// maxRetryAfter is the upper limit for a server's Retry-After. It protects against a proxy that sends
// a wrong value.
const maxRetryAfter = 10 * time.Minute

// Policy is the exponential backoff of a class: the first retry comes after Base, each further one after
// Factor times the previous delay, up to Max. Jitter shortens each delay.
//
// Zero fields take the default of the class; see Defaults.
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
	// IgnoreRetryAfter ignores the server's Retry-After. By default a delay is at least as long as the
	// server asks for, even beyond Max, up to 10 min.
	IgnoreRetryAfter bool
}

// Policies maps classes to their policies.
type Policies map[Class]Policy

// Defaults returns the policy of each class of this package. The caller may change the returned map.
func Defaults() Policies {
	// The per-item backoff of client-go's DefaultTypedControllerRateLimiter, which most controllers use:
	// short delays first, because many errors end by themselves, and long ones for errors that
	// need an operator.
	common := Policy{Base: 5 * time.Millisecond, Max: 1000 * time.Second, Factor: 2, Jitter: 0.2}
	with := func(change func(*Policy)) Policy {
		p := common
		change(&p)
		return p
	}
	return Policies{
		Default: common,
		// The common policy, because neither class indicates the cause.
		Timeout: common,
		Panic:   common,
		// Conflicts are normal when several clients write one object. They end as soon as the cache has
		// the new version, so delays above 1 s would only add latency. More than five in a row are
		// logged, because then another client writes as often as this one. High jitter keeps two
		// writers from colliding again.
		Conflict: with(func(p *Policy) { p.Max, p.Jitter, p.QuietFailures = time.Second, 0.5, 5 }),
		// Most responses have a Retry-After, usually 1 s, which is also the Base without one. The
		// server's queues usually drain within a minute.
		Throttled: with(func(p *Policy) { p.Base, p.Max, p.Jitter = time.Second, time.Minute, 0.5 }),
		// An API server restarts within seconds, and all keys of all controllers wait for it: they
		// should retry soon after, but not all at once.
		Transient: with(func(p *Policy) { p.Base, p.Max, p.Jitter = 100*time.Millisecond, time.Minute, 0.5 }),
		// An operator must change a Role or a quota, and authorizers apply the change within seconds.
		Forbidden: with(func(p *Policy) { p.Base, p.Max = time.Second, 5*time.Minute }),
		// The same request will be rejected again until a webhook or a schema changes, which a
		// controller cannot detect. A change of the object itself enqueues the key at once.
		Invalid: with(func(p *Policy) { p.Base, p.Max = 30*time.Second, 30*time.Minute }),
		// The delays of this class are not used.
		Terminal: with(func(p *Policy) { p.MaxRetries = -1 }),
	}
}

// Delay returns the delay after the given number of failures in a row (1: the first). random, in [0, 1),
// is the share of the jitter to subtract: the result is between 1-Jitter and 1 times the backoff, and never
// above Max.
func (p Policy) Delay(failures int, random float64) time.Duration {
	// math.Pow overflows to +Inf, which is larger than Max.
	d := p.Max
	if exact := float64(p.Base) * math.Pow(p.Factor, float64(max(failures, 1)-1)); exact < float64(p.Max) {
		d = time.Duration(exact)
	}
	return d - time.Duration(random*max(p.Jitter, 0)*float64(d))
}

// Exhausted reports whether a key is given up after this number of failures in a row.
func (p Policy) Exhausted(failures int) bool {
	return p.MaxRetries != 0 && failures > max(p.MaxRetries, 0)
}

// Quiet reports whether the last of this number of failures in a row is logged at debug level only.
func (p Policy) Quiet(failures int) bool { return failures <= p.QuietFailures }

// withDefaults returns the policy with its zero fields set from base. If only one of Base and Max is set,
// the other one is limited by it: a Max of 1 s also shortens a default Base of 30 s.
//
// Invariant: Base <= Max in the result, if that holds for base and for the fields that p sets.
func (p Policy) withDefaults(base Policy) Policy {
	switch {
	case p.Base == 0 && p.Max == 0:
		p.Base, p.Max = base.Base, base.Max
	case p.Base == 0:
		p.Base = min(base.Base, p.Max)
	case p.Max == 0:
		p.Max = max(base.Max, p.Base)
	}
	if p.Factor == 0 {
		p.Factor = base.Factor
	}
	if p.Jitter == 0 {
		p.Jitter = base.Jitter
	}
	if p.MaxRetries == 0 {
		p.MaxRetries = base.MaxRetries
	}
	if p.QuietFailures == 0 {
		p.QuietFailures = base.QuietFailures
	}
	p.IgnoreRetryAfter = p.IgnoreRetryAfter || base.IgnoreRetryAfter
	return p
}

// validate returns the mistakes in a policy before defaults are set. where is the name of its field.
func (p Policy) validate(where string) error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(where+"."+format, args...)) }
	if p.Base < 0 {
		mistake("Base is %s, must not be negative", p.Base)
	}
	switch {
	case p.Max < 0:
		mistake("Max is %s, must not be negative", p.Max)
	case p.Max > 0 && p.Max < p.Base:
		mistake("Max is %s, below Base, %s", p.Max, p.Base)
	}
	if p.Factor != 0 && !(p.Factor >= 1 && p.Factor <= math.MaxFloat64) {
		mistake("Factor is %g, must be at least 1 (constant delay), or 0 for the class's default", p.Factor)
	}
	if p.Jitter > 1 || math.IsNaN(p.Jitter) {
		mistake("Jitter is %g, must not exceed 1 (negative: no jitter)", p.Jitter)
	}
	return errors.Join(errs...)
}
