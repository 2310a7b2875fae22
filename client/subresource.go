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

// SubresourceOf makes the request for a subresource of parent that has a kind of its own: a Scale, an Eviction, a
// Binding, a TokenRequest. The object of the call is its body; a body without a name gets the name of the parent. Only
// the kind, namespace and name of parent are used.
//
//	scale, err := client.Get[*autoscalingv1.Scale](ctx, c, kube.KeyOf(web), client.SubresourceOf(web, "scale"))
//	...
//	_, err = client.Create(ctx, c, &policyv1.Eviction{}, client.SubresourceOf(pod, "eviction"))
//	...
//	scale, err = client.Update(ctx, c, scale, client.SubresourceOf(web, "scale"))
//	...
//	scale, err = client.Patch[*autoscalingv1.Scale](ctx, c, nil, patch, client.SubresourceOf(web, "scale"))
//
// Create returns an empty object if the response is a Status. Update with a body that has a resourceVersion replaces
// that version only. An empty Patch is an error, because it makes no request, so there is no result; its object may be
// nil.
//
// Errors: ErrGone if the parent does not exist; kube.ErrNotServed if its kind has no such subresource; ErrChanged. If a
// PodDisruptionBudget forbids an eviction at the moment, the class of the error is retry.Throttled.
func SubresourceOf(parent kube.Object, name string) interface {
	ReadOption
	WriteOption
} {
	return callOption{"SubresourceOf", func(s *settings) error {
		switch {
		case usercode.IsNil(parent):
			return errors.New("the parent is nil")
		case s.parent != nil && kube.KeyOf(s.parent) != kube.KeyOf(parent):
			return fmt.Errorf("the parent is %s already, and not %s", kube.KeyOf(s.parent), kube.KeyOf(parent))
		}
		s.parent = parent
		return s.setSubresource(name)
	}}
}

func (s *settings) setSubresource(name string) error {
	if s.subresource != "" && s.subresource != name {
		return fmt.Errorf("%q: the call is for %q already", name, s.subresource)
	}
	s.subresource = name
	return checkSubresource(name)
}

// getSubresource is Get with option SubresourceOf.
func getSubresource[T kube.Object](ctx context.Context, c *Client, key kube.Key, s settings) (T, error) {
	var none T
	var err error
	switch {
	case reflect.TypeFor[T]().Kind() != reflect.Pointer:
		err = notAType[T]()
	case key != kube.KeyOf(s.parent):
		err = fmt.Errorf("the parent of the subresource is %s", kube.KeyOf(s.parent))
	case !s.kind.Empty():
		err = errors.New("options OfKind and SubresourceOf exclude each other: the parent has the kind")
	}
	if err != nil {
		return none, fmt.Errorf("get %s: %w", key, err)
	}
	t, err := c.targetOf(ctx, s.parent)
	if err != nil {
		return none, fmt.Errorf("get: %w", err)
	}
	t.settings, t.action, t.model = s, "get", any(none)
	response, err := exchange(ctx, t, t.request(VerbGet), none)
	return response, t.failed(err)
}

// bodyOf returns the object to send for obj: with the namespace of the target, and the name of a subresource's parent.
func bodyOf[T kube.Object](t target, obj T) (kube.Object, error) {
	if t.parent == nil {
		return inNamespace(obj, t.key.Namespace)
	}
	return t.subresourceBody(obj)
}

// subresourceBody returns the body of a subresource, with the name of the parent.
func (t target) subresourceBody(body kube.Object) (kube.Object, error) {
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
	if t.subresource == "" || t.parent != nil {
		return nil
	}
	kind, known := t.client.config.Cluster.SubresourceKind(t.resource, t.subresource)
	if known && kind.Kind != t.kind.Kind {
		return fmt.Errorf("subresource %s has the kind %s: use option SubresourceOf", t.subresource, kind.Kind)
	}
	return nil
}

func checkSubresource(name string) error {
	if name == "" || strings.Contains(name, "?") || apiobject.CheckSegments(name) != nil {
		return fmt.Errorf("%q is not a valid name of a subresource", name)
	}
	return nil
}
