package retry

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Config configures how failures are classified and retried. The zero value uses Classify and Defaults. New
// copies it.
type Config struct {
	// Classify returns the class of an error, or "" to fall back to the package's Classify. It may
	// return classes of the user. It must be safe for concurrent use. Default: the package's Classify.
	Classify func(error) Class
	// Every applies to every class: Config{Every: Policy{MaxRetries: 10}} gives up a key after its
	// tenth retry of errors of one class. Zero fields take the default of the class.
	Every Policy
	// Policies apply to single classes. Zero fields take the value of Every; in a class of the user,
	// the value of class Default.
	Policies Policies
}

// validate returns all mistakes in the Config.
func (c Config) validate() error {
	errs := []error{c.Every.validate("Every")}
	for _, class := range slices.Sorted(maps.Keys(c.Policies)) {
		where := fmt.Sprintf("Policies[%q]", class)
		if class == "" {
			errs = append(errs, fmt.Errorf("%s: the class has no name: use retry.Default, %q", where, Default))
		}
		if class == Terminal && c.Policies[class].MaxRetries > 0 {
			errs = append(errs, fmt.Errorf("%s.MaxRetries is %d, but this class is never retried: "+
				"return another class from Classify", where, c.Policies[class].MaxRetries))
		}
		errs = append(errs, c.Policies[class].validate(where))
	}
	return errors.Join(errs...)
}

// Rules are a validated Config with all defaults set. They are immutable and safe for concurrent use.
type Rules struct {
	classify func(error) Class
	policies Policies // contains every class of this package
	random   func() float64
}

// New returns the Rules of config. The error lists all mistakes.
func New(config Config) (*Rules, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("retry: %w", err)
	}
	r := &Rules{classify: config.Classify, policies: Defaults(), random: rand.Float64}
	for class, base := range r.policies {
		r.policies[class] = config.Policies[class].withDefaults(config.Every.withDefaults(base))
	}
	for class, policy := range config.Policies {
		if _, known := r.policies[class]; !known {
			r.policies[class] = policy.withDefaults(r.policies[Default])
		}
	}
	// Every.MaxRetries does not apply to Terminal, which is never retried.
	terminal := r.policies[Terminal]
	terminal.MaxRetries = -1
	r.policies[Terminal] = terminal
	return r, nil
}

// Classify returns the class of err: that of Config.Classify, otherwise that of the package's Classify; ""
// for nil. If Config.Classify panics, the package's Classify decides.
func (r *Rules) Classify(err error) Class {
	if err == nil {
		return ""
	}
	if class := r.userClass(err); class != "" {
		return class
	}
	return Classify(err)
}

// userClass returns the result of Config.Classify, or "" if it is not set or panics.
func (r *Rules) userClass(err error) (class Class) {
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
func (r *Rules) Policy(class Class) Policy {
	if p, ok := r.policies[class]; ok {
		return p
	}
	return r.policies[Default]
}

// Decision is the result of Decide: whether and when a failed key is retried.
type Decision struct {
	// Class is the class of the failure.
	Class Class
	// GiveUp is true if the key is not retried: after a Terminal failure, or after the last retry.
	GiveUp bool
	// Delay is the time until the retry. It is 0 if GiveUp is true.
	Delay time.Duration
	// RetryAfter is the delay that the server asked for, at most 10 min, or 0.
	RetryAfter time.Duration
	// Quiet is true if the failure should be logged at debug level only.
	Quiet bool
}

// Decide returns the Decision for a key that has failed the given number of times in a row (1: for the first
// time). err is the last error and class its class: that of Classify, or Timeout or Panic if the caller
// detected one.
//
// The caller chooses whether failures counts all classes or this one only. Counting per class is fairer: ten
// failures during a minute without an API server then do not delay the retry of the first conflict.
func (r *Rules) Decide(class Class, err error, failures int) Decision {
	p := r.Policy(class)
	d := Decision{Class: class, Quiet: p.Quiet(failures)}
	if p.Exhausted(failures) {
		d.GiveUp, d.Quiet = true, false // giving up is always logged
		return d
	}
	random := r.random()
	d.Delay = p.Delay(failures, random)
	if after, ok := RetryAfter(err); ok && !p.IgnoreRetryAfter {
		d.RetryAfter = min(after, maxRetryAfter)
		// Here jitter adds to the delay, because the server sends the same time to all clients.
		earliest := d.RetryAfter + time.Duration(random*max(p.Jitter, 0)*float64(d.RetryAfter))
		d.Delay = max(d.Delay, earliest)
	}
	return d
}
