package kube_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
)

// answers is a transport that answers each request with an empty object.
func answers(*http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader("{}")),
	}, nil
}

func TestRateLimitIsOneForAllClientsOfCluster(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		config rest.Config
		want   time.Duration // of 12 requests
	}{
		"default":     {rest.Config{}, 0},
		"negative":    {rest.Config{QPS: -1}, 0},
		"QPS":         {rest.Config{QPS: 1, Burst: 2}, 10 * time.Second},
		"RateLimiter": {rest.Config{QPS: -1, RateLimiter: flowcontrol.NewTokenBucketRateLimiter(2, 2)}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				config := test.config
				config.Host, config.Transport = "http://server", roundTripper(answers)
				cluster := connectTo(t, &config)
				codecs := serializer.NewCodecFactory(k8sruntime.NewScheme()).WithoutConversion()
				var requests sync.WaitGroup
				began := time.Now()
				for _, gv := range []schema.GroupVersion{
					{Version: "v1"}, {Group: "apps", Version: "v1"}, {Group: "batch", Version: "v1"},
				} {
					own, err := cluster.RESTClient(gv)
					if err != nil {
						t.Fatal(err)
					}
					config := cluster.RESTConfig()
					config.APIPath = "/apis"
					if gv.Group == "" {
						config.APIPath = "/api"
					}
					config.GroupVersion, config.NegotiatedSerializer = &gv, codecs
					users, err := rest.RESTClientFor(config)
					if err != nil {
						t.Fatal(err)
					}
					for _, client := range []rest.Interface{own, own, users, users} {
						requests.Go(func() { // waited for below
							if err := client.Get().Resource("things").Do(t.Context()).Error(); err != nil {
								t.Error(err)
							}
						})
					}
				}
				requests.Wait()
				if got := time.Since(began); got != test.want {
					t.Errorf("12 requests took %s, want %s", got, test.want)
				}
			})
		})
	}
}

// starved is a rate limiter that permits no request.
type starved struct{ flowcontrol.RateLimiter }

func (starved) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// exiting is a rate limiter that ends the goroutine.
type exiting struct{ flowcontrol.RateLimiter }

func (exiting) Wait(context.Context) error {
	runtime.Goexit()
	return nil
}

func TestInternalRequestsDoNotWaitForRateLimit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path string
		election     bool
		waits        bool
	}{
		"list":                    {http.MethodGet, "/api/v1/pods", false, true},
		"write":                   {http.MethodPost, "/api/v1/namespaces/ns/pods", false, true},
		"lease of other software": {http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a", false, true},
		"lease of package leader": {http.MethodPut, "/apis/coordination.k8s.io/v1/namespaces/ns/leases/a", true, false},
		"kinds of the core group": {http.MethodGet, "/api/v1", false, false},
		"kinds of a group":        {http.MethodGet, "/apis/apps/v1", false, false},
		"all groups":              {http.MethodGet, "/apis", false, false},
		"Event":                   {http.MethodPost, "/apis/events.k8s.io/v1/namespaces/ns/events", false, false},
		"review of a token":       {http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", false, false},
		"review of access":        {http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				for _, limiter := range []flowcontrol.RateLimiter{starved{}, exiting{}} {
					cluster := connectTo(t, &rest.Config{
						Host: "http://server", Transport: roundTripper(answers), RateLimiter: limiter,
					})
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if test.election {
						ctx = leadership.ForElection(ctx)
					}
					req, err := http.NewRequestWithContext(ctx, test.method, "http://server"+test.path, nil)
					if err != nil {
						t.Fatal(err)
					}
					_, err = send(cluster.HTTPClient(), req)
					if waited := err != nil && strings.Contains(err.Error(), "wait for the rate limit"); waited != test.waits {
						t.Errorf("%T: %v, want a wait: %t", limiter, err, test.waits)
					}
				}
			})
		})
	}
}
