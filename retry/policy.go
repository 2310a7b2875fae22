package retry

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// DefaultMaxRetryAfter is the longest time that a server's Retry-After is obeyed: the mistake
// of a proxy must not put a key to sleep for a day.
const DefaultMaxRetryAfter = 10 * time.Minute

// Policy says when a key that failed is run again: after Base, then after Factor times that,
// and so on up to Max, each shortened at random.
//
// A zero field takes the default of the class that the policy is for; see Defaults.
type Policy struct {
	// Base is the delay after the first failure.
	Base time.Duration
	// Max is the longest delay.
	Max time.Duration
	// Factor is by how much the delay grows from one failure to the next. 1: not at all.
	Factor float64
	// Jitter is the largest part, from 0 to 1, by which a delay is shortened at random, so
	// that keys that failed together do not come back together. Negative: none.
	Jitter float64
	// MaxRetries is how often a key that keeps failing is run again before it is given up.
	// Negative: it is given up at the first failure. 0, in every default but Terminal's: it is
	// never given up.
	MaxRetries int
	// QuietFailures is how many failures in a row are no news: they belong to the debug log.
	// Negative: none.
	QuietFailures int
	// IgnoreRetryAfter is for servers whose Retry-After is of no use. Otherwise no delay is
	// shorter than what the server asked for, up to DefaultMaxRetryAfter, whatever Max says.
	IgnoreRetryAfter bool
}

// Policies are policies by class.
type Policies map[Class]Policy

// Defaults returns the policy of each class of this package. The map is the caller's.
func Defaults() Policies {
	// The per-item curve of client-go's DefaultTypedControllerRateLimiter, which the field's
	// controllers have in common: quick at first, for errors that were an accident, and slow
	// in the end, for those that need a person.
	common := Policy{Base: 5 * time.Millisecond, Max: 1000 * time.Second, Factor: 2, Jitter: 0.2}
	with := func(change func(*Policy)) Policy {
		p := common
		change(&p)
		return p
	}
	return Policies{
		Default: common,
		// The same, because neither says anything about what is wrong.
		Timeout: common,
		Panic:   common,
		// Normal where several write one object: the next read mends it, and that is as near
		// as the cache is fresh. Slower than 1 s would only add to the latency; five in a row
		// are worth a word, because then somebody writes as fast as we do. Much jitter: two
		// that met must not meet again.
		Conflict: with(func(p *Policy) { p.Max, p.Jitter, p.QuietFailures = time.Second, 0.5, 5 }),
		// The server says when; without its word a second is what it usually says. Its queues
		// drain within a minute, or not at all.
		Throttled: with(func(p *Policy) { p.Base, p.Max, p.Jitter = time.Second, time.Minute, 0.5 }),
		// A restart of an API server takes seconds, and all keys of all controllers wait for it:
		// they must find it soon after, and not all at once.
		Transient: with(func(p *Policy) { p.Base, p.Max, p.Jitter = 100*time.Millisecond, time.Minute, 0.5 }),
		// Somebody has to change a Role or a quota. That is often done within the minute in
		// which it was noticed, and authorizers lag behind it by seconds.
		Forbidden: with(func(p *Policy) { p.Base, p.Max = time.Second, 5*time.Minute }),
		// The same request will be refused again. It is tried only because webhooks and
		// schemas change too, and nobody is told when they do; a change of the object itself
		// wakes the key anyway.
		Invalid: with(func(p *Policy) { p.Base, p.Max = 30*time.Second, 30*time.Minute }),
		// The delays are never used.
		Terminal: with(func(p *Policy) { p.MaxRetries = -1 }),
	}
}

// Delay returns how long to wait after the given number of failures in a row (1: the first).
// random, from 0 up to 1, chooses how much of the jitter is taken: the result lies between
// 1-Jitter and 1 times the curve, and never above Max.
func (p Policy) Delay(failures int, random float64) time.Duration {
	// Powers overflow to +Inf, which is still larger than Max.
	d := p.Max
	if exact := float64(p.Base) * math.Pow(p.Factor, float64(max(failures, 1)-1)); exact < float64(p.Max) {
		d = time.Duration(exact)
	}
	return d - time.Duration(random*max(p.Jitter, 0)*float64(d))
}

// Exhausted reports whether a key with that many failures in a row is to be given up.
func (p Policy) Exhausted(failures int) bool {
	return p.MaxRetries != 0 && failures > max(p.MaxRetries, 0)
}

// Quiet reports whether the last of that many failures in a row is no news yet.
func (p Policy) Quiet(failures int) bool { return failures <= p.QuietFailures }

// over returns the policy with its zero fields taken from base. Of Base and Max, one that was
// set moves one that was not: whoever wants delays of at most a second need not know that
// their class begins with 30.
func (p Policy) over(base Policy) Policy {
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

// validate names the mistakes in a policy as a user wrote it; where is its field.
func (p Policy) validate(where string) error {
	var errs []error
	mistake := func(format string, args ...any) { errs = append(errs, fmt.Errorf(where+"."+format, args...)) }
	if p.Base < 0 {
		mistake("Base is %s: it cannot be negative", p.Base)
	}
	switch {
	case p.Max < 0:
		mistake("Max is %s: it cannot be negative", p.Max)
	case p.Max > 0 && p.Max < p.Base:
		mistake("Max is %s, below Base, %s", p.Max, p.Base)
	}
	if p.Factor != 0 && !(p.Factor >= 1 && p.Factor <= math.MaxFloat64) {
		mistake("Factor is %g: it must be at least 1 (no growth), or 0 for the class's default", p.Factor)
	}
	if p.Jitter > 1 || math.IsNaN(p.Jitter) {
		mistake("Jitter is %g: it cannot exceed 1 (negative: none)", p.Jitter)
	}
	return errors.Join(errs...)
}
