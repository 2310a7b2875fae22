package retryrules

import (
	"time"

	"github.com/evenkeel-go/evenkeel/retry"
)

// Defaults returns the policy of each class of package retry. The caller may change the returned map.
func Defaults() map[retry.Class]retry.Policy {
	// The per-item backoff of client-go's DefaultTypedControllerRateLimiter, which most controllers use:
	// short delays first, because many errors end by themselves, and long ones for errors that
	// need an operator.
	common := retry.Policy{Base: 5 * time.Millisecond, Max: 1000 * time.Second, Factor: 2, Jitter: 0.2}
	with := func(change func(*retry.Policy)) retry.Policy {
		p := common
		change(&p)
		return p
	}
	return map[retry.Class]retry.Policy{
		retry.Default: common,
		// The common policy, because neither class indicates the cause.
		retry.Timeout: common,
		retry.Panic:   common,
		// Conflicts are normal when several clients write one object. They end as soon as the cache has
		// the new version, so delays above 1 s would only add latency. More than five in a row are
		// logged, because then another client writes as often as this one. High jitter keeps two
		// writers from colliding again.
		retry.Conflict: with(func(p *retry.Policy) { p.Max, p.Jitter, p.QuietFailures = time.Second, 0.5, 5 }),
		// Most responses have a Retry-After, usually 1 s, which is also the Base without one. The
		// server's queues usually drain within a minute.
		retry.Throttled: with(func(p *retry.Policy) { p.Base, p.Max, p.Jitter = time.Second, time.Minute, 0.5 }),
		// An API server restarts within seconds, and all keys of all controllers wait for it: they
		// should retry soon after, but not all at once.
		retry.Transient: with(func(p *retry.Policy) {
			p.Base, p.Max, p.Jitter = 100*time.Millisecond, time.Minute, 0.5
		}),
		// An operator must change a Role or a quota, and authorizers apply the change within seconds.
		retry.Forbidden: with(func(p *retry.Policy) { p.Base, p.Max = time.Second, 5*time.Minute }),
		// The same request will be rejected again until a webhook or a schema changes, which a
		// controller cannot detect. A change of the object itself enqueues the key at once.
		retry.Invalid: with(func(p *retry.Policy) { p.Base, p.Max = 30*time.Second, 30*time.Minute }),
		// A namespace is usually deleted within minutes, and may be created again.
		retry.NamespaceTerminating: with(func(p *retry.Policy) { p.Base, p.Max = time.Minute, 10*time.Minute }),
		// The delays of this class are not used.
		retry.Terminal: with(func(p *retry.Policy) { p.MaxRetries = -1 }),
	}
}
