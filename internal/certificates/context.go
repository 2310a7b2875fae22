package certificates

import "context"

type policyKey struct{}

// WithPolicy returns a context with the policy of servers that run with it. Tests use it: rotations take months with
// the default policy.
func WithPolicy(ctx context.Context, policy Policy) context.Context {
	return context.WithValue(ctx, policyKey{}, policy)
}

// PolicyFrom returns the policy of ctx, or the default one.
func PolicyFrom(ctx context.Context) Policy {
	if policy, ok := ctx.Value(policyKey{}).(Policy); ok {
		return policy
	}
	return DefaultPolicy()
}
