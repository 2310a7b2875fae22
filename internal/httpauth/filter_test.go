package httpauth

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"

	"github.com/evenkeel-go/evenkeel/internal/testlength"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reviewer is an API server that answers reviews. Tokens are "valid-NAME"; the user allowed may do everything.
type reviewer struct {
	delay time.Duration

	mu      sync.Mutex
	tokens  int                                  // reviews of tokens; guarded by mu
	access  int                                  // reviews of access; guarded by mu
	revoked map[string]bool                      // guarded by mu
	users   map[string]authenticationv1.UserInfo // by the token, in place of the user with its name; guarded by mu
	status  int                                  // of each response unless 0; guarded by mu
}

func (r *reviewer) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-time.After(r.delay):
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var response any
	switch req.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		r.tokens++
		var review authenticationv1.TokenReview
		if err := json.Unmarshal(body, &review); err != nil {
			return nil, err
		}
		name, valid := strings.CutPrefix(review.Spec.Token, "valid-")
		review.Status.Authenticated = valid && !r.revoked[review.Spec.Token]
		review.Status.User = authenticationv1.UserInfo{Username: name, Extra: map[string]authenticationv1.ExtraValue{"pod": {"a"}}}
		if user, found := r.users[review.Spec.Token]; found {
			review.Status.User = user
		}
		response = review
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		r.access++
		var review authorizationv1.SubjectAccessReview
		if err := json.Unmarshal(body, &review); err != nil {
			return nil, err
		}
		attributes := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == "allowed" || attributes.Path == "/public" && attributes.Verb == "get" && review.Spec.Extra["pod"][0] == "a" ||
			slices.Contains(review.Spec.Groups, "operators") || review.Spec.UID == "allowed-uid"
		response = review
	}
	text, err := json.Marshal(response)
	if err != nil {
		return nil, err
	}
	status := http.StatusCreated
	if r.status != 0 {
		status, text = r.status, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no"}`)
	}
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(text)), Request: req,
	}, nil
}

func (r *reviewer) expect(t *testing.T, tokens, access int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tokens != tokens || r.access != access {
		t.Errorf("%d reviews of tokens and %d of access, want %d and %d", r.tokens, r.access, tokens, access)
	}
	r.tokens, r.access = 0, 0
}

func (r *reviewer) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

type fixture struct {
	*reviewer
	*Filter
	logs    bytes.Buffer
	handler http.Handler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{reviewer: &reviewer{delay: time.Millisecond, revoked: map[string]bool{}}}
	cluster, err := kube.Connect(&rest.Config{Host: "http://test.invalid", Transport: f.reviewer})
	if err != nil {
		t.Fatal(err)
	}
	f.Filter, err = New(cluster, slog.New(slog.NewTextHandler(&f.logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	f.handler = f.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "content") }))
	return f
}

// send sends a request from a client's address.
func (f *fixture) send(ctx context.Context, client, method, path, authorization string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, method, path, nil)
	req.RemoteAddr = client + ":1234"
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, req)
	return w
}

func (f *fixture) get(t *testing.T, client, path, token string, want int) *httptest.ResponseRecorder {
	t.Helper()
	w := f.send(t.Context(), client, http.MethodGet, path, "Bearer "+token)
	if w.Code != want {
		t.Errorf("GET %s with token %.40s: status %d, want %d: %s", path, token, w.Code, want, w.Body)
	}
	if strings.Contains(w.Body.String(), "content") != (want == http.StatusOK) {
		t.Errorf("status %d with the body %q", w.Code, w.Body)
	}
	return w
}

func TestDecisions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Basic dmFsaWQ=", "valid-allowed", "Bearervalid-allowed"} {
			w := f.send(t.Context(), "10.0.0.1", http.MethodGet, "/metrics", authorization)
			if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("Authorization %q: status %d", authorization, w.Code)
			}
		}
		f.expect(t, 0, 0)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
		if w := f.send(t.Context(), "10.0.0.1", http.MethodGet, "/metrics", "bearer  valid-allowed "); w.Code != http.StatusOK {
			t.Errorf("scheme in lower case: status %d", w.Code)
		}
		f.get(t, "10.0.0.1", "/metrics", "invalid", http.StatusUnauthorized)
		if w := f.get(t, "10.0.0.1", "/metrics", "valid-other", http.StatusForbidden); !strings.Contains(w.Body.String(), `user "other" cannot get path "/metrics"`) {
			t.Errorf("forbidden: %s", w.Body)
		}
		f.get(t, "10.0.0.1", "/public", "valid-other", http.StatusOK)
		if w := f.send(t.Context(), "10.0.0.1", http.MethodPost, "/public", "Bearer valid-other"); w.Code != http.StatusForbidden {
			t.Errorf("POST: status %d", w.Code)
		}
	})
}

