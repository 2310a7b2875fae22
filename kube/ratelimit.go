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
// and version, and would let the requests wait for which throttle makes an exception.
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

// throttle waits until the rate limiter permits a request, or the context of the request ends.
func (c *Cluster) throttle(req *http.Request) error {
	if c.limiter == nil {
		return nil
	}
	ctx := req.Context()
	call := callOf(req, c.basePath)
	isDiscovery, isEvent := call.Verb == "", call.Resource.Resource == "events"
	if isDiscovery || isEvent || call.reviews() || leadership.IsElection(ctx) {
		return nil
	}
	err := c.guard.Try("the RateLimiter of a rest.Config", func() error { return c.limiter.Wait(ctx) })
	if err != nil {
		return fmt.Errorf("wait for the rate limit of the client: %w", err)
	}
	return nil
}
