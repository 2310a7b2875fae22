// Package httpauth protects HTTP handlers with the API server's authentication and authorization: a request needs a
// bearer token that a TokenReview accepts, and a SubjectAccessReview must allow its user the method and the path.
package httpauth

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"

	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	reviewTimeout = 10 * time.Second
	logInterval   = time.Minute
)

// Filter protects handlers. New creates one.
type Filter struct {
	rest   rest.Interface
	logger *slog.Logger

	// by the hash of the token; nil users are not authenticated
	tokens   *cache[[sha256.Size]byte, *authenticationv1.UserInfo]
	accesses *cache[[sha256.Size]byte, bool] // by the hash of the review's spec

	mu     sync.Mutex
	logged time.Time // guarded by mu; the last record of a failed review
}

// New returns a Filter. It makes no request.
func New(cluster *kube.Cluster, logger *slog.Logger) (*Filter, error) {
	client, err := cluster.RESTClient(authenticationv1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	b := &budget{reviews: lru.New(maxEntries)}
	return &Filter{
		rest: client, logger: logger,
		tokens:   newCache[[sha256.Size]byte, *authenticationv1.UserInfo](b),
		accesses: newCache[[sha256.Size]byte, bool](b),
	}, nil
}

// Protect returns a handler that calls next only for requests that the API server allows.
func (f *Filter) Protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
		token = strings.TrimSpace(token)
		if !strings.EqualFold(scheme, "Bearer") || token == "" {
			unauthorized(w)
			return
		}
		client, _, err := net.SplitHostPort(req.RemoteAddr)
		if err != nil {
			client = req.RemoteAddr
		}
		user, err := f.authenticate(req.Context(), client, token)
		if err == nil && user == nil {
			unauthorized(w)
			return
		}
		allowed := false
		verb := strings.ToLower(req.Method)
		if err == nil {
			allowed, err = f.authorize(req.Context(), client, user, verb, req.URL.Path)
		}
		switch {
		case errors.Is(err, errTooMany):
			w.Header().Set("Retry-After", fmt.Sprint(int(failureWindow.Seconds())))
			http.Error(w, "too many rejected requests", http.StatusTooManyRequests)
		case err != nil:
			f.reviewFailed(req.Context(), err)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the API server cannot check the request: the log has the reason",
				http.StatusServiceUnavailable)
		case !allowed:
			http.Error(w, fmt.Sprintf("user %q cannot %s path %q", user.Username, verb, req.URL.Path),
				http.StatusForbidden)
		default:
			next.ServeHTTP(w, req)
		}
	})
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	http.Error(w, "a valid bearer token is required", http.StatusUnauthorized)
}

// reviewFailed logs the error of a review, at most once in logInterval, because clients can cause many.
func (f *Filter) reviewFailed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the client has disconnected
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.logged.IsZero() && time.Since(f.logged) < logInterval {
		return
	}
	f.logged = time.Now()
	f.logger.ErrorContext(ctx, "check of an HTTP request failed", "error", err,
		"hint", "the ClusterRole system:auth-delegator has the required permissions")
}

// authenticate returns the user of a token, or nil if the API server rejects it.
func (f *Filter) authenticate(ctx context.Context, client, token string) (*authenticationv1.UserInfo, error) {
	return f.tokens.get(ctx, client, sha256.Sum256([]byte(token)),
		func(ctx context.Context) (*authenticationv1.UserInfo, bool, error) {
			review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
			review.APIVersion, review.Kind = "authentication.k8s.io/v1", "TokenReview"
			if err := f.review(ctx, "/apis/authentication.k8s.io/v1/tokenreviews", &review); err != nil {
				return nil, false, fmt.Errorf("review a token: %w", err)
			}
			if !review.Status.Authenticated {
				return nil, false, nil
			}
			return &review.Status.User, true, nil
		})
}

// authorize reports whether a user may use a path with a verb.
func (f *Filter) authorize(
	ctx context.Context, client string, user *authenticationv1.UserInfo, verb, path string,
) (bool, error) {
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: verb},
	}}
	review.APIVersion, review.Kind = "authorization.k8s.io/v1", "SubjectAccessReview"
	for key, values := range user.Extra {
		if review.Spec.Extra == nil {
			review.Spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	key, err := json.Marshal(review.Spec) // with sorted maps
	if err != nil {
		return false, fmt.Errorf("encode the access review: %w", err)
	}
	return f.accesses.get(ctx, client, sha256.Sum256(key), func(ctx context.Context) (bool, bool, error) {
		if err := f.review(ctx, "/apis/authorization.k8s.io/v1/subjectaccessreviews", &review); err != nil {
			return false, false, fmt.Errorf("review the access of user %q: %w", user.Username, err)
		}
		return review.Status.Allowed, review.Status.Allowed, nil
	})
}

// review sends a review and decodes the response into it. The types of reviews are not registered in the cluster's
// scheme, so it uses JSON.
func (f *Filter) review(ctx context.Context, path string, review any) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	text, err := f.rest.Post().AbsPath(path).SetHeader("Accept", "application/json").SetHeader("Content-Type",
		"application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, review)
}
