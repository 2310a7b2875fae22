package webhook

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
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
	return Hook{name: name, protocol: authentication{name, authenticate}}
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
	return Hook{name: name, protocol: authorization{name, authorize}}
}

type authentication struct {
	name         string
	authenticate func(context.Context, *authenticationv1.TokenReviewSpec) (authenticationv1.TokenReviewStatus, error)
}

func (a authentication) prepare(*kube.Cluster) (protocol, []error) {
	return a, checkAccess(a.name, a.authenticate == nil)
}

func (a authentication) limits() (int64, time.Duration) { return maxAccessBytes, accessTimeout }

func (a authentication) shape() reflect.Type { return reflect.TypeFor[authenticationv1.TokenReview]() }

// checkAccess returns the mistakes of a hook.
func checkAccess(name string, isNil bool) []error {
	var errs []error
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		errs = append(errs, fmt.Errorf("the name is not a domain name: %s", problems[0]))
	}
	if isNil {
		errs = append(errs, errors.New("the function is nil"))
	}
	return errs
}

// review implements protocol.
func (a authentication) review(ctx context.Context, s *Server, body []byte, _ *places) (any, string, error) {
	kind := authenticationv1.SchemeGroupVersion.WithKind("TokenReview")
	review := &authenticationv1.TokenReview{}
	if err := decodeReview(body, review, kind); err != nil {
		return nil, "", err
	}
	if review.Spec.Token == "" {
		return nil, "", badRequest("the review has no token")
	}
	requested := slices.Clone(review.Spec.Audiences)
	status, err := called(ctx, s, a.name, &review.Spec, a.authenticate)
	if err == nil {
		err = checkAuthenticated(status, requested)
	}
	result := resultSuccess
	if !status.Authenticated {
		result = resultRejected
	}
	if err != nil {
		result = resultOf(ctx, err)
		if omitted, ok := s.mayLog(a.name); ok {
			s.logger.ErrorContext(ctx, "token not reviewed", "webhook", a.name, "error", err, "omitted", omitted)
		}
		status = authenticationv1.TokenReviewStatus{Error: usercode.Text(err)}
	}
	if !status.Authenticated {
		status.User, status.Audiences = authenticationv1.UserInfo{}, nil
	}
	// The token must not be in the response.
	answer := &authenticationv1.TokenReview{Status: status}
	answer.SetGroupVersionKind(kind)
	return answer, result, nil
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

type authorization struct {
	name      string
	authorize func(context.Context, *authorizationv1.SubjectAccessReviewSpec) (
		authorizationv1.SubjectAccessReviewStatus, error,
	)
}

func (a authorization) prepare(*kube.Cluster) (protocol, []error) {
	return a, checkAccess(a.name, a.authorize == nil)
}

func (a authorization) limits() (int64, time.Duration) { return maxAccessBytes, accessTimeout }

func (a authorization) shape() reflect.Type {
	return reflect.TypeFor[authorizationv1.SubjectAccessReview]()
}

// review implements protocol.
func (a authorization) review(ctx context.Context, s *Server, body []byte, _ *places) (any, string, error) {
	kind := authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview")
	review := &authorizationv1.SubjectAccessReview{}
	if err := decodeReview(body, review, kind); err != nil {
		return nil, "", err
	}
	if (review.Spec.ResourceAttributes == nil) == (review.Spec.NonResourceAttributes == nil) {
		return nil, "", badRequest("the review needs either resourceAttributes or nonResourceAttributes")
	}
	user := review.Spec.User // the function may change it
	status, err := called(ctx, s, a.name, &review.Spec, a.authorize)
	if err == nil && status.Allowed && status.Denied {
		err = errors.New("the request is allowed and denied")
	}
	if err != nil {
		if omitted, ok := s.mayLog(a.name); ok {
			s.logger.ErrorContext(ctx, "access not reviewed", "webhook", a.name, "user", short(user), "error", err,
				"omitted", omitted)
		}
		return nil, "", err
	}
	result := resultSuccess
	if status.Denied {
		result = resultRejected
	}
	answer := &authorizationv1.SubjectAccessReview{Status: status}
	answer.SetGroupVersionKind(kind)
	return answer, result, nil
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
