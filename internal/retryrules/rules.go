// Package retryrules applies a retry.Config: Rules decide when a failed key is retried. Failures and Fields read
// errors for the packages of this module.
//
// Rules have no state: Decide returns the delay for an error and the number of failures in a row. The package
// depends on neither queues nor controllers, and starts no timers.
package retryrules

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/evenkeel-go/evenkeel/retry"
)

// Rules are a validated Config with all defaults set. They are immutable and safe for concurrent use.
type Rules struct {
	classify func(error) retry.Class
	policies map[retry.Class]retry.Policy // contains every class of package retry
	random   func() float64
}

// New returns the Rules of a copy of config. The error lists all mistakes.
func New(config retry.Config) (*Rules, error) {
	if err := validate(config); err != nil {
		return nil, fmt.Errorf("retry: %w", err)
	}
	r := &Rules{classify: config.Classify, policies: Defaults(), random: rand.Float64}
	for class, base := range r.policies {
		r.policies[class] = withDefaults(config.Policies[class], withDefaults(config.Every, base))
	}
	for class, policy := range config.Policies {
		if _, known := r.policies[class]; !known {
			r.policies[class] = withDefaults(policy, r.policies[retry.Default])
		}
	}
	// Every.MaxRetries does not apply to Terminal, which is never retried.
	terminal := r.policies[retry.Terminal]
	terminal.MaxRetries = -1
	r.policies[retry.Terminal] = terminal
	return r, nil
}

// Classify returns the class of err: that of Config.Classify, otherwise that of retry.Classify; ""
// for nil. If Config.Classify panics, retry.Classify decides.
func (r *Rules) Classify(err error) retry.Class {
	if err == nil {
		return ""
	}
	if class := r.userClass(err); class != "" {
		return class
	}
	return retry.Classify(err)
}

// userClass returns the result of Config.Classify, or "" if it is not set or panics.
func (r *Rules) userClass(err error) (class retry.Class) {
	if r.classify == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			class = ""
		}
	}()
	return r.classify(err)
}

// Policy returns the policy of class with all defaults set. A class without a policy has that of Default.
func (r *Rules) Policy(class retry.Class) retry.Policy {
	if p, ok := r.policies[class]; ok {
		return p
	}
	return r.policies[retry.Default]
}

// Decision is the result of Decide: whether and when a failed key is retried.
type Decision struct {
	// Class is the class of the failure.
	Class retry.Class
	// GiveUp is true if the key is not retried: after a retry.Terminal failure, or after the last retry.
	GiveUp bool
	// Delay is the time until the retry. It is 0 if GiveUp is true.
	Delay time.Duration
	// RetryAfter is the delay that the server asked for, at most 10 min, or 0.
	RetryAfter time.Duration
	// Quiet is true if the failure should be logged at debug level only.
	Quiet bool
}

// Decide returns the Decision for a key that has failed the given number of times in a row (1: for the first
// time). err is the last error and class its class: that of Classify, or retry.Timeout or retry.Panic if the caller
// detected one.
//
// The caller chooses whether failures counts all classes or this one only. Counting per class is fairer: ten
// failures during a minute without an API server then do not delay the retry of the first conflict.
func (r *Rules) Decide(class retry.Class, err error, failures int) Decision {
	p := r.Policy(class)
	d := Decision{Class: class, Quiet: isQuiet(p, failures)}
	if isExhausted(p, failures) {
		d.GiveUp, d.Quiet = true, false // giving up is always logged
		return d
	}
	random := r.random()
	d.Delay = Delay(p, failures, random)
	if after := ServerDelay(err); after > 0 {
		d.RetryAfter = after
		// Here jitter adds to the delay, because the server sends the same time to all clients.
		earliest := d.RetryAfter + time.Duration(random*max(p.Jitter, 0)*float64(d.RetryAfter))
		d.Delay = max(d.Delay, earliest)
	}
	return d
}
