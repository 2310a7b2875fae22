package client

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Create creates obj, and returns it as the API server has it; obj itself is not changed. An
// obj with a GenerateName and no name gets one.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: apierrors.IsAlreadyExists when there is one of that name; ErrNoNamespace; an obj that
// is metadata only. When no answer came (ReasonUnreachable, ReasonTransient) there may be an object all
// the same: a GenerateName would make another one next time.
func Create[T kube.Object](ctx context.Context, c *Client, obj T, options ...WriteOption) (T, error) {
	var none T
	s, err := newSettings(options)
	if err != nil {
		return none, fmt.Errorf("create: %w", err)
	}
	t, err := c.targetToCreate(ctx, obj)
	if err != nil {
		return none, fmt.Errorf("create: %w", err)
	}
	if err := refuseMetadata(obj); err != nil {
		return none, fmt.Errorf("create %s: %w", t, err)
	}
	r := t.request(VerbCreate, s)
	if r.Object, err = inNamespace(obj, t.key.Namespace); err != nil {
		return none, fmt.Errorf("create %s: %w", t, err)
	}
	created, err := exchange(ctx, t, r, obj)
	if err != nil {
		return none, fmt.Errorf("create %s: %w", t, err)
	}
	return created, nil
}

// targetToCreate is targetOf for an object that may be without a name of its own.
func (c *Client) targetToCreate(ctx context.Context, obj kube.Object) (target, error) {
	if usercode.IsNil(obj) || obj.GetName() != "" || obj.GetGenerateName() == "" {
		return c.targetOf(ctx, obj)
	}
	if err := c.check(); err != nil {
		return target{}, err
	}
	kind, err := c.config.Cluster.KindOf(obj)
	if err != nil {
		return target{}, err
	}
	t := target{client: c, kind: kind, key: kube.KeyOf(obj), model: obj}
	if err := t.resolve(ctx); err != nil {
		return t, err
	}
	// Without a name it looks like a collection, which may be of all namespaces.
	if t.resource.Namespaced && t.key.Namespace == "" {
		return t, fmt.Errorf("%s %s* has no namespace, and its kind lives in namespaces", t.kind.Kind, obj.GetGenerateName())
	}
	return t, nil
}

// inNamespace returns obj, or a copy of it that is in namespace.
func inNamespace[T kube.Object](obj T, namespace string) (T, error) {
	if obj.GetNamespace() == namespace {
		return obj, nil
	}
	placed, err := copyOf(obj)
	if err == nil {
		placed.SetNamespace(namespace)
	}
	return placed, err
}

// refuseMetadata refuses to write objects of which only the metadata is there: the rest would be
// written as empty.
func refuseMetadata(obj kube.Object) error {
	if _, metadata := obj.(*metav1.PartialObjectMetadata); metadata {
		return errors.New("it is metadata only, and would lose everything else: Patch changes metadata")
	}
	return nil
}

// Update replaces the object by obj, and returns what the API server has made of it; obj itself
// is not changed. An obj with a resourceVersion replaces that version only; one without
// replaces whatever there is, of kinds that allow it.
//
// An Update writes every field, also those that it was not meant to change and those that this
// program's types do not know, which are lost. Apply and Patch write less.
//
// Options: DryRun, FieldOwner, FieldValidation, Subresource.
//
// Errors: ErrChanged, of which apierrors.IsConflict is true too, when the resourceVersion is
// not the present one; ErrGone; an obj that is metadata only.
func Update[T kube.Object](ctx context.Context, c *Client, obj T, options ...UpdateOption) (T, error) {
	var none T
	s, err := newSettings(options)
	if err != nil {
		return none, fmt.Errorf("update: %w", err)
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		return none, fmt.Errorf("update: %w", err)
	}
	if err := errors.Join(refuseMetadata(obj), t.checkBody(s)); err != nil {
		return none, fmt.Errorf("update %s: %w", t.withSubresource(s), err)
	}
	r := t.request(VerbUpdate, s)
	if r.Object, err = inNamespace(obj, t.key.Namespace); err != nil {
		return none, fmt.Errorf("update %s: %w", t.withSubresource(s), err)
	}
	updated, err := exchange(ctx, t, r, obj)
	if err != nil {
		return none, fmt.Errorf("update %s: %w", t.withSubresource(s), asChanged(err))
	}
	return updated, nil
}

