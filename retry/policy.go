package retry

import "time"

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
		// A namespace is usually deleted within minutes, and may be created again.
		NamespaceTerminating: with(func(p *Policy) { p.Base, p.Max = time.Minute, 10*time.Minute }),
		// The delays of this class are not used.
		Terminal: with(func(p *Policy) { p.MaxRetries = -1 }),
	}
}
