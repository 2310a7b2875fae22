package kube

import (
	"cmp"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// takeLimiter returns the rate limiter of a config, and removes it from there: client-go would make one for each group
// and version, and would let the requests wait that are exempt.
func takeLimiter(config *rest.Config) flowcontrol.RateLimiter {
	limiter := config.RateLimiter
	if usercode.IsNil(limiter) {
		limiter = nil
	}
	if limiter == nil && config.QPS > 0 {
		limiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, cmp.Or(config.Burst, rest.DefaultBurst))
	}
	config.RateLimiter, config.QPS, config.Burst = nil, -1, 0
	return limiter
}

// waitForLimits waits until the rate limiter and the limit of writes permit a request. term is nil without leadership.
func (c *Cluster) waitForLimits(req *http.Request, term *leadership.Term) error {
	if c.limiter != nil && !c.isExempt(req) {
		wait := func() error { return c.limiter.Wait(req.Context()) }
		if err := c.guard.Try("the RateLimiter of a rest.Config", wait); err != nil {
			return fmt.Errorf("wait for the rate limit of the client: %w", err)
		}
	}
	return c.limits.wait(req, c.basePath, term)
}

// isExempt reports whether a request does not wait for the rate limiter: see Connect.
func (c *Cluster) isExempt(req *http.Request) bool {
	call := callOf(req, c.basePath)
	isDiscovery, isEvent := call.Verb == "", call.Resource.Resource == "events"
	return isDiscovery || isEvent || call.reviews() || leadership.IsElection(req.Context())
}