// Delete deletes the object that obj names, if it has the uid of obj, where that has one: an
// object that was deleted and created again meanwhile is left alone. It returns when the API
// server has accepted the deletion; finalizers and the grace period go on after that.
//
// Options: IfUnchanged, Propagation, GracePeriod, DryRun.
//
// Errors: ErrGone when there is no such object, which most callers ignore:
//
//	err := client.IgnoreNotFound(client.Delete(ctx, c, pod))
//
// ErrChanged when the uid is another one or, with IfUnchanged, the resourceVersion. For what must not be done by a stale cache,
// see DeleteLive.
func Delete[T kube.Object](ctx context.Context, c *Client, obj T, options ...DeleteOption) error {
	s, err := newSettings(options)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	s.uid = obj.GetUID()
	if s.unchanged {
		if s.version, err = versionOf(obj); err != nil {
			return fmt.Errorf("delete %s: %w", t, err)
		}
	}
	if err := t.delete(ctx, s); err != nil {
		return fmt.Errorf("delete %s: %w", t, err)
	}
	return nil
}

// delete deletes the object, with the preconditions of s.
func (t target) delete(ctx context.Context, s settings) error {
	r := t.request(VerbDelete, s)
	r.Delete = s.deleteOptions()
	return asChanged(t.client.send(ctx, r))
}

func (s settings) deleteOptions() *metav1.DeleteOptions {
	o := &metav1.DeleteOptions{PropagationPolicy: s.propagation, GracePeriodSeconds: s.grace}
	if s.uid != "" || s.version != "" {
		o.Preconditions = &metav1.Preconditions{}
		if s.uid != "" {
			o.Preconditions.UID = &s.uid
		}
		if s.version != "" {
			o.Preconditions.ResourceVersion = &s.version
		}
	}
	return o
}

// DeleteAllOf deletes all objects of type T that options select, in one request. It needs the
// verb deletecollection, and InNamespace for kinds that live in namespaces: the API has no
// such request for all of them. A selector that is empty is an error: it would select all, and was
// more likely made of something that has turned out to be empty.
//
// Options: OfKind, InNamespace, WithLabels, LabelSelector, FieldSelector, Propagation,
// GracePeriod, DryRun.
func DeleteAllOf[T kube.Object](ctx context.Context, c *Client, options ...DeleteAllOfOption) error {
	s, err := newSettings(options)
	if err != nil {
		return fmt.Errorf("delete all: %w", err)
	}
	if err := s.refuseEmptySelectors(); err != nil {
		return fmt.Errorf("delete all: %w", err)
	}
	t, err := targetFor[T](ctx, c, kube.Key{Namespace: s.namespace}, s.kind)
	if err != nil {
		return fmt.Errorf("delete all: %w", err)
	}
	if t.resource.Namespaced && t.key.Namespace == "" {
		return fmt.Errorf("delete all %s: option InNamespace is required: the kind lives in namespaces", t)
	}
	r := t.request(VerbDeleteCollection, s)
	r.Delete, r.List = s.deleteOptions(), s.listOptions()
	r.List.Limit = 0
	if err := t.client.send(ctx, r); err != nil {
		return fmt.Errorf("delete all %s: %w", t, err)
	}
	return nil
}

// refuseEmptySelectors refuses selectors that were given and are empty, which select all.
func (s settings) refuseEmptySelectors() error {
	for _, option := range s.selectors {
		empty := s.labels != nil && s.labels.Empty()
		if option == "FieldSelector" {
			empty = s.fields != nil && s.fields.Empty()
		}
		if empty {
			return fmt.Errorf("option %s selects all, because it is empty: leave it out where all are meant", option)
		}
	}
	return nil
}

// withSubresource names the target with the part of it that was meant.
func (t target) withSubresource(s settings) string {
	if s.subresource == "" {
		return t.String()
	}
	return t.String() + "/" + s.subresource
}
