package retry

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// Config says how failures are classified and what follows. The zero value is Classify and
// Defaults. It is taken by value: New neither keeps nor changes the caller's.
type Config struct {
	// Classify names the class of an error before the package's own Classify is asked, which
	// it leaves the word with "". Any other Class can be returned, also one of the user's own.
	// It must be safe for concurrent use. Default: the package's.
	Classify func(error) Class
	// Every is for every class alike: Config{Every: Policy{MaxRetries: 10}} gives up any key
	// after its tenth retry of errors of one class. A zero field takes the default of the class.
	Every Policy
	// Policies are for single classes. A zero field takes that of Every; for a class of the
	// user's own, that of the class Default.
	Policies Policies
}

// validate names all mistakes in a config.
func (c Config) validate() error {
	errs := []error{c.Every.validate("Every")}
	for _, class := range slices.Sorted(maps.Keys(c.Policies)) {
		where := fmt.Sprintf("Policies[%q]", class)
		if class == "" {
			errs = append(errs, fmt.Errorf("%s: a class has a name: retry.Default is %q", where, Default))
		}
		if class == Terminal && c.Policies[class].MaxRetries > 0 {
			errs = append(errs, fmt.Errorf("%s.MaxRetries is %d: the class means that there are no retries: "+
				"let Classify return another one", where, c.Policies[class].MaxRetries))
		}
		errs = append(errs, c.Policies[class].validate(where))
	}
	return errors.Join(errs...)
}

// Rules are a Config that was checked, with every default set. They have no state and are
// safe for concurrent use.
type Rules struct {
	classify func(error) Class
	policies Policies // has every class of this package
	random   func() float64
}

// New checks config and makes Rules of it. The error names all mistakes at once.
func New(config Config) (*Rules, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("retry: %w", err)
	}
	r := &Rules{classify: config.Classify, policies: Defaults(), random: rand.Float64}
	for class, base := range r.policies {
		r.policies[class] = config.Policies[class].over(config.Every.over(base))
	}
	for class, policy := range config.Policies {
		if _, known := r.policies[class]; !known {
			r.policies[class] = policy.over(r.policies[Default])
		}
	}
	// Every.MaxRetries is not meant for what cannot be retried.
	terminal := r.policies[Terminal]
	terminal.MaxRetries = -1
	r.policies[Terminal] = terminal
	return r, nil
}

// Classify returns the class of err: the user's word first, then the package's. "" for nil. A
// panic in the user's function leaves it to the package.
func (r *Rules) Classify(err error) Class {
	if err == nil {
		return ""
	}
	if class := r.asked(err); class != "" {
		return class
	}
	return Classify(err)
}

func (r *Rules) asked(err error) (class Class) {
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

// Policy returns the policy of class with every default set; that of Default for a class that
// has none of its own.
func (r *Rules) Policy(class Class) Policy {
	if p, ok := r.policies[class]; ok {
		return p
	}
	return r.policies[Default]
}

// Decision is what follows from a failure.
type Decision struct {
	// Class is the failure's.
	Class Class
	// GiveUp is true when there is no retry: of Terminal, or after the last one.
	GiveUp bool
	// Delay is how long the key waits, unless it is given up.
	Delay time.Duration
	// RetryAfter is the part of the server in it: what it asked for, or 0.
	RetryAfter time.Duration
	// Quiet is true while the failure is no news, and belongs to the debug log.
	Quiet bool
}

// Decide returns what follows when a key has failed the given number of times in a row (1:
// the first), the last time with err, of class class (Classify's, or what the caller knows
// better: a time limit, a panic).
//
// Whether failures counts those of all classes or of this one only is the caller's choice. The
// latter is fairer: a minute without an API server, ten failures, then says nothing about the
// first conflict after it.
func (r *Rules) Decide(class Class, err error, failures int) Decision {
	p := r.Policy(class)
	d := Decision{Class: class, Quiet: p.Quiet(failures)}
	if p.Exhausted(failures) {
		d.GiveUp, d.Quiet = true, false // that nothing more will be done is news
		return d
	}
	random := r.random()
	d.Delay = p.Delay(failures, random)
	if after, ok := RetryAfter(err); ok && !p.IgnoreRetryAfter {
		d.RetryAfter = min(after, DefaultMaxRetryAfter)
		// Jitter lengthens here: the server has told everybody the same time.
		least := d.RetryAfter + time.Duration(random*max(p.Jitter, 0)*float64(d.RetryAfter))
		d.Delay = max(d.Delay, least)
	}
	return d
}
