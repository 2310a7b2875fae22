package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

type (
	tokenStatus  = authenticationv1.TokenReviewStatus
	accessStatus = authorizationv1.SubjectAccessReviewStatus
)

const (
	tokensName = "tokens.example.com"
	accessName = "access.example.com"
)

// authenticated sends a review of a token for the audiences, and returns the status and the HTTP response.
func authenticated(tb testing.TB, f func(context.Context, *authenticationv1.TokenReviewSpec) (tokenStatus, error), audiences string) (tokenStatus, string) {
	tb.Helper()
	s := serve(tb, Authenticating(tokensName, f))
	code, text := post(tb, s, "/"+tokensName, []byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"secret","audiences":[`+audiences+`]}}`))
	review := &authenticationv1.TokenReview{}
	if code != http.StatusOK || json.Unmarshal(text, review) != nil || review.APIVersion != "authentication.k8s.io/v1" || review.Kind != "TokenReview" || review.Spec.Token != "" {
		tb.Fatalf("status %d: %s", code, text)
	}
	return review.Status, string(text)
}

func TestTokenReviews(t *testing.T) {
	t.Parallel()
	jane := authenticationv1.UserInfo{Username: "jane", Groups: []string{"devs"}}
	for name, test := range map[string]struct {
		status    tokenStatus
		err       error
		panics    any
		audiences string
		want      string // the text of the error; "-" if the token is authenticated, "" if it is not
	}{
		"valid":                    {status: tokenStatus{Authenticated: true, User: jane}, want: "-"},
		"not valid":                {},
		"user of a wrong token":    {status: tokenStatus{User: jane, Audiences: []string{"a"}}},
		"own error":                {status: tokenStatus{Error: "expired"}, want: "expired"},
		"error":                    {status: tokenStatus{Authenticated: true, User: jane}, err: errors.New("no database"), want: "no database"},
		"panic":                    {panics: "oops", want: "webhook tokens.example.com panicked: oops"},
		"authenticated with error": {status: tokenStatus{Authenticated: true, User: jane, Error: "odd"}, want: "the token is authenticated with an error: odd"},
		"no user":                  {status: tokenStatus{Authenticated: true}, want: "authenticated without a user name"},
		"audience":                 {status: tokenStatus{Authenticated: true, User: jane, Audiences: []string{"b"}}, audiences: `"a","b"`, want: "-"},
		"no audience":              {status: tokenStatus{Authenticated: true, User: jane}, audiences: `"a"`, want: "without an audience"},
		"other audience":           {status: tokenStatus{Authenticated: true, User: jane, Audiences: []string{"a", "c"}}, audiences: `"a","b"`, want: `for the audience "c"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, text := authenticated(t, func(_ context.Context, spec *authenticationv1.TokenReviewSpec) (tokenStatus, error) {
				if test.panics != nil {
					panic(test.panics)
				}
				if spec.Token != "secret" {
					return tokenStatus{}, errors.New("no token")
				}
				spec.Audiences = nil // must not change the result
				return test.status, test.err
			}, test.audiences)
			if test.want == "-" {
				if !status.Authenticated || status.User.Username != "jane" || status.Error != "" {
					t.Error(text)
				}
				return
			}
			if status.Authenticated || status.User.Username != "" || len(status.Audiences) > 0 || (status.Error == "") != (test.want == "") || !strings.Contains(status.Error, test.want) {
				t.Error(text)
			}
		})
	}
}

func TestSubjectAccessReviews(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status accessStatus
		err    error
		panics any
		want   string // the text of an HTTP error
	}{
		"allowed":               {status: accessStatus{Allowed: true, Reason: "owner"}},
		"allowed with an error": {status: accessStatus{Allowed: true, EvaluationError: "one rule is not valid"}},
		"denied":                {status: accessStatus{Denied: true, Reason: "blocked"}},
		"no opinion":            {},
		"allowed and denied":    {status: accessStatus{Allowed: true, Denied: true}, want: "the request is allowed and denied"},
		"error":                 {status: accessStatus{Allowed: true}, err: errors.New("no database"), want: "no database"},
		"panic":                 {panics: "oops", want: "webhook access.example.com panicked: oops"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, Authorizing(accessName, func(_ context.Context, access *authorizationv1.SubjectAccessReviewSpec) (accessStatus, error) {
				if test.panics != nil {
					panic(test.panics)
				}
				if access.User != "jane" || access.ResourceAttributes.Verb != "get" {
					return accessStatus{}, errors.New("wrong request")
				}
				return test.status, test.err
			}))
			code, text := post(t, s, "/"+accessName, []byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","resourceAttributes":{"verb":"get"}}}`))
			if test.want != "" {
				if code != http.StatusInternalServerError || string(text) != test.want {
					t.Error(code, string(text))
				}
				return
			}
			review := &authorizationv1.SubjectAccessReview{}
			if code != http.StatusOK || json.Unmarshal(text, review) != nil || review.Status != test.status || review.APIVersion != "authorization.k8s.io/v1" || review.Kind != "SubjectAccessReview" {
				t.Error(code, string(text))
			}
		})
	}
}

