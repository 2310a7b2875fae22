package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ObjectOutcome is the result of an apply, or of another write that makes an object match a desired state.
type ObjectOutcome string

// The outcomes.
const (
	// Created: the object did not exist.
	Created ObjectOutcome = "created"
	// Updated: the object has changed.
	Updated ObjectOutcome = "updated"
	// Unchanged: the object matched already, and has the same resourceVersion as before.
	Unchanged ObjectOutcome = "unchanged"
)

// ApplyResult is the result of an apply. An object that matches the configuration is not written.
//
// If an informer of the client that stores whole objects shows that the apply would not change the object, the outcome
// is Unchanged, without a request. Either the informer stores the fields that the field owner has applied
// (informer.Config.KeepAppliedBy): then they must be exactly those of the configuration, and have its values, or the
// object must carry the hash of the configuration (option ConfigurationHash; the values of custom resources are
// compared even so, because their schema may have changed). This works after a restart. Or this client, or one that
// With has derived, has applied the same configuration with the same field owner, without any other write to the object
// since, and the fields have the values of that response, which the API server may have normalized. The client stores
// this for up to 65,536 objects.
//
// Otherwise Apply takes the state before the write from an informer, or reads it (one GET; not with IfAbsent for
// kinds of Kubernetes), and sends one PATCH. If the resourceVersion is the same as before, the object has not changed.
//
// An informer is slightly stale: Apply detects a change that it does not show yet, such as a conflict, when it shows
// it. If another client has written since the last known state, Changed may contain its changes, and the outcome is
// Updated if an applied value, or the entry in managedFields, differs from the last known one. Fields outside of obj
// that another program applies with the same field owner are detected at the next PATCH. An apply of fields that the Go
// type of the informer lacks makes a request each time.
type ApplyResult[T any] struct {
	// Object is the object after the apply, as the API server returned it. If it was Unchanged without a
	// request, it is the informer's object; after a *ConflictError, the object before the apply, if that is known.
	Object T
	// Outcome is the result. It is empty after a conflict, and if an error leaves it unknown.
	Outcome ObjectOutcome
	// Changed are the changed fields of an Updated object. It is empty if only the ownership of fields has
	// changed.
	Changed []FieldChange
	// FormerManagers are the field managers of this program that have written the object by Update: the field
	// owner itself, and the name of the program. An apply keeps the fields that they have written, even if the
	// configuration does not contain them. LeftFields returns these fields; after TakeOver, the next Apply
	// removes them. Empty if no request was made.
	FormerManagers []string
}

// Apply sets the fields of obj by server-side apply (KEP-555), and removes the fields that the same field
// owner has applied before and that obj does not contain. It keeps the fields of other managers. obj is the
// configuration (see ApplyConfiguration), typed, unstructured or metadata only: it must contain only fields that the
// caller wants to set. Each field owner applies one configuration to an object, always completely. See ApplyResult for
// the requests.
//
//	applied, err := client.Apply(ctx, c, &corev1.Service{
//		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
//		Spec: corev1.ServiceSpec{
//			Selector: map[string]string{"app": "web"},
//			Ports:    []corev1.ServicePort{{Port: 80}},
//		},
//	}, client.Force())
//
// Options: ConfigurationHash; DryRun, which makes Changed certain; FieldOwner; FieldValidation; Force; Subresource;
// IfUnchanged, for which a written object must still have the resourceVersion of obj; IfAbsent.
//
// Errors: *ConflictError, if other field managers own applied fields with other values: the object has not changed;
// ErrGone or ErrReplaced, if obj has the uid of a deleted object; ErrChanged with IfUnchanged; ErrExists with IfAbsent;
// one of class retry.Invalid if the configuration does not match the schema of its kind, although the API server
// reports an internal error. Without a response of the API server, the configuration may have been applied: apply it
// again.
func Apply[T kube.Object](ctx context.Context, c *Client, obj T, options ...WriteOption) (ApplyResult[T], error) {
	a, err := c.application(ctx, obj, options)
	if err != nil {
		return ApplyResult[T]{}, err
	}
	applied, err := apply(ctx, a, obj)
	return applied, a.failed(err)
}

