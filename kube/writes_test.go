package kube_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// sentRequests is a transport that records the time of each request.
type sentRequests struct {
	mu    sync.Mutex
	times []time.Time // guarded by mu
}

func (s *sentRequests) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, time.Now())
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: req,
		Body: io.NopCloser(strings.NewReader(`{}`)),
	}, nil
}

func (s *sentRequests) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}

// limited returns a Cluster, and one that is made of its config.
func limited(t *testing.T) (cluster, nested *kube.Cluster, sent *sentRequests) {
	t.Helper()
	sent = &sentRequests{}
	cluster, err := kube.Connect(&rest.Config{Host: "http://api.invalid", Transport: sent})
	if err != nil {
		t.Fatal(err)
	}
	if nested, err = kube.Connect(cluster.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return cluster, nested, sent
}

func sendTo(ctx context.Context, cluster *kube.Cluster, method, path string) error {
	req, err := http.NewRequestWithContext(ctx, method, "http://api.invalid"+path, strings.NewReader(`{}`))
	if err != nil {
		return err
	}
	response, err := cluster.HTTPClient().Do(req)
	if err == nil {
		_ = response.Body.Close()
	}
	return err
}

// Every kind of write is switched off and on, at run time and for all clients, and nothing else is.
func TestSetReadOnly(t *testing.T) {
	t.Parallel()
	const maps, reviews = "/api/v1/namespaces/a/configmaps", "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	cluster, nested, sent := limited(t)
	for request, writes := range map[string]bool{
		"GET " + maps:                                      false,
		"GET " + maps + "?watch=true":                      false,
		"POST " + maps:                                     true,
		"POST " + maps + "?dryRun=All":                     false,
		"PUT " + maps + "/b":                               true,
		"PATCH " + maps + "/b":                             true,
		"PATCH " + maps + "/b?dryRun=All":                  false,
		"PATCH " + maps + "/b/status":                      true,
		"DELETE " + maps + "/b":                            true,
		"DELETE " + maps:                                   true,
		"POST " + reviews:                                  false,
		"POST /apis/authentication.k8s.io/v1/tokenreviews": false,
		"POST /apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews": false,
		"POST /api/v1/namespaces/a/pods/b/eviction":                                 true,
		"POST /api/v1/namespaces/a/pods/b/binding":                                  true,
		"POST /api/v1/namespaces/a/pods/b/exec":                                     true,
		"GET /api/v1/namespaces/a/pods/b/exec":                                      true,
		"GET /api/v1/namespaces/a/pods/b/log":                                       false,
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b":                    true,
		"POST /apis/events.k8s.io/v1/namespaces/a/events":                           true,
		"DELETE /apis/example.com/v1/things/tokenreviews":                           true,
	} {
		method, path, _ := strings.Cut(request, " ")
		for name, c := range map[string]*kube.Cluster{"": cluster, " through a nested cluster": nested} {
			for _, readOnly := range []bool{true, false} {
				cluster.SetReadOnly(readOnly)
				before := sent.count()
				observer := &countingObserver{}
				err := sendTo(kube.ObserveCalls(t.Context(), observer), c, method, path)
				rejected := errors.Is(err, kube.ErrReadOnly)
				if want := writes && readOnly; rejected != want || (err != nil) != want || sent.count()-before != map[bool]int{false: 1}[want] {
					t.Errorf("%s%s, read-only %v: %v, %d requests were sent", request, name, readOnly, err, sent.count()-before)
				}
				if rejected && name == "" && observer.calls > 0 {
					t.Errorf("%s: a write that was not sent was reported to the observer", request)
				}
				if rejected && retry.Classify(err) != retry.Default {
					t.Errorf("the class of %v is %v", err, retry.Classify(err))
				}
			}
		}
	}
	cluster.SetReadOnly(true)
	if err := sendTo(leadership.ForElection(t.Context()), nested, "PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"); err != nil {
		t.Errorf("the request of an election: %v", err)
	}
}

type countingObserver struct{ calls int }

func (o *countingObserver) CallBegan(ctx context.Context, _ kube.Call) context.Context {
	o.calls++
	return ctx
}

func (o *countingObserver) CallEnded(context.Context, kube.Call) {}

// Writes of many goroutines are spread over time. Reads are not delayed, and a changed limit applies at once.
func TestSetWriteLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, _, sent := limited(t)
		cluster.SetWriteLimit(20)
		burst := func(writes int) time.Duration {
			began := time.Now()
			var writing sync.WaitGroup
			for range 8 {
				writing.Go(func() {
					for range writes / 8 {
						if err := sendTo(t.Context(), cluster, "PATCH", "/api/v1/namespaces/a/configmaps/b"); err != nil {
							t.Error(err)
						}
					}
				})
			}
			writing.Wait()
			return time.Since(began)
		}
		if took := burst(200); took < 9900*time.Millisecond || took > 10*time.Second {
			t.Errorf("200 writes took %s with a limit of 20 in a second", took)
		}
		for i, begin := range sent.times {
			end, _ := slices.BinarySearchFunc(sent.times, begin.Add(time.Second), time.Time.Compare)
			if end-i > 20 {
				t.Fatalf("%d writes were sent within a second", end-i)
			}
		}
		began := time.Now()
		for range 100 {
			if err := sendTo(t.Context(), cluster, "GET", "/api/v1/pods"); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("100 reads took %s", took)
		}
		time.Sleep(time.Hour) // unused time is not saved up
		cluster.SetWriteLimit(100)
		if took := burst(200); took < 1980*time.Millisecond || took > 2*time.Second {
			t.Errorf("200 writes took %s with a limit of 100 in a second", took)
		}
		cluster.SetWriteLimit(0)
		if took := burst(200); took > 0 {
			t.Errorf("200 writes took %s without a limit", took)
		}
	})
}

