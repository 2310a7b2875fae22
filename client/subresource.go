package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// GetSubresource reads a subresource with its own kind, such as the scale of a Deployment.
//
//	scale, err := client.GetSubresource[*autoscalingv1.Scale](ctx, c, deployment, "scale")
//
// Only the kind, namespace and name of parent are used.
//
// Errors: ErrGone if the parent does not exist; kube.ErrNotServed if its kind has no such subresource.
func GetSubresource[S kube.Object](ctx context.Context, c *Client, parent kube.Object, subresource string) (S, error) {
	var none S
	return subresourceCall(ctx, c, VerbGet, parent, subresource, none, PatchBody{}, nil)
}

// CreateSubresource creates a subresource: an eviction or a binding of a Pod, a token of a ServiceAccount. It
// returns the response, or an empty S if the response is a Status. A body without a name gets the name of the
// parent.
//
//	_, err := client.CreateSubresource(ctx, c, pod, "eviction", &policyv1.Eviction{})
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of GetSubresource. If a PodDisruptionBudget forbids an eviction at the moment, the class of the error
// is retry.Throttled.
func CreateSubresource[S kube.Object](
	ctx context.Context, c *Client, parent kube.Object, subresource string, body S, options ...WriteOption,
) (S, error) {
	return subresourceCall(ctx, c, VerbCreate, parent, subresource, body, PatchBody{}, options)
}

// UpdateSubresource replaces a subresource with its own kind, such as a scale. A body without a name gets the name of
// the parent; a body with a resourceVersion replaces that version only.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of GetSubresource; ErrChanged.
func UpdateSubresource[S kube.Object](
	ctx context.Context, c *Client, parent kube.Object, subresource string, body S, options ...WriteOption,
) (S, error) {
	return subresourceCall(ctx, c, VerbUpdate, parent, subresource, body, PatchBody{}, options)
}

// PatchSubresource changes a subresource with its own kind, and returns the result. An empty patch is an error, because
// it makes no request, so there is no result.
//
//	scale, err := client.PatchSubresource[*autoscalingv1.Scale](ctx, c, deployment, "scale",
//		client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`)))
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: those of GetSubresource; ErrChanged, for a Locked patch.
func PatchSubresource[S kube.Object](
	ctx context.Context, c *Client, parent kube.Object, subresource string, patch PatchBody, options ...WriteOption,
) (S, error) {
	var none S
	return subresourceCall(ctx, c, VerbPatch, parent, subresource, none, patch, options)
}

func subresourceCall[S kube.Object](
	ctx context.Context, c *Client, verb Verb, parent kube.Object, subresource string, body S, patch PatchBody,
	options []WriteOption,
) (S, error) {
	var none S
	action := fmt.Sprintf("%s subresource %s", verb, subresource)
	err := checkSubresource(subresource)
	switch {
	case err != nil:
	case verb == VerbPatch && patch.check() != nil:
		err = patch.check()
	case verb == VerbPatch && patch.Empty():
		err = errors.New("the patch is empty")
	case usercode.IsNil(body) && reflect.TypeFor[S]().Kind() != reflect.Pointer:
		err = notAType[S]()
	}
	if err != nil {
		return none, fmt.Errorf("%s: %w", action, err)
	}
	t, err := begin(ctx, c, action, parent, options, optionsOfWrite)
	if err != nil {
		return none, err
	}
	t.action, t.subresource = string(verb), subresource
	r := t.request(verb)
	r.model = any(body)
	switch verb {
	case VerbCreate, VerbUpdate:
		if r.Object, err = t.bodyOf(body); err != nil {
			return none, t.failed(err)
		}
	case VerbPatch:
		r.PatchType, r.Body = patch.patchType, patch.body
	}
	response, err := exchange(ctx, t, r, body)
	return response, t.failed(asChanged(err))
}

// bodyOf returns the body of a subresource, with the name of the parent.
func (t target) bodyOf(body kube.Object) (kube.Object, error) {
	if usercode.IsNil(body) {
		return nil, errors.New("the body is nil")
	}
	if _, err := t.client.config.Cluster.KindOf(body); err != nil {
		return nil, err
	}
	if body.GetName() != "" && body.GetName() != t.key.Name || body.GetNamespace() != "" &&
		body.GetNamespace() != t.key.Namespace {
		return nil, fmt.Errorf("the body names another object: %s", kube.KeyOf(body))
	}
	if kube.KeyOf(body) == t.key {
		return body, nil
	}
	named, err := difference.Copy(body)
	if err != nil {
		return nil, err
	}
	named.SetNamespace(t.key.Namespace)
	named.SetName(t.key.Name)
	return named, nil
}

// checkBody rejects a subresource of another kind than the object: its response would be decoded into the wrong
// type.
func (t target) checkBody() error {
	if t.subresource == "" {
		return nil
	}
	kind, known := t.client.config.Cluster.SubresourceKind(t.resource, t.subresource)
	if known && kind.Kind != t.kind.Kind {
		return fmt.Errorf("subresource %s has the kind %s: use GetSubresource, UpdateSubresource or PatchSubresource",
			t.subresource, kind.Kind)
	}
	return nil
}

func checkSubresource(name string) error {
	if name == "" || strings.Contains(name, "?") || apiobject.CheckSegments(name) != nil {
		return fmt.Errorf("%q is not a valid name of a subresource", name)
	}
	return nil
}