// ApplyConfiguration is Apply for a configuration of the types in k8s.io/client-go/applyconfigurations. All
// their fields are pointers, so exactly the set fields are applied.
//
//	web := appsv1apply.Deployment("web", "shop").WithSpec(appsv1apply.DeploymentSpec().WithReplicas(3))
//	applied, err := client.ApplyConfiguration(ctx, c, web, client.Force())
//
// The configuration of a typed object of Apply omits unset fields: nil lists and maps, zero times, and empty structs
// with omitempty that are not pointers, such as a container's Resources. It contains empty values behind pointers, such
// as EmptyDir: &corev1.EmptyDirVolumeSource{}, and zero numbers, false, "" and empty structs of fields without
// omitempty, such as a Deployment's Template or a NetworkPolicy's PodSelector. So Paused: false of a Deployment, which
// has omitempty, is not applied, and does not undo a pause: apply such values, and single fields of an object that
// another client created, with ApplyConfiguration. The configuration of an unstructured object contains all of its
// fields.
//
// Metadata that the API server sets is never applied. The status is applied only with Subresource("status"), and then
// nothing else. A Secret's stringData is applied as data. With a uid, no other object of the same name is changed or
// created.
func ApplyConfiguration(
	ctx context.Context, c *Client, configuration runtime.ApplyConfiguration, options ...WriteOption,
) (ApplyResult[*unstructured.Unstructured], error) {
	var none ApplyResult[*unstructured.Unstructured]
	if usercode.IsNil(configuration) {
		return none, errors.New("apply: the configuration is nil")
	}
	content, err := difference.Content(configuration)
	if err != nil {
		return none, fmt.Errorf("apply a %T: %w", configuration, err)
	}
	return Apply(ctx, c, &unstructured.Unstructured{Object: content}, options...)
}

// sendApply sends the request with the configuration as its body.
func sendApply[T kube.Object](ctx context.Context, a application, like T) (T, error) {
	var none T
	if err := a.desired.compute(); err != nil {
		return none, err
	}
	var err error
	if a.request.Body, err = json.Marshal(a.desired.configuration); err != nil {
		return none, fmt.Errorf("encode: %w", err)
	}
	return exchange(ctx, a.target, a.request, like)
}

// apply implements Apply. like determines the type of the result.
func apply[T kube.Object](ctx context.Context, a application, like T) (ApplyResult[T], error) {
	if a.absent {
		return applyAbsent(ctx, a, like)
	}
	seen, err := stateBefore(ctx, a, like)
	if err != nil {
		return ApplyResult[T]{}, err
	}
	if seen.applied {
		return ApplyResult[T]{Object: seen.object, Outcome: Unchanged}, nil
	}
	last := a.last()
	response, err := sendApply(ctx, a, like)
	if err != nil {
		return refused(a, seen, err)
	}
	if a.request.DryRun && seen.cached && response.GetResourceVersion() != seen.object.GetResourceVersion() {
		// The informer is stale: a dry run has not changed the object.
		if seen, err = readState(ctx, a.target, like); err != nil {
			return ApplyResult[T]{}, err
		}
	}
	applied := ApplyResult[T]{
		Object: response, Outcome: Updated,
		FormerManagers: formerManagersOf(response, a.request.FieldOwner),
	}
	var before kube.Object
	if seen.exists && seen.object.GetUID() == response.GetUID() {
		before = seen.object
		if a.request.DryRun || before.GetResourceVersion() != response.GetResourceVersion() {
			applied.Changed = diff(a.contents, a.client.Cluster(), before, response, a.subresource)
		}
	}
	after, err := a.stateOf(response)
	if err != nil {
		return applied, err
	}
	if seen.cached && before != nil && before.GetResourceVersion() == after.version {
		after.shownAs = digestOfShown(before)
	}
	noChanges := len(applied.Changed) == 0
	applied.Changed = a.withoutHash(applied.Changed)
	unchanged, err := a.isUnchanged(before, seen.entry, after, last, noChanges)
	switch {
	case err != nil:
		return applied, err
	case a.request.Status == http.StatusCreated, a.request.Status == 0 && !seen.exists:
		applied.Outcome, applied.Changed = Created, nil
	case unchanged:
		applied.Outcome, applied.Changed = Unchanged, nil
	}
	a.remember(after, applied.Outcome)
	return applied, nil
}

// refused returns the error of Apply for the error of its request. It drops the stored state, because an apply
// without a response may have been done.
func refused[T kube.Object](a application, seen state[T], err error) (ApplyResult[T], error) {
	err = asMistyped(err)
	applied, conflicts := ApplyResult[T]{}, conflictsOf(err)
	switch {
	case a.request.DryRun:
	case len(conflicts) > 0:
		a.client.applied.forget(a.id)
	default:
		a.client.applied.forgetWritten(a.id.object)
	}
	if len(conflicts) > 0 {
		if seen.exists {
			applied.Object = seen.object
		}
		return applied, &ConflictError{FieldOwner: a.request.FieldOwner, Conflicts: conflicts, Err: err}
	}
	if a.uid != "" && !seen.exists && apierrors.IsConflict(err) {
		return applied, fmt.Errorf("%w: the applied object has uid %s: %s", a.gone(), a.uid, err.Error())
	}
	return applied, a.asReplaced(err, a.uid)
}
