package client

import (
	"context"
	"fmt"

	"github.com/evenkeel-go/evenkeel/kube"
)

// GetSubresource reads a subresource whose body has a kind of its own: the scale of a
// Deployment.
//
//	scale, err := client.GetSubresource[*autoscalingv1.Scale](ctx, c, deployment, "scale")
//
// Of parent, kind, namespace and name count. Options: none.
func GetSubresource[S kube.Object](ctx context.Context, c *Client, parent kube.Object, subresource string, options ...Option) (S, error) {
	var none S
	return subresourceCall(ctx, c, VerbGet, parent, subresource, none, options)
}

// CreateSubresource posts to a subresource: an eviction or a binding of a Pod, a token of a
// ServiceAccount. It returns the answer, which for some is a Status: an S with nothing in it.
//
//	_, err := client.CreateSubresource(ctx, c, pod, "eviction", &policyv1.Eviction{ObjectMeta: ...})
//
// Options: DryRun, FieldOwner, FieldValidation.
func CreateSubresource[S kube.Object](ctx context.Context, c *Client, parent kube.Object, subresource string, body S, options ...Option) (S, error) {
	return subresourceCall(ctx, c, VerbCreate, parent, subresource, body, options)
}

// UpdateSubresource replaces a subresource whose body has a kind of its own: a scale, the
// approval of a CertificateSigningRequest. Options: DryRun, FieldOwner, FieldValidation.
func UpdateSubresource[S kube.Object](ctx context.Context, c *Client, parent kube.Object, subresource string, body S, options ...Option) (S, error) {
	return subresourceCall(ctx, c, VerbUpdate, parent, subresource, body, options)
}

func subresourceCall[S kube.Object](
	ctx context.Context, c *Client, verb Verb, parent kube.Object, subresource string, body S, options []Option,
) (S, error) {
	var none S
	fail := func(err error) (S, error) { return none, fmt.Errorf("%s subresource %s: %w", verb, subresource, err) }
	var allowed []string
	if verb.Writes() {
		allowed = []string{"DryRun", "FieldOwner", "FieldValidation"}
	}
	s, err := newSettings(options, allowed...)
	if err != nil {
		return fail(err)
	}
	t, err := c.targetOf(ctx, parent)
	if err != nil {
		return fail(err)
	}
	s.subresource = subresource
	r := t.request(verb, s)
	if verb.Writes() {
		r.Object = body
	}
	answer, err := exchange(ctx, t, r, body)
	if err != nil {
		return none, fmt.Errorf("%s %s: %w", verb, t.withSubresource(s), asChanged(err))
	}
	return answer, nil
}
