package retryrules

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/errtest"
	"github.com/evenkeel-go/evenkeel/retry"
)

func TestDelayGrowsFromBaseToMax(t *testing.T) {
	t.Parallel()
	p := retry.Policy{Base: 5 * time.Millisecond, Max: 1000 * time.Second, Factor: 2}
	var got []time.Duration
	for _, failures := range []int{-1, 0, 1, 2, 3, 18, 19, 1000, math.MaxInt} {
		got = append(got, Delay(p, failures, 0.999))
	}
	const ms = time.Millisecond
	want := []time.Duration{5 * ms, 5 * ms, 5 * ms, 10 * ms, 20 * ms, 655360 * ms, 1000 * time.Second, 1000 * time.Second, 1000 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("delays (-want +got):\n%s", diff)
	}
}

func TestDelayBounds(t *testing.T) {
	t.Parallel()
	for _, p := range []retry.Policy{
		{Base: 1, Max: math.MaxInt64, Factor: 2, Jitter: 1},
		{Base: time.Second, Max: math.MaxInt64, Factor: 1e300, Jitter: 0.5},
		{Base: time.Second, Max: time.Second, Factor: 1, Jitter: -1},
		{Base: time.Millisecond, Max: time.Hour, Factor: 1.5, Jitter: 0.2},
	} {
		last := time.Duration(0)
		for failures := range 2000 {
			longest, shortest := Delay(p, failures, 0), Delay(p, failures, math.Nextafter(1, 0))
			least := time.Duration((1 - max(p.Jitter, 0)) * float64(longest))
			if longest < last || longest > p.Max || longest <= 0 {
				t.Fatalf("%+v: after %d failures %s: below the previous delay (%s), or above Max", p, failures, longest, last)
			}
			if shortest < least || shortest > longest || p.Jitter > 0 && longest > 10 && shortest == longest {
				t.Fatalf("%+v: after %d failures at least %s, want from %s to %s", p, failures, shortest, least, longest)
			}
			last = longest
		}
	}
}

func TestExhaustedAndQuiet(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ retries, failures, quietFor int }{
		// failures is the number after which the key is given up, quietFor the number of quiet failures.
		{retries: -1, failures: 1}, {retries: 1, failures: 2}, {retries: 5, failures: 6, quietFor: 3},
	} {
		p := retry.Policy{MaxRetries: test.retries, QuietFailures: test.quietFor}
		if isExhausted(p, test.failures-1) || !isExhausted(p, test.failures) {
			t.Errorf("%d retries: given up before or after failure %d", test.retries, test.failures)
		}
		if test.quietFor > 0 && !isQuiet(p, test.quietFor) || isQuiet(p, test.quietFor+1) {
			t.Errorf("QuietFailures %d: Quiet is wrong for this number or the next", test.quietFor)
		}
	}
	if unlimited := (retry.Policy{}); isExhausted(unlimited, math.MaxInt) {
		t.Error("MaxRetries 0: given up, want no limit")
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	common := retry.Policy{Base: 5 * ms, Max: 1000 * s, Factor: 2, Jitter: 0.2}
	want := map[retry.Class]retry.Policy{
		retry.Default:              common,
		retry.Timeout:              common,
		retry.Panic:                common,
		retry.Conflict:             {Base: 5 * ms, Max: s, Factor: 2, Jitter: 0.5, QuietFailures: 5},
		retry.Throttled:            {Base: s, Max: m, Factor: 2, Jitter: 0.5},
		retry.Transient:            {Base: 100 * ms, Max: m, Factor: 2, Jitter: 0.5},
		retry.Forbidden:            {Base: s, Max: 5 * m, Factor: 2, Jitter: 0.2},
		retry.NamespaceTerminating: {Base: m, Max: 10 * m, Factor: 2, Jitter: 0.2},
		retry.Invalid:              {Base: 30 * s, Max: 30 * m, Factor: 2, Jitter: 0.2},
		retry.Terminal:             {Base: 5 * ms, Max: 1000 * s, Factor: 2, Jitter: 0.2, MaxRetries: -1},
		"quota":                    common, // a user's class
	}
	rules := mustRules(t, retry.Config{})
	for class, policy := range want {
		if diff := cmp.Diff(policy, rules.Policy(class)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", class, diff)
		}
	}
	classes := []retry.Class{
		retry.Terminal, retry.Panic, retry.Invalid, retry.Forbidden, retry.Default, retry.Timeout, retry.Throttled,
		retry.Transient, retry.Conflict, retry.NamespaceTerminating,
	}
	for _, class := range classes {
		if _, ok := Defaults()[class]; !ok {
			t.Errorf("class %s has no default policy", class)
		}
	}
	if got := len(Defaults()); got != len(classes) {
		t.Errorf("%d policies for %d classes", got, len(classes))
	}
}

