package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// GetSubresource reads a subresource whose body has a kind of its own: the scale of a
// Deployment.
//
//	scale, err := client.GetSubresource[*autoscalingv1.Scale](ctx, c, deployment, "scale")
//
// Of parent, kind, namespace and name count.
//
// Errors: ErrGone when there is no such parent; kube.ErrNotServed when its kind has no such
// subresource.
func GetSubresource[S kube.Object](ctx context.Context, c *Client, parent kube.Object, subresource string) (S, error) {
	var none S
	return subresourceCall(ctx, c, VerbGet, parent, subresource, none, PatchBody{}, nil)
}

// CreateSubresource posts to a subresource: an eviction or a binding of a Pod, a token of a
// ServiceAccount. It returns the answer; where that is a mere Status, which says "done", the S
// has nothing in it. A body without a name is given the parent's.
//
//	_, err := client.CreateSubresource(ctx, c, pod, "eviction", &policyv1.Eviction{})
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of GetSubresource. An eviction that a PodDisruptionBudget forbids for now is
// ReasonThrottled.
func CreateSubresource[S kube.Object](ctx context.Context, c *Client, parent kube.Object, subresource string, body S, options ...WriteOption) (S, error) {
	return subresourceCall(ctx, c, VerbCreate, parent, subresource, body, PatchBody{}, options)
}

// UpdateSubresource replaces a subresource whose body has a kind of its own: a scale. A body
// without a name is given the parent's; one with a resourceVersion replaces that version only.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of GetSubresource; ErrChanged.
func UpdateSubresource[S kube.Object](ctx context.Context, c *Client, parent kube.Object, subresource string, body S, options ...WriteOption) (S, error) {
	return subresourceCall(ctx, c, VerbUpdate, parent, subresource, body, PatchBody{}, options)
}

// PatchSubresource changes a subresource whose body has a kind of its own, and returns what it
// is then. An empty patch makes no request and is an error, because there is nothing to return.
//
//	scale, err := client.PatchSubresource[*autoscalingv1.Scale](ctx, c, deployment, "scale",
//		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)))
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of GetSubresource; ErrChanged, of a patch that is Locked.
func PatchSubresource[S kube.Object](
	ctx context.Context, c *Client, parent kube.Object, subresource string, patch PatchBody, options ...WriteOption,
) (S, error) {
	var none S
	if err := patch.check(); err != nil {
		return none, fmt.Errorf("patch subresource %s: %w", subresource, err)
	}
	if patch.Empty() {
		return none, fmt.Errorf("patch subresource %s: the patch is empty", subresource)
	}
	return subresourceCall(ctx, c, VerbPatch, parent, subresource, none, patch, options)
}

func subresourceCall[S kube.Object](
	ctx context.Context, c *Client, verb Verb, parent kube.Object, subresource string, body S, patch PatchBody, options []WriteOption,
) (S, error) {
	var none S
	fail := func(err error) (S, error) { return none, fmt.Errorf("%s subresource %s: %w", verb, subresource, err) }
	s, err := newSettings(options)
	if err := errors.Join(err, checkSubresource(subresource)); err != nil {
		return fail(err)
	}
	if usercode.IsNil(body) && reflect.TypeFor[S]().Kind() != reflect.Pointer {
		return fail(notAType[S]())
	}
	t, err := c.targetOf(ctx, parent)
	if err != nil {
		return fail(err)
	}
	s.subresource = subresource
	r := t.request(verb, s)
	r.model = any(body)
	switch verb {
	case VerbCreate, VerbUpdate:
		if r.Object, err = t.bodyOf(body); err != nil {
			return none, fmt.Errorf("%s %s: %w", verb, t.withSubresource(s), err)
		}
	case VerbPatch:
		r.PatchType, r.Body = patch.patchType, patch.body
	}
	answer, err := exchange(ctx, t, r, body)
	if err != nil {
		return none, fmt.Errorf("%s %s: %w", verb, t.withSubresource(s), asChanged(err))
	}
	return answer, nil
}

// bodyOf returns the body of a subresource, which names the object that it is of.
func (t target) bodyOf(body kube.Object) (kube.Object, error) {
	if usercode.IsNil(body) {
		return nil, errors.New("the body is nil")
	}
	if _, err := t.client.config.Cluster.KindOf(body); err != nil {
		return nil, err
	}
	if body.GetName() != "" && body.GetName() != t.key.Name || body.GetNamespace() != "" && body.GetNamespace() != t.key.Namespace {
		return nil, fmt.Errorf("the body names another object: %s", kube.KeyOf(body))
	}
	if kube.KeyOf(body) == t.key {
		return body, nil
	}
	named, err := copyOf(body)
	if err != nil {
		return nil, err
	}
	named.SetNamespace(t.key.Namespace)
	named.SetName(t.key.Name)
	return named, nil
}

// checkBody refuses a subresource whose body is known to be of another kind than the object: it
// would be read into the wrong type, or replaced by the wrong thing.
func (t target) checkBody(s settings) error {
	if s.subresource == "" {
		return nil
	}
	kind, known := t.client.config.Cluster.SubresourceKind(t.resource, s.subresource)
	if known && kind.Kind != t.kind.Kind {
		return fmt.Errorf("subresource %s has the body of a %s: see GetSubresource and those beside it", s.subresource, kind.Kind)
	}
	return nil
}

func checkSubresource(name string) error {
	if name == "" || strings.ContainsAny(name, "/%?") {
		return fmt.Errorf("%q is no name of a subresource", name)
	}
	return nil
}
