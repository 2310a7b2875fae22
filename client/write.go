package client

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Create creates obj, and returns it as the API server has it. It does not change obj. An obj with a
// GenerateName and without a name gets a generated name.
//
// Options: DryRun, FieldOwner, FieldValidation, SubresourceOf.
//
// Errors: apierrors.IsAlreadyExists is true if an object with this name exists; ErrNoNamespace; an obj that is
// metadata only. Without a response (an error of class retry.Transient) the object may exist: with a
// GenerateName, a retry would create a second one.
func Create[T kube.Object](ctx context.Context, c *Client, obj T, options ...WriteOption) (T, error) {
	var none T
	t, err := begin(ctx, c, "create", obj, options, optionsOfWrite+", SubresourceOf")
	if err != nil {
		return none, err
	}
	// A target without a name looks like a collection, which may span all namespaces.
	if t.key.Name == "" && t.resource.Namespaced && t.key.Namespace == "" {
		return none, fmt.Errorf("create: %s %s* has no namespace, and its kind lives in namespaces", t.kind.Kind,
			obj.GetGenerateName())
	}
	if err := refuseMetadata(obj); err != nil {
		return none, t.failed(err)
	}
	r := t.request(VerbCreate)
	if r.Object, err = bodyOf(t, obj); err != nil {
		return none, t.failed(err)
	}
	created, err := exchange(ctx, t, r, obj)
	if t.parent != nil {
		err = asChanged(err)
	}
	return created, t.failed(err)
}

// inNamespace returns obj, or a copy of it that is in namespace.
func inNamespace[T kube.Object](obj T, namespace string) (T, error) {
	if obj.GetNamespace() == namespace {
		return obj, nil
	}
	placed, err := difference.Copy(obj)
	if err == nil {
		placed.SetNamespace(namespace)
	}
	return placed, err
}

// refuseMetadata rejects metadata-only objects, because the write would remove the other fields.
func refuseMetadata(obj kube.Object) error {
	if _, metadata := obj.(*metav1.PartialObjectMetadata); metadata {
		return errors.New("it is metadata only, and would lose everything else: Patch changes metadata")
	}
	return nil
}

// Update replaces the object by obj, and returns it as the API server has it. It does not change obj. If obj
// has a resourceVersion, Update only replaces that version; without one it replaces any version, for kinds that
// allow this.
//
// Update writes every field, including fields that the caller did not mean to change; fields that the Go type
// lacks are lost. Apply and Patch write less.
//
// Options: DryRun, FieldOwner, FieldValidation, Subresource, SubresourceOf.
//
// Errors: ErrChanged, for which apierrors.IsConflict is true, if the resourceVersion is not the current one;
// ErrGone; an obj that is metadata only.
func Update[T kube.Object](ctx context.Context, c *Client, obj T, options ...WriteOption) (T, error) {
	var none T
	t, err := begin(ctx, c, "update", obj, options, optionsOfUpdate+", SubresourceOf")
	if err != nil {
		return none, err
	}
	if err := errors.Join(refuseMetadata(obj), t.checkBody()); err != nil {
		return none, t.failed(err)
	}
	r := t.request(VerbUpdate)
	if r.Object, err = bodyOf(t, obj); err != nil {
		return none, t.failed(err)
	}
	updated, err := exchange(ctx, t, r, obj)
	return updated, t.failed(asChanged(err))
}

// Delete deletes the object that obj identifies, if it has the uid of obj (if obj has one): an object that was
// deleted and created again is kept. Delete returns when the API server has accepted the deletion; finalizers
// and the grace period follow.
//
// Options: IfUnchanged, Propagation, GracePeriod, DryRun.
//
// Errors: ErrGone if the object does not exist, which most callers ignore:
//
//	err := client.IgnoreNotFound(client.Delete(ctx, c, pod))
//
// ErrChanged if the uid differs or, with IfUnchanged, the resourceVersion. To protect a deletion from a stale
// cache, use DeleteLive.
func Delete[T kube.Object](ctx context.Context, c *Client, obj T, options ...DeleteOption) error {
	t, err := begin(ctx, c, "delete", obj, options, optionsOfDelete)
	if err != nil {
		return err
	}
	t.uid = obj.GetUID()
	if t.unchanged {
		if t.version, err = versionOf(obj); err != nil {
			return t.failed(err)
		}
	}
	return t.failed(t.delete(ctx))
}

// delete deletes the object, with the preconditions of the settings.
func (t target) delete(ctx context.Context) error {
	r := t.request(VerbDelete)
	r.Delete = t.deleteOptions()
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

// DeleteAllOf deletes all selected objects of type T, in one request for each namespace of the selection. It needs the
// verb deletecollection, and Namespaces for namespaced kinds: the API has no such request for all namespaces. A
// selection without a LabelSelector and a FieldSelector is an error, because it would select all objects, and was
// probably computed from an empty value; FieldSelector "metadata.name!=" selects all objects. DeleteMatching asks a
// function about each object, also in all namespaces.
//
// Options: Propagation, GracePeriod, DryRun.
func DeleteAllOf[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, options ...DeleteOption,
) error {
	targets, err := beginSelection[T](ctx, c, "delete all", selection, options, "DryRun, GracePeriod, Propagation")
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err := t.checkDestructive(); err != nil {
			return t.failed(err)
		}
		if t.resource.Namespaced && t.key.Namespace == "" {
			return t.failed(errors.New("the API has no such request for all namespaces: DeleteMatching lists them"))
		}
	}
	for _, t := range targets {
		r := t.request(VerbDeleteCollection)
		r.Delete, r.List = t.deleteOptions(), t.listOptions()
		r.List.Limit = 0
		if err := t.failed(t.client.send(ctx, r)); err != nil {
			return err
		}
	}
	return nil
}
