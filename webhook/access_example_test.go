package webhook_test

import (
	"context"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/evenkeel-go/evenkeel/webhook"
)

// region access
// accessHooks authenticate the tokens of users, and allow operators to read everything.
func accessHooks(users map[string]string) []webhook.Hook {
	authenticate := func(_ context.Context, token *authenticationv1.TokenReviewSpec) (status authenticationv1.TokenReviewStatus, err error) {
		name, ok := users[token.Token]
		return authenticationv1.TokenReviewStatus{Authenticated: ok, User: authenticationv1.UserInfo{Username: name}, Audiences: token.Audiences}, nil
	}
	authorize := func(_ context.Context, access *authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error) {
		reads := access.ResourceAttributes != nil && access.ResourceAttributes.Verb == "get"
		return authorizationv1.SubjectAccessReviewStatus{Allowed: reads && slices.Contains(access.Groups, "operators")}, nil
	}
	return []webhook.Hook{webhook.Authenticating("tokens.example.com", authenticate), webhook.Authorizing("access.example.com", authorize)}
}

// endregion

func ExampleAuthenticating() {
	_ = accessHooks(map[string]string{"token-1": "jane"})
}