// TestAccessDependsOnAllUserAttributes checks that users with one name and different groups, UIDs or extra values do not share
// a decision.
func TestAccessDependsOnAllUserAttributes(t *testing.T) {
	t.Parallel()
	extra := func(pod string) map[string]authenticationv1.ExtraValue {
		return map[string]authenticationv1.ExtraValue{"pod": {pod}}
	}
	for name, allowed := range map[string]authenticationv1.UserInfo{
		"groups": {Username: "anna", Groups: []string{"staff", "operators"}, UID: "1", Extra: extra("b")},
		"UID":    {Username: "anna", Groups: []string{"staff"}, UID: "allowed-uid", Extra: extra("b")},
		"extra":  {Username: "anna", Groups: []string{"staff"}, UID: "1", Extra: extra("a")},
	} {
		for _, allowedFirst := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", allowedFirst), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					f.users = map[string]authenticationv1.UserInfo{
						"valid-yes": allowed,
						"valid-no":  {Username: "anna", Groups: []string{"staff"}, UID: "1", Extra: extra("b")},
					}
					if allowedFirst {
						f.get(t, "10.0.0.1", "/public", "valid-yes", http.StatusOK)
					}
					f.get(t, "10.0.0.1", "/public", "valid-no", http.StatusForbidden)
					f.get(t, "10.0.0.1", "/public", "valid-yes", http.StatusOK)
				})
			})
		}
	}
}

func TestCachedDecisionsExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for range 100 {
			f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
			f.get(t, "10.0.0.1", "/metrics", "valid-other", http.StatusForbidden)
			f.get(t, "10.0.0.1", "/metrics", "invalid", http.StatusUnauthorized)
		}
		f.expect(t, 3, 2)
		f.set(func() { f.revoked["valid-allowed"] = true })
		time.Sleep(positiveTTL - time.Second)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
		f.expect(t, 0, 0)
		time.Sleep(2 * time.Second)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusUnauthorized)
		f.expect(t, 1, 0)
		f.set(func() { f.revoked["valid-allowed"] = false })
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusUnauthorized)
		f.expect(t, 0, 0)
		time.Sleep(negativeTTL)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
		f.expect(t, 1, 1)
	})
}

func TestConcurrentRequestsShareReviews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.delay = time.Second
		first, cancel := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		clients.Go(func() { f.send(first, "10.0.0.1", http.MethodGet, "/metrics", "Bearer valid-allowed") })
		synctest.Wait()
		for range 1000 {
			clients.Go(func() { f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK) })
		}
		synctest.Wait()
		cancel() // the client whose review the others wait for
		clients.Wait()
		f.expect(t, 1, 1)
	})
}

// TestClientDisconnectsDuringReview checks that a request ends with its client, also while it waits for the review of another one, and that
// the disconnect is not logged as a failed review.
func TestClientDisconnectsDuringReview(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.delay = 5 * time.Second
		begun := time.Now()
		var clients sync.WaitGroup
		disconnects := func(after time.Duration) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			if w := f.send(ctx, "10.0.0.1", http.MethodGet, "/metrics", "Bearer valid-allowed"); w.Code == http.StatusOK {
				t.Error("a request succeeded after the disconnect")
			}
			if took := time.Since(begun); took != after {
				t.Errorf("the request took %s, the client disconnected after %s", took, after)
			}
		}
		clients.Go(func() { disconnects(2 * time.Second) }) // makes the review
		synctest.Wait()
		clients.Go(func() { disconnects(time.Second) }) // waits for it
		clients.Wait()
		if logs := f.logs.String(); logs != "" {
			t.Errorf("log: %s", logs)
		}
	})
}

// TestReviewThatPanics checks that a panic of a review ends the requests that wait for it, and that the next request
// makes a new review.
func TestReviewThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCache[string, bool](&budget{reviews: lru.New(maxEntries)})
		var requests sync.WaitGroup
		requests.Go(func() {
			defer func() {
				if value := recover(); value != "broken" {
					t.Errorf("recovered %v", value)
				}
			}()
			_, _ = c.get(t.Context(), "10.0.0.1", "key", func(context.Context) (bool, bool, error) {
				time.Sleep(time.Second)
				panic("broken")
			})
		})
		synctest.Wait()
		review := func(context.Context) (bool, bool, error) { return true, true, nil }
		requests.Go(func() {
			if allowed, err := c.get(t.Context(), "10.0.0.2", "key", review); err == nil || allowed {
				t.Errorf("a request that waited for the review: %t, %v", allowed, err)
			}
		})
		requests.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if allowed, err := c.get(ctx, "10.0.0.2", "key", review); err != nil || !allowed {
			t.Errorf("the next request: %t, %v", allowed, err)
		}
	})
}

func TestReviewsThatFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
		f.set(func() { f.status = http.StatusForbidden })
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK) // from the cache
		for range 5 {
			f.get(t, "10.0.0.2", "/metrics", "valid-other", http.StatusServiceUnavailable)
		}
		if n := strings.Count(f.logs.String(), "check of an HTTP request failed"); n != 1 || !strings.Contains(f.logs.String(), "system:auth-delegator") {
			t.Errorf("%d records of a failed review, want 1: %s", n, f.logs.String())
		}
		if strings.Contains(f.logs.String(), "valid-other") {
			t.Errorf("the log has a token: %s", f.logs.String())
		}
		time.Sleep(2 * positiveTTL)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusServiceUnavailable)
		f.set(func() { f.status = 0 })
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
		f.set(func() { f.delay = time.Hour })
		begun := time.Now()
		f.get(t, "10.0.0.3", "/metrics", "valid-slow", http.StatusServiceUnavailable)
		if took := time.Since(begun); took != reviewTimeout {
			t.Errorf("a review that hangs took %s, want %s", took, reviewTimeout)
		}
	})
}

// A client that sends 100,000 different tokens causes few reviews, bounded memory, and no error for others.
func TestDistinctTokens(t *testing.T) {
	t.Parallel()
	for _, sameAddress := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t)
			good, hostile := "10.0.0.1", "10.0.0.2"
			if sameAddress {
				hostile = good
			}
			f.get(t, good, "/metrics", "valid-allowed", http.StatusOK)
			begun := time.Now()
			for i := range testlength.Count(20_000, 100_000) {
				w := f.send(t.Context(), hostile, http.MethodGet, "/metrics", fmt.Sprint("Bearer invalid-", i))
				if w.Code != http.StatusUnauthorized && (w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "10") {
					t.Fatalf("an invalid token: status %d", w.Code)
				}
				time.Sleep(time.Millisecond)
				if i%5000 == 0 { // the good token expires several times
					time.Sleep(30 * time.Second)
					for j := range 2 * maxFailures {
						f.send(t.Context(), hostile, http.MethodGet, "/metrics", fmt.Sprint("Bearer further-", i, "-", j))
					}
					f.get(t, good, "/metrics", "valid-allowed", http.StatusOK)
				}
			}
			windows := int(time.Since(begun)/failureWindow) + 1
			f.reviewer.reviews(func(tokens int) {
				if limit := maxFailures*windows + 30; tokens > limit {
					t.Errorf("%d reviews in %s, want at most %d", tokens, time.Since(begun), limit)
				}
			})
		})
	}
}

func (r *reviewer) reviews(check func(tokens int)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	check(r.tokens)
}

// TestWindowOfReviewsIsNotExtended checks that a client whose rejected requests are rare is never limited.
func TestWindowOfReviewsIsNotExtended(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for i := range 2 * maxFailures {
			f.get(t, "10.0.0.1", "/metrics", fmt.Sprint("invalid-", i), http.StatusUnauthorized)
			time.Sleep(failureWindow * 2 / 3)
		}
	})
}

// Hostile clients with many addresses cannot evict the decisions for others, or use unbounded memory.
func TestDistinctTokensFromManyAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
		f.expect(t, 1, 1)
		n := testlength.Count(2_000, 10_000) // more than maxEntries
		for i := range n {
			f.get(t, fmt.Sprintf("10.1.%d.%d", i/250, i%250), "/metrics", fmt.Sprint("invalid-", i), http.StatusUnauthorized)
		}
		f.expect(t, n, 0)
		f.get(t, "10.0.0.1", "/metrics", "valid-allowed", http.StatusOK)
		f.expect(t, 0, 0)
		for name, n := range map[string]int{
			"rejected tokens": f.Filter.tokens.negative.Len(), "accepted tokens": f.Filter.tokens.positive.Len(),
			"addresses": f.Filter.tokens.budget.reviews.Len(), "reviews in progress": len(f.Filter.tokens.flights),
		} {
			if n > maxEntries {
				t.Errorf("%d %s, want at most %d", n, name, maxEntries)
			}
		}
	})
}

// Concurrent requests with different tokens are limited before the first review has ended. Requests with valid tokens
// are not.
func TestConcurrentDistinctTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.delay = time.Second
		var clients sync.WaitGroup
		for i := range 1000 {
			clients.Go(func() { f.send(t.Context(), "10.0.0.2", http.MethodGet, "/metrics", fmt.Sprint("Bearer invalid-", i)) })
		}
		clients.Wait()
		f.expect(t, maxFailures, 0)
		f.delay = time.Millisecond
		for i := range 100 {
			f.get(t, "10.0.0.3", "/public", fmt.Sprint("valid-", i), http.StatusOK)
		}
		f.expect(t, 100, 100)
	})
}
