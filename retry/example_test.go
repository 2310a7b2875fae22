package retry_test

import (
	"errors"
	"fmt"
	"net/url"
	"syscall"
	"time"

	"github.com/evenkeel-go/evenkeel/retry"
)

// A custom class: the quota of a cloud provider stays exceeded for hours.
func Example() {
	errQuota := errors.New("quota exceeded")

	rules, err := retry.New(retry.Config{
		Classify: func(err error) retry.Class {
			if errors.Is(err, errQuota) {
				return "quota"
			}
			return "" // the package's Classify decides
		},
		Every: retry.Policy{Jitter: -1},
		Policies: retry.Policies{
			"quota":        {Base: time.Minute, Max: time.Hour, MaxRetries: 20},
			retry.Conflict: {Max: 100 * time.Millisecond},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	failed := fmt.Errorf("create the volume: %w", errQuota)
	class := rules.Classify(failed)
	for _, failures := range []int{1, 2, 7, 21} {
		decision := rules.Decide(class, failed, failures)
		fmt.Println(decision.Class, failures, decision.Delay, decision.GiveUp)
	}
	// Output:
	// quota 1 1m0s false
	// quota 2 2m0s false
	// quota 7 1h0m0s false
	// quota 21 0s true
}

// Find out which of several failures is a connection failure.
func ExampleFailures() {
	refused := &url.Error{Op: "Get", URL: "https://registry", Err: syscall.ECONNREFUSED}
	err := errors.Join(fmt.Errorf("query the registry: %w", refused), errors.New("the image has no name"))
	fmt.Println(retry.Failures(err, func(_ error, class retry.Class) bool { return class == retry.Transient }))
	// Output:
	// [true false]
}