// A result after the time-out is not a decision.
func TestLateAccessReviews(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		status, text := authenticated(t, func(ctx context.Context, _ *authenticationv1.TokenReviewSpec) (tokenStatus, error) {
			<-ctx.Done()
			return tokenStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}, nil
		}, "")
		if status.Authenticated || status.Error != "the webhook did not respond within 9s" {
			t.Error(text)
		}
		s := serve(t, Authorizing(accessName, func(ctx context.Context, _ *authorizationv1.SubjectAccessReviewSpec) (accessStatus, error) {
			<-ctx.Done()
			return accessStatus{Allowed: true}, nil
		}))
		code, body := post(t, s, "/"+accessName+"?timeout=1s", []byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{"path":"/"}}}`))
		if code != http.StatusInternalServerError || string(body) != "the webhook did not respond within 900ms" {
			t.Error(code, string(body))
		}
	})
}

// Reviews that are not valid never reach the functions.
func TestInvalidAccessReviews(t *testing.T) {
	t.Parallel()
	s := serve(t, Authenticating(tokensName, func(context.Context, *authenticationv1.TokenReviewSpec) (tokenStatus, error) {
		t.Error("a token is reviewed")
		return tokenStatus{}, nil
	}), Authorizing(accessName, func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (accessStatus, error) {
		t.Error("access is reviewed")
		return accessStatus{}, nil
	}))
	for body, code := range map[string]int{
		`{"apiVersion":"authentication.k8s.io/v1beta1","kind":"TokenReview","spec":{"token":"a"}}`:                                          400,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":""}}`:                                                400,
		`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"Token":"a"}}`:                                               400,
		`{"apiVersion":"authorization.k8s.io/v1beta1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{}}}`:                    400,
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane"}}`:                                      400,
		`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"nonResourceAttributes":{},"resourceAttributes":{}}}`: 400,
		`{}`: 400, ``: 400, strings.Repeat(" ", maxAccessBytes+1): 413,
	} {
		for _, name := range []string{tokensName, accessName} {
			if got, text := post(t, s, "/"+name, []byte(body)); got != code {
				t.Errorf("%.100s: %d %s", body, got, text)
			}
		}
	}
	_, err := New(Config{Cluster: connect(t), Hooks: []Hook{Authenticating(tokensName, nil), Authorizing("A B", nil)}})
	for _, want := range []string{`Hooks[0] "tokens.example.com": the function is nil`, `Hooks[1] "A B": the name is not a domain name`, `Hooks[1] "A B": the function is nil`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// A body never makes the server panic, and only the decision of the function authenticates.
func FuzzTokenReview(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"secret","audiences":["a"]},"status":{"authenticated":true,"user":{"username":"root"}}}`))
	f.Add([]byte(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"secret"}}`))
	allowed := false
	s, err := New(Config{Cluster: connect(f), Hooks: []Hook{Authenticating(tokensName, func(_ context.Context, spec *authenticationv1.TokenReviewSpec) (tokenStatus, error) {
		allowed = spec.Token == "secret"
		return tokenStatus{Authenticated: allowed, User: authenticationv1.UserInfo{Username: "jane"}, Audiences: spec.Audiences}, nil
	})}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		allowed = false
		code, text := post(t, s, "/"+tokensName, body)
		review := &authenticationv1.TokenReview{}
		if code == http.StatusOK && json.Unmarshal(text, review) != nil || review.Status.Authenticated != allowed || strings.Contains(string(text), "panicked") {
			t.Errorf("allowed is %t: %d %s", allowed, code, text)
		}
	})
}

// A body never makes the server panic, and only the decision of the function allows.
func FuzzSubjectAccessReview(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"jane","resourceAttributes":{"verb":"get"}},"status":{"allowed":true}}`))
	f.Add([]byte(`{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"joe","nonResourceAttributes":{"path":"/"},"extra":{"a":["b"]}}}`))
	allowed := false
	s, err := New(Config{Cluster: connect(f), Hooks: []Hook{Authorizing(accessName, func(_ context.Context, access *authorizationv1.SubjectAccessReviewSpec) (accessStatus, error) {
		allowed = access.User == "jane"
		return accessStatus{Allowed: allowed}, nil
	})}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		allowed = false
		code, text := post(t, s, "/"+accessName, body)
		review := &authorizationv1.SubjectAccessReview{}
		if code == http.StatusOK && json.Unmarshal(text, review) != nil || review.Status.Allowed != allowed || strings.Contains(string(text), "panicked") {
			t.Errorf("allowed is %t: %d %s", allowed, code, text)
		}
	})
}
