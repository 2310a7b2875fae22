// Package compat has functions for programs that come from controller-runtime: CreateOrUpdate and CreateOrPatch, for
// kinds without server-side apply too. New programs use client.Apply: it declares the desired fields, and leaves all
// others alone.
package compat

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// WriteResult is the result of CreateOrUpdate or CreateOrPatch.
type WriteResult[T any] struct {
	// Object is the object as the API server has it; if it is Unchanged, the object that was read.
	Object T
	// Outcome is Created, Updated or Unchanged. It is empty if an error leaves it unknown.
	Outcome client.ObjectOutcome
	// Changed are the changed fields of an Updated object, including the status.
	Changed []client.FieldChange
	// StatusUpdated is true if the status was written by a separate request. If nothing else was written, all
	// Changed are in the status.
	StatusUpdated bool
}

// CreateOrUpdate calls mutate to make the desired object, and writes it if mutate has changed anything.
//
//  1. The object is read by the name of obj, from an informer or the API server. mutate gets a copy of it or, if it
//     does not exist, a copy of obj.
//  2. If mutate has changed nothing, no request is made. Empty and missing fields of Go types are equal.
//  3. Otherwise the object is created, or updated if it has not changed since it was read.
//  4. If it has changed, was created or was deleted, it is read from the API server, and mutate is called again, up
//     to 3 times in total. So mutate must be safe to repeat. The same happens before an update of an object of which
//     the client has an informer with another Go type, which may lack fields.
//
// CreateOrUpdate does not change obj; the result is WriteResult.Object. T is a pointer to a struct. mutate must not
// change the namespace, the name and the uid. It should set single fields: a struct or list that it replaces
// (Spec.Template.Spec = corev1.PodSpec{...}) loses the defaults of the API server, so it differs, and is sent, in every
// run. The outcome is then Unchanged, because the API server sets the defaults again; a controller's Explain shows an
// update with "no change". The same happens with values that the API server normalizes ("1000m" to "1", in
// unstructured objects). client.Apply has neither problem.
//
// If the status is a subresource, CreateOrUpdate neither compares nor writes it: CreateOrPatch does both.
//
// Options: DryRun, FieldOwner, FieldValidation of package client.
//
// Errors: the error of mutate; client.ErrChanged after three conflicts. Metadata-only objects are rejected, because an
// update would remove the rest of the object.
func CreateOrUpdate[T kube.Object](
	ctx context.Context, c *client.Client, obj T, mutate func(obj T) error, options ...client.WriteOption,
) (WriteResult[T], error) {
	const action = "create or update"
	if _, metadata := any(obj).(*metav1.PartialObjectMetadata); metadata {
		return WriteResult[T]{}, fmt.Errorf("%s: the object has metadata only, and an update would remove the rest: "+
			"CreateOrPatch and client.Apply change metadata", action)
	}
	w := write[T]{client: c, obj: obj, mutate: mutate, options: options}
	return w.do(ctx, action, w.update)
}

// CreateOrPatch is CreateOrUpdate with a merge patch of the changes of mutate: it keeps fields that T lacks. If
// the status is a subresource, a separate request patches it; a new object gets the status that mutate or obj
// sets.
//
// The patch requires that the object has not changed since it was read, because a merge patch replaces lists
// completely.
//
// Options: DryRun, FieldOwner, FieldValidation of package client.
//
// Errors: those of CreateOrUpdate. If writing the status fails, the object stays written, as WriteResult reports.
func CreateOrPatch[T kube.Object](
	ctx context.Context, c *client.Client, obj T, mutate func(obj T) error, options ...client.WriteOption,
) (WriteResult[T], error) {
	w := write[T]{client: c, obj: obj, mutate: mutate, options: options}
	return w.do(ctx, "create or patch", w.patchBoth)
}