func mustRules(t *testing.T, config retry.Config) *Rules {
	t.Helper()
	rules, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestZeroFieldsTakeDefaults(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	for name, test := range map[string]struct {
		config retry.Config
		class  retry.Class
		want   retry.Policy
	}{
		"Every": {
			retry.Config{Every: retry.Policy{Base: s, Max: 10 * s, Jitter: -1, MaxRetries: 3}},
			retry.Conflict,
			retry.Policy{Base: s, Max: 10 * s, Factor: 2, Jitter: -1, MaxRetries: 3, QuietFailures: 5},
		},
		"Policies override Every": {
			retry.Config{
				Every:    retry.Policy{Base: s, MaxRetries: 3},
				Policies: map[retry.Class]retry.Policy{retry.Conflict: {MaxRetries: 7, QuietFailures: -1}},
			},
			retry.Conflict,
			retry.Policy{Base: s, Max: s, Factor: 2, Jitter: 0.5, MaxRetries: 7, QuietFailures: -1},
		},
		"user's class": {
			retry.Config{Policies: map[retry.Class]retry.Policy{"quota": {Max: s}, retry.Default: {Base: ms, MaxRetries: 3}}},
			"quota",
			retry.Policy{Base: ms, Max: s, Factor: 2, Jitter: 0.2, MaxRetries: 3},
		},
		"a shorter Max shortens Base": {
			retry.Config{Every: retry.Policy{Max: s}},
			retry.Invalid,
			retry.Policy{Base: s, Max: s, Factor: 2, Jitter: 0.2},
		},
		"a longer Base lengthens Max": {
			retry.Config{Every: retry.Policy{Base: time.Hour}},
			retry.Throttled,
			retry.Policy{Base: time.Hour, Max: time.Hour, Factor: 2, Jitter: 0.5},
		},
		"Every.MaxRetries does not apply to Terminal": {
			retry.Config{Every: retry.Policy{MaxRetries: 5}},
			retry.Terminal,
			retry.Policy{Base: 5 * ms, Max: 1000 * s, Factor: 2, Jitter: 0.2, MaxRetries: -1},
		},
		"user's class without a policy": {
			retry.Config{Every: retry.Policy{QuietFailures: 3}, Policies: map[retry.Class]retry.Policy{retry.Default: {Factor: 1}}},
			"quota",
			retry.Policy{Base: 5 * ms, Max: 1000 * s, Factor: 1, Jitter: 0.2, QuietFailures: 3},
		},
	} {
		if diff := cmp.Diff(test.want, mustRules(t, test.config).Policy(test.class)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := New(retry.Config{
		Every: retry.Policy{Base: -1, Max: -2, Factor: 0.5, Jitter: 1.5},
		Policies: map[retry.Class]retry.Policy{
			retry.Conflict: {Base: time.Minute, Max: time.Second},
			retry.Terminal: {MaxRetries: 3},
			"quota":        {Factor: math.NaN(), Jitter: math.NaN()},
			"":             {},
		},
	})
	if err == nil {
		t.Fatal("New returned no error")
	}
	for _, want := range []string{
		"Every.Base is -1ns", "Every.Max is -2ns", "Every.Factor is 0.5", "Every.Jitter is 1.5",
		`Policies["conflict"].Max is 1s, below Base, 1m0s`, `Policies["terminal"].MaxRetries is 3`,
		`Policies["quota"].Factor is NaN`, `Policies["quota"].Jitter is NaN`, `Policies[""]`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q:\n%v", want, err)
		}
	}
}

func TestChangedDefaultsAreValidPolicies(t *testing.T) {
	t.Parallel()
	policies := Defaults()
	policies[retry.Conflict] = retry.Policy{MaxRetries: 2}
	if got := mustRules(t, retry.Config{Policies: policies}).Policy(retry.Conflict).MaxRetries; got != 2 {
		t.Errorf("%d retries, want 2", got)
	}
}

func TestConfigClassifyTakesPrecedence(t *testing.T) {
	t.Parallel()
	rules := mustRules(t, retry.Config{Classify: func(err error) retry.Class {
		switch err.Error() {
		case "quota exceeded":
			return "quota"
		case "panics":
			panic("oops")
		}
		return ""
	}})
	for err, want := range map[error]retry.Class{
		errors.New("quota exceeded"): "quota", errors.New("panics"): retry.Default, errtest.Conflict(): retry.Conflict, nil: "",
	} {
		if got := rules.Classify(err); got != want {
			t.Errorf("%v: class %q, want %q", err, got, want)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	rules := mustRules(t, retry.Config{Policies: map[retry.Class]retry.Policy{
		"quota": {Base: time.Second, MaxRetries: 2, Jitter: -1, QuietFailures: 9},
	}})
	hour := busy(time.Hour)
	for name, test := range map[string]struct {
		class    retry.Class
		err      error
		failures int
		want     Decision
	}{
		"retried":                     {"quota", errors.New("x"), 2, Decision{Class: "quota", Delay: 2 * time.Second, Quiet: true}},
		"given up":                    {"quota", errors.New("x"), 3, Decision{Class: "quota", GiveUp: true}},
		"terminal":                    {retry.Terminal, errtest.Response(429, 5), 1, Decision{Class: retry.Terminal, GiveUp: true}},
		"Retry-After above the delay": {"quota", errtest.Response(429, 5), 1, Decision{Class: "quota", Delay: 5 * time.Second, RetryAfter: 5 * time.Second, Quiet: true}},
		"Retry-After below the delay": {"quota", errtest.Response(429, 1), 2, Decision{Class: "quota", Delay: 2 * time.Second, RetryAfter: time.Second, Quiet: true}},
		"Retry-After above the limit": {"quota", hour, 1, Decision{Class: "quota", Delay: 10 * time.Minute, RetryAfter: 10 * time.Minute, Quiet: true}},
		"no error":                    {"quota", nil, 1, Decision{Class: "quota", Delay: time.Second, Quiet: true}},
	} {
		if diff := cmp.Diff(test.want, rules.Decide(test.class, test.err, test.failures)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestThrottledDelayIsNeverBelowRetryAfter(t *testing.T) {
	t.Parallel()
	rules := mustRules(t, retry.Config{})
	seen := map[time.Duration]bool{}
	for range 200 {
		delay := rules.Decide(retry.Throttled, errtest.Response(429, 7), 1).Delay
		if delay < 7*time.Second || delay > 7*time.Second*3/2 {
			t.Fatalf("the delay is %s, want 7s to 10.5s", delay)
		}
		seen[delay] = true
	}
	if len(seen) < 100 {
		t.Errorf("200 keys have only %d different delays", len(seen))
	}
}

func TestFirstFiveConflictsAreQuiet(t *testing.T) {
	t.Parallel()
	rules := mustRules(t, retry.Config{})
	for failures, quiet := range map[int]bool{1: true, 5: true, 6: false} {
		if got := rules.Decide(retry.Conflict, errtest.Conflict(), failures).Quiet; got != quiet {
			t.Errorf("conflict %d in a row: quiet is %t, want %t", failures, got, quiet)
		}
	}
}
