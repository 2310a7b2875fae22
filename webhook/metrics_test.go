package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/metrics/prometheus"
)

var _ Recorder = (*prometheus.Recorder)(nil)

// recorded collects the results of reviews, and the end of the certificate.
type recorded struct {
	mu      sync.Mutex
	results []string // guarded by mu
	// requests are "path conversion began" and "path status panicked".
	requests []string         // guarded by mu
	expiry   func() time.Time // guarded by mu
}

func (r *recorded) WebhookReviewed(name, result string, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results = append(r.results, name+" "+result+" "+took.String())
}

func (r *recorded) ObserveCertificate(_ string, expiry func() time.Time, _ func() (all, failed uint64)) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expiry = expiry
	return func() {}
}

func (r *recorded) ObserveHook(path string, isConversion bool) (begin func() (end func(status int, panicked bool))) {
	add := func(format string, args ...any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.requests = append(r.requests, path+" "+fmt.Sprintf(format, args...))
	}
	add("conversion %t", isConversion)
	return func() func(int, bool) {
		add("began")
		return func(status int, panicked bool) { add("%d %t", status, panicked) }
	}
}

// certificate returns the end of the certificate.
func (r *recorded) certificate() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.expiry()
}

// Each kind of review has its result in metrics.
func TestReviewsAreMeasured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		metrics := &recorded{}
		decisions := []func(context.Context) error{
			func(context.Context) error { return nil },
			func(context.Context) error { return errors.New("no") },
			func(context.Context) error { return Failure(errors.New("no")) },
			func(context.Context) error { panic("oops") },
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		}
		next := 0
		validate := func(ctx context.Context, _ *Request[*corev1.ConfigMap]) error {
			time.Sleep(time.Second)
			return decisions[next](ctx)
		}
		authorize := func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (accessStatus, error) {
			err := decisions[next](ctx)
			return accessStatus{Denied: next == 1, Allowed: next == 0}, err
		}
		cluster, err := kube.Connect(connect(t).RESTConfig(), addRobots)
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{
			Cluster: cluster, Hooks: []Hook{Validating(mapsOptions(), validate), robotHook(), Authorizing(accessName, authorize)},
			Metrics: metrics,
		})
		if err != nil {
			t.Fatal(err)
		}
		for next = range decisions {
			ask(t, s, mapReview(mapObject))
		}
		for _, next = range []int{0, 3} {
			post(t, s, "/"+accessName, []byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{}}}`))
		}
		convert(t, s, "example.com/v2", robotJSON("v1", `{"size":"1x2"}`))
		convert(t, s, "example.com/v2", robotJSON("v1", `{"size":"1"}`))
		post(t, s, "/"+robotsCRD, nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/"+robotsCRD+"?timeout=x", strings.NewReader("")))
		want := []string{
			hookName + " success 1s", hookName + " rejected 1s", hookName + " failed 1s", hookName + " panic 1s", hookName + " timeout 9s",
			accessName + " success 0s", accessName + " panic 0s", robotsCRD + " success 0s", robotsCRD + " failed 0s", robotsCRD + " invalid 0s", robotsCRD + " invalid 0s",
		}
		if diff := cmp.Diff(want, metrics.results); diff != "" {
			t.Error(diff)
		}
		requests := []string{"/" + hookName + " conversion false", "/" + robotsCRD + " conversion true", "/" + accessName + " conversion false"}
		for _, ended := range []string{
			hookName + " 200 false", hookName + " 200 false", hookName + " 500 false", hookName + " 500 true", hookName + " 500 false",
			accessName + " 200 false", accessName + " 500 true", robotsCRD + " 200 false", robotsCRD + " 200 false", robotsCRD + " 400 false", robotsCRD + " 400 false",
		} {
			name, _, _ := strings.Cut(ended, " ")
			requests = append(requests, "/"+name+" began", "/"+ended)
		}
		if diff := cmp.Diff(requests, metrics.requests); diff != "" {
			t.Error(diff)
		}
	})
}
