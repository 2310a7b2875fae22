package retryrules

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/retry"
)

// Delay returns the delay of a policy after the given number of failures in a row (1: the first). random, in [0, 1),
// is the share of the jitter to subtract: the result is between 1-Jitter and 1 times the backoff, and never
// above Max.
func Delay(p retry.Policy, failures int, random float64) time.Duration {
	// math.Pow overflows to +Inf, which is larger than Max.
	d := p.Max
	if exact := float64(p.Base) * math.Pow(p.Factor, float64(max(failures, 1)-1)); exact < float64(p.Max) {
		d = time.Duration(exact)
	}
	return d - time.Duration(random*max(p.Jitter, 0)*float64(d))
}

// isExhausted reports whether a key is given up after this number of failures in a row.
func isExhausted(p retry.Policy, failures int) bool {
	return p.MaxRetries != 0 && failures > max(p.MaxRetries, 0)
}

// isQuiet reports whether the last of this number of failures in a row is logged at debug level only.
func isQuiet(p retry.Policy, failures int) bool { return failures <= p.QuietFailures }

// withDefaults returns policy p with its zero fields set from base. If only one of Base and Max is set,
// the other one is limited by it: a Max of 1 s also shortens a default Base of 30 s.
//
// Invariant: Base <= Max in the result, if that holds for base and for the fields that p sets.
func withDefaults(p, base retry.Policy) retry.Policy {
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
	return p
}

// validatePolicy returns the mistakes in a policy before defaults are set. where is the name of its field.
func validatePolicy(p retry.Policy, where string) error {
	var mistakes usercode.Mistakes
	mistakes.AddIf(p.Base < 0, "%s.Base is %s, must not be negative", where, p.Base)
	switch {
	case p.Max < 0:
		mistakes.Addf("%s.Max is %s, must not be negative", where, p.Max)
	case p.Max > 0 && p.Max < p.Base:
		mistakes.Addf("%s.Max is %s, below Base, %s", where, p.Max, p.Base)
	}
	mistakes.AddIf(p.Factor != 0 && !(p.Factor >= 1 && p.Factor <= math.MaxFloat64), "%s.Factor is %g, must be at "+
		"least 1 (constant delay), or 0 for the class's default", where, p.Factor)
	mistakes.AddIf(p.Jitter > 1 || math.IsNaN(p.Jitter), "%s.Jitter is %g, must not exceed 1 (negative: no "+
		"jitter)", where, p.Jitter)
	return mistakes.Err()
}

// validate returns all mistakes in a Config.
func validate(c retry.Config) error {
	errs := []error{validatePolicy(c.Every, "Every")}
	for _, class := range slices.Sorted(maps.Keys(c.Policies)) {
		where := fmt.Sprintf("Policies[%q]", class)
		if class == "" {
			errs = append(errs, fmt.Errorf("%s: the class has no name: use retry.Default, %q", where, retry.Default))
		}
		if class == retry.Terminal && c.Policies[class].MaxRetries > 0 {
			errs = append(errs, fmt.Errorf("%s.MaxRetries is %d, but this class is never retried: "+
				"return another class from Classify", where, c.Policies[class].MaxRetries))
		}
		errs = append(errs, validatePolicy(c.Policies[class], where))
	}
	return errors.Join(errs...)
}
