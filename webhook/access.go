package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

const (
	// accessTimeout is the time for a review of a token or of access. The API server sends no time-out, and waits 30 s
	// by default.
	accessTimeout = 10 * time.Second
	// maxAccessBytes is the limit of such a review, which has a token, or the names of a user's groups.
	maxAccessBytes = 1 << 20
)

// Authenticating returns a hook for TokenReviews (authentication.k8s.io/v1). authenticate decides whether a token is
// valid, and whose it is. The zero value of the status means that the token is not valid. name is the path of the hook,
// for example "tokens.example.com".
//
// An error, a panic, a result after the time-out of 10 s, a user without a name, and audiences that were not requested
// never authenticate: the response has the reason as its error, and the API server asks its next authenticator.
func Authenticating(
	name string,
	authenticate func(ctx context.Context, token *authenticationv1.TokenReviewSpec) (
		authenticationv1.TokenReviewStatus, error,
	),
) Hook {
	return Hook{name: name, protocol: access[authenticationv1.TokenReview]{
		name: name, isNil: authenticate == nil, kind: authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
		decide: func(ctx context.Context, s *Server, review *authenticationv1.TokenReview) (string, error) {
			return reviewToken(ctx, s, name, review, authenticate)
		},
	}}
}

// Authorizing returns a hook for SubjectAccessReviews (authorization.k8s.io/v1). authorize decides on a request. The
// zero value of the status is no opinion: the API server asks its next authorizer. name is the path of the hook, for
// example "access.example.com".
//
// An error, a panic, a result after the time-out of 10 s, and a status that is both Allowed and Denied never allow a
// request: the response is an HTTP error, and the failure policy of the API server's configuration decides.
func Authorizing(
	name string,
	authorize func(ctx context.Context, access *authorizationv1.SubjectAccessReviewSpec) (
		authorizationv1.SubjectAccessReviewStatus, error,
	),
) Hook {
	return Hook{name: name, protocol: access[authorizationv1.SubjectAccessReview]{
		name: name, isNil: authorize == nil, kind: authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"),
		decide: func(ctx context.Context, s *Server, review *authorizationv1.SubjectAccessReview) (string, error) {
			return reviewAccess(ctx, s, name, review, authorize)
		},
	}}
}

// access is the protocol of reviews of the type R.
type access[R any] struct {
	name  string
	kind  schema.GroupVersionKind
	isNil bool // the function
	// decide replaces a review by its response, and returns the result for metrics.
	decide func(context.Context, *Server, *R) (result string, err error)
}

// prepare implements protocol.
func (a access[R]) prepare(*kube.Cluster) (protocol, []error) {
	var errs mistakes
	for _, problem := range validation.IsDNS1123Subdomain(a.name) {
		errs.addIf(true, "the name is not a domain name: %s", problem)
	}
	errs.addIf(a.isNil, "the function is nil")
	return a, errs
}

func (a access[R]) limits() (int64, time.Duration) { return maxAccessBytes, accessTimeout }

func (a access[R]) shape() reflect.Type { return reflect.TypeFor[R]() }

// review implements protocol.
func (a access[R]) review(ctx context.Context, s *Server, body []byte, _ *places) (any, string, error) {
	review := new(R)
	obj := any(review).(runtime.Object) //nolint:forcetypeassert // each R is an object
	if err := decodeReview(body, obj, a.kind); err != nil {
		return nil, "", err
	}
	result, err := a.decide(ctx, s, review)
	if err != nil {
		return nil, "", err
	}
	obj.GetObjectKind().SetGroupVersionKind(a.kind)
	return obj, result, nil
}

func reviewToken(
	ctx context.Context, s *Server, name string, review *authenticationv1.TokenReview,
	authenticate func(context.Context, *authenticationv1.TokenReviewSpec) (authenticationv1.TokenReviewStatus, error),
) (result string, err error) {
	if review.Spec.Token == "" {
		return "", badRequest("the review has no token")
	}
	requested := review.Spec.Audiences
	status, err := called(ctx, s, name, review.Spec.DeepCopy(), authenticate)
	if err == nil {
		err = checkAuthenticated(status, requested)
	}
	result = resultSuccess
	if !status.Authenticated {
		result = resultRejected
	}
	if err != nil {
		result = resultOf(ctx, err)
		s.log(ctx, slog.LevelError, name, "token not reviewed", "webhook", name, "error", err)
		status = authenticationv1.TokenReviewStatus{Error: usercode.Text(err)}
	}
	if !status.Authenticated {
		status.User, status.Audiences = authenticationv1.UserInfo{}, nil
	}
	*review = authenticationv1.TokenReview{Status: status} // the token must not be in the response
	return result, nil
}

// checkAuthenticated returns why a status must not authenticate.
func checkAuthenticated(status authenticationv1.TokenReviewStatus, requested []string) error {
	switch {
	case !status.Authenticated:
		return nil
	case status.Error != "":
		return fmt.Errorf("the token is authenticated with an error: %s", usercode.Shorten(status.Error))
	case status.User.Username == "":
		return errors.New("the token is authenticated without a user name")
	case len(requested) > 0 && len(status.Audiences) == 0:
		// Without audiences the API server would accept the token for its own.
		return fmt.Errorf("the token is authenticated without an audience: set those of %q for which it is valid",
			requested)
	}
	for _, audience := range status.Audiences {
		if len(requested) > 0 && !slices.Contains(requested, audience) {
			return fmt.Errorf("the token is authenticated for the audience %q: requested are %q", audience, requested)
		}
	}
	return nil
}

func reviewAccess(
	ctx context.Context, s *Server, name string, review *authorizationv1.SubjectAccessReview,
	authorize func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (
		authorizationv1.SubjectAccessReviewStatus, error,
	),
) (result string, err error) {
	if (review.Spec.ResourceAttributes == nil) == (review.Spec.NonResourceAttributes == nil) {
		return "", badRequest("the review needs either resourceAttributes or nonResourceAttributes")
	}
	user := review.Spec.User
	status, err := called(ctx, s, name, review.Spec.DeepCopy(), authorize)
	if err == nil && status.Allowed && status.Denied {
		err = errors.New("the request is allowed and denied")
	}
	if err != nil {
		s.log(ctx, slog.LevelError, name, "access not reviewed", "webhook", name, "user", short(user), "error", err)
		return "", err
	}
	result = resultSuccess
	if status.Denied {
		result = resultRejected
	}
	*review = authorizationv1.SubjectAccessReview{Status: status}
	return result, nil
}

// called returns the result of f, or an error if f fails, panics or returns after the time-out.
func called[In, Out any](
	ctx context.Context, s *Server, name string, in In, f func(context.Context, In) (Out, error),
) (Out, error) {
	var out, none Out
	var err error
	if panicked := s.guard.Call("webhook "+name, func() { out, err = f(ctx, in) }, nil); panicked != nil {
		return none, panicked
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return none, usercode.Error(err)
	}
	return out, nil
}