// A write that waits ends with its context, and is not sent after that or after the switch is off.
func TestWritesEndWhileTheyWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, _, sent := limited(t)
		cluster.SetWriteLimit(0.1)
		write := func(ctx context.Context) <-chan error {
			result := make(chan error, 1)
			go func() { result <- sendTo(ctx, cluster, "DELETE", "/api/v1/namespaces/a/configmaps/b") }() // waited for by the readers
			return result
		}
		if err := <-write(t.Context()); err != nil {
			t.Fatal(err)
		}
		held, leading := lead(t)
		short, cancelShort := context.WithTimeout(t.Context(), time.Second)
		defer cancelShort()
		cancelled, cancel := context.WithCancel(t.Context())
		began := time.Now()
		if err := <-write(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "write limit of 0.1") || time.Since(began) > 0 {
			t.Errorf("a write with a short deadline: %v after %s", err, time.Since(began))
		}
		results := []<-chan error{write(cancelled), write(leading)}
		synctest.Wait()
		cancel()
		held.Lose(errTaken)
		for i, want := range []error{context.Canceled, kube.ErrLeadershipLost} {
			if err := <-results[i]; !errors.Is(err, want) || time.Since(began) > 0 {
				t.Errorf("a write that waits returned %v after %s, want %v", err, time.Since(began), want)
			}
		}
		waits := write(t.Context())
		synctest.Wait()
		cluster.SetReadOnly(true)
		if err := <-waits; !errors.Is(err, kube.ErrReadOnly) {
			t.Errorf("a write that waits while writes are switched off: %v", err)
		}
		if n := sent.count(); n != 1 {
			t.Errorf("%d writes were sent, want only the first one", n)
		}
	})
}

func TestSetWriteLimitRejects(t *testing.T) {
	t.Parallel()
	cluster, _, _ := limited(t)
	for _, limit := range []float64{-1, math.NaN()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("SetWriteLimit(%v) did not panic", limit)
				}
			}()
			cluster.SetWriteLimit(limit)
		}()
	}
}

// A changed limit, and read-only, apply to the writes that wait already: those of a low limit would wait for hours.
func TestSwitchesApplyToWaitingWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, test := range map[string]struct {
			change func(c *kube.Cluster)
			within time.Duration
			want   error
		}{
			"no limit":         {func(c *kube.Cluster) { c.SetWriteLimit(0) }, 0, nil},
			"a higher limit":   {func(c *kube.Cluster) { c.SetWriteLimit(10) }, 10 * time.Second, nil},
			"an extreme limit": {func(c *kube.Cluster) { c.SetWriteLimit(5e-324); c.SetWriteLimit(math.MaxFloat64) }, 0, nil},
			"read-only":        {func(c *kube.Cluster) { c.SetReadOnly(true) }, 0, kube.ErrReadOnly},
		} {
			cluster, _, sent := limited(t)
			cluster.SetWriteLimit(0.001)
			results := make(chan error, 100)
			for range cap(results) {
				go func() { results <- sendTo(t.Context(), cluster, "PATCH", "/api/v1/namespaces/a/configmaps/b") }() // waited for below
			}
			synctest.Wait()
			began := time.Now()
			test.change(cluster)
			for range cap(results) {
				if err := <-results; !errors.Is(err, test.want) && err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			if took := time.Since(began); took > test.within {
				t.Errorf("%s: waiting writes ended %s after the change", name, took)
			}
			if n := sent.count(); test.want != nil && n != 1 || test.want == nil && n != cap(results) {
				t.Errorf("%s: %d writes were sent", name, n)
			}
		}
	})
}

// Writes that end while they wait do not use the places of others. The order is that of the calls.
func TestWaitingWritesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, _, sent := limited(t)
		cluster.SetWriteLimit(1)
		if err := sendTo(t.Context(), cluster, "PATCH", "/api/v1/namespaces/a/configmaps/first"); err != nil {
			t.Fatal(err)
		}
		var order []int
		var mu sync.Mutex
		var writing sync.WaitGroup
		cancelled, cancel := context.WithCancel(t.Context())
		for i := range 10 {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = cancelled
			}
			writing.Go(func() {
				if err := sendTo(ctx, cluster, "PATCH", "/api/v1/namespaces/a/configmaps/b"); err == nil {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				}
			})
			synctest.Wait()
		}
		cancel()
		began := time.Now()
		writing.Wait()
		if took := time.Since(began); !slices.Equal(order, []int{1, 3, 5, 7, 9}) || took > 5*time.Second || sent.count() != 6 {
			t.Errorf("the writes %v were sent within %s", order, took)
		}
	})
}

// The end of a term ends the wait of its writes, also if their context continues.
func TestWaitingWriteEndsWithItsTerm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, _, sent := limited(t)
		cluster.SetWriteLimit(0.001)
		if err := sendTo(t.Context(), cluster, "PATCH", "/api/v1/namespaces/a/configmaps/b"); err != nil {
			t.Fatal(err)
		}
		held, leading := lead(t)
		result := make(chan error, 1)
		go func() { // waited for below
			result <- sendTo(context.WithoutCancel(leading), cluster, "PATCH", "/api/v1/namespaces/a/configmaps/b")
		}()
		synctest.Wait()
		began := time.Now()
		held.Lose(errTaken)
		if err := <-result; !errors.Is(err, kube.ErrLeadershipLost) || time.Since(began) > 0 || sent.count() != 1 {
			t.Errorf("%v, %s after the loss", err, time.Since(began))
		}
	})
}
