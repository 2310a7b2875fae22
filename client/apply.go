package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"unique"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ObjectOutcome is what came of making an object be as it should.
type ObjectOutcome string

// The outcomes.
const (
	// Created: there was no such object.
	Created ObjectOutcome = "created"
	// Updated: the object has changed.
	Updated ObjectOutcome = "updated"
	// Unchanged: the object was as it should be; its resourceVersion is what it was.
	Unchanged ObjectOutcome = "unchanged"
	// Conflict: other field managers have fields that were applied, with other values. Nothing
	// has changed.
	Conflict ObjectOutcome = "conflict"
)

// ApplyResult is what came of an apply.
type ApplyResult[T any] struct {
	// Object is the object as the API server has it after the apply; of one that was Unchanged
	// without a request, as the informer shows it; of a Conflict, as it was before, where that
	// is known.
	Object T
	// Outcome is what came of it. Empty when an error says that nothing, or nothing certain, did.
	Outcome ObjectOutcome
	// Changed are the fields of the object that have changed, when it was Updated. None: only
	// who owns fields has changed.
	Changed []FieldChange
	// Conflicts are the fields in conflict.
	Conflicts []FieldConflict
	// FormerManagers are field managers of this program that have written the object by Update: the
	// field owner itself, and the name of the program. An apply leaves what they have written,
	// although the configuration does not have it. LeftFields returns the fields, TakeOver
	// lets the next Apply remove them. Empty when no request was made.
	FormerManagers []string
}

// Apply makes the fields of obj be so, by server-side apply (KEP-555), and those be gone that
// the same field owner has applied before and obj has no longer. Fields that others have set
// stay. obj is the configuration: the fields that the caller has an opinion about, and no
// others; it is not changed. It may be typed, unstructured or metadata only. Each field owner
// applies one configuration to an object, always the whole of it.
//
//	applied, err := client.Apply(ctx, c, &corev1.Service{
//		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
//		Spec: corev1.ServiceSpec{
//			Selector: map[string]string{"app": "web"},
//			Ports:    []corev1.ServicePort{{Port: 80}},
//		},
//	}, client.Force())
//
// # Configuration
//
// Of a typed obj, what nobody has set is left out: lists and maps that are nil, times that are
// zero, and structs that are empty, no pointers, and may be left out (omitempty), as a
// container's Resources. What is behind a pointer is applied when it is empty, too:
// EmptyDir: &corev1.EmptyDirVolumeSource{}. So are zero numbers, false, "" and empty structs of
// fields without omitempty, as a Deployment's Template, a NetworkPolicy's PodSelector. Where that
// matters, for those who apply a few fields of an object that others have made, the types of
// k8s.io/client-go/applyconfigurations leave no doubt (ApplyConfiguration). Of an unstructured
// obj, all that it has is applied.
//
// Never applied are the metadata that the API server sets, and the status but by
// Subresource("status"), which applies nothing else. A Secret's stringData is applied as data.
// An obj with a uid is for that very object: no other one of its name is changed or created.
//
// # Flow
//
//  1. When an informer of the client (one that keeps whole objects) shows that the object is as the
//     apply would make it, it is Unchanged, without a request. There are two ways to know:
//
//     The informer keeps what the field owner has applied (informer.Config.KeepAppliedBy): these are
//     the configuration's fields, and no others; and they have its values, or the object carries the
//     configuration's hash (option ConfigurationHash), whatever the API server or a webhook has made
//     of the values. (Those of a custom resource are compared: its schema may have changed.) That holds after a restart, and for any number of objects.
//
//     Or this client has applied the same configuration to it, by the same field owner, has done
//     nothing else to it since (nor has one that With made of it), and the configuration's fields
//     show what they did in the answer to that. What the API server makes of a value (defaults,
//     "1000m" as "1") does not matter. Of up to 65,536 objects this is remembered.
//
//  2. Otherwise the state before is what an informer shows, or is read from the API server: one
//     GET.
//
//  3. One PATCH. That nothing has changed is told by the resourceVersion, which is then as before.
//
// # Guarantees
//
// Nothing is written when the object is as it should be. At rest, with an informer, there is no
// request at all: from the first Apply of a program on where the informer keeps what was applied,
// otherwise from the second.
//
// An informer is a little old. What it does not show yet, a fight over a field for one, is
// noticed when it does, which is when a controller handles the object again. When others have
// written since what is known, two questions have no certain answer: Changed may name what
// others have changed, and an object is Updated when the value of an applied field, or the entry
// of the owner in managedFields (its time is in seconds), is not as known before. Not noticed is
// what another program applies under the same field owner to fields that obj does not have,
// until the next PATCH. Of what the Go type of an informer does not know it cannot tell: who
// applies such fields makes a request each time.
//
// # Options
//
// ConfigurationHash, DryRun (neither the object nor what is remembered is changed; Changed is certain),
// FieldOwner, FieldValidation, Force, Subresource, IfUnchanged, which demands that the object has
// still the resourceVersion of obj (otherwise that is ignored), and IfAbsent, which demands that
// there is no such object.
//
// With IfAbsent nothing is read before the PATCH, unless the kind's group is not one of
// Kubernetes: see IfAbsent.
//
// # Errors
//
// No field owner: set Config.FieldOwner. A *ConflictError, with Outcome Conflict. ErrGone or
// ErrReplaced when obj has the uid of an object that is there no longer. ErrChanged with
// IfUnchanged. ErrExists with IfAbsent. A configuration that
// does not match the schema of its kind (a number where a string belongs, a field that the schema lacks)
// is of class retry.Invalid, although the API server calls it an internal error. What was applied may be there after other errors than answers of the API server (a
// timeout, a connection that broke): apply it again.
func Apply[T kube.Object](ctx context.Context, c *Client, obj T, options ...ApplyOption) (ApplyResult[T], error) {
	a, err := c.application(ctx, obj, options)
	if err != nil {
		return ApplyResult[T]{}, fmt.Errorf("apply: %w", err)
	}
	applied, err := apply(ctx, a, obj)
	if err != nil {
		return applied, fmt.Errorf("apply %s: %w", a.withSubresource(a.settings), err)
	}
	return applied, nil
}

// ApplyConfiguration is Apply for a configuration of the types in
// k8s.io/client-go/applyconfigurations, whose fields are all pointers: what is set is what is
// applied.
//
//	web := appsv1apply.Deployment("web", "shop").WithSpec(appsv1apply.DeploymentSpec().WithReplicas(3))
//	applied, err := client.ApplyConfiguration(ctx, c, web, client.Force())
func ApplyConfiguration(
	ctx context.Context, c *Client, configuration runtime.ApplyConfiguration, options ...ApplyOption,
) (ApplyResult[*unstructured.Unstructured], error) {
	var none ApplyResult[*unstructured.Unstructured]
	if usercode.IsNil(configuration) {
		return none, errors.New("apply: the configuration is nil")
	}
	encoded, err := json.Marshal(configuration)
	if err != nil {
		return none, fmt.Errorf("apply: encode the %T: %w", configuration, err)
	}
	obj := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(encoded, &obj.Object); err != nil {
		return none, fmt.Errorf("apply: read the %T: %w", configuration, err)
	}
	return Apply(ctx, c, obj, options...)
}

// application is one apply.
type application struct {
	target
	settings   settings
	request    *Request
	desired    *desired
	uid        types.UID // that the object must have; empty: any
	input      digest    // of the object that Apply was given; zero: not compared with that of an earlier apply
	configured digest    // of desired.declared
	id         appliedID
	term       <-chan struct{} // the leadership under which it is made; nil: without one
	contents   *contents       // of the states of the object
}

// desired is the configuration of an apply. It is computed when it is needed: most applies have the
// same input as the one before, and nothing to do.
type desired struct {
	target        target
	object        kube.Object
	settings      settings
	configuration map[string]any
	declared      map[string]any // configuration without the uid and the resourceVersion
	digest        digest         // of declared
}

// compute computes the configuration, unless that was done before.
func (d *desired) compute() (err error) {
	if d.declared != nil {
		return nil
	}
	configuration, err := configurationOf(d.target, d.object, d.settings)
	if err != nil {
		return err
	}
	if d.settings.hash != "" {
		d.digest, err = hashConfiguration(configuration, d.settings.hash)
	}
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	declared := declaredIn(configuration)
	if d.settings.hash == "" {
		encoded, err := json.Marshal(declared)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		d.digest = digestOfBytes(encoded)
	}
	d.configuration, d.declared = configuration, declared
	return nil
}

// application prepares an apply, and refuses what no request is to be made for.
func (c *Client) application(ctx context.Context, obj kube.Object, options []ApplyOption) (application, error) {
	s, err := newSettings(options)
	if err != nil {
		return application{}, err
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		return application{}, err
	}
	a := application{target: t, settings: s, request: t.request(VerbApply, s), term: leadership.Lost(ctx), contents: newContents(c.shapes)}
	fail := func(format string, args ...any) (application, error) {
		return a, fmt.Errorf("%s: %w", t.withSubresource(s), fmt.Errorf(format, args...))
	}
	switch {
	case a.request.FieldOwner == "":
		return fail("no field owner: set Config.FieldOwner, or option FieldOwner, to a name that stays the same over versions of the program")
	case s.subresource == "scale":
		return fail("its body is of another kind, a Scale: UpdateSubresource and ScaleLive write it")
	case s.unchanged && obj.GetResourceVersion() == "":
		return fail("the object has no resourceVersion, so that nothing can tell whether it has changed")
	}
	if s.absent {
		if err := checkIfAbsent(obj, s); err != nil {
			return fail("%w", err)
		}
	}
	if s.hash != "" && s.subresource != "" {
		return fail("option ConfigurationHash is for the object itself, not for its %s", s.subresource)
	}
	a.request.PatchType = types.ApplyYAMLPatchType
	a.id = appliedID{
		object: objectID(t.kind.GroupKind(), t.key), collection: unique.Make(collection{t.kind.GroupKind(), t.key.Namespace}),
		applier: unique.Make(applier{version: t.kind.Version, fieldOwner: a.request.FieldOwner, subresource: s.subresource}),
	}
	if err := a.identify(obj); err != nil {
		return fail("%w", err)
	}
	return a, nil
}

// identify sets uid, input and configured. When the input is that of the last apply to the object, its
// configuration is not computed.
func (a *application) identify(obj kube.Object) error {
	a.desired = &desired{target: a.target, object: obj, settings: a.settings}
	a.uid = obj.GetUID()
	if !a.settings.unchanged && !a.settings.absent {
		a.input = a.client.shapes.digestOfInput(obj, a.settings.hash)
		if last, remembered := a.client.applied.get(a.id); remembered && last.input.same(a.input) {
			a.configured = last.configured
			return nil
		}
	}
	if err := a.desired.compute(); err != nil {
		return err
	}
	a.configured = a.desired.digest
	return nil
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

// apply is the flow of Apply. like is of the type that is wanted.
func apply[T kube.Object](ctx context.Context, a application, like T) (ApplyResult[T], error) {
	if a.settings.absent {
		return applyAbsent(ctx, a, like)
	}
	seen, err := stateBefore(ctx, a, like)
	if err != nil {
		return ApplyResult[T]{}, err
	}
	if seen.applied {
		return ApplyResult[T]{Object: seen.object, Outcome: Unchanged}, nil
	}
	last, _ := a.last()
	answer, err := sendApply(ctx, a, like)
	if err != nil {
		return refused(a, seen, err)
	}
	if a.request.DryRun && seen.cached && answer.GetResourceVersion() != seen.object.GetResourceVersion() {
		// Nothing was written, so the informer is behind: what it lacks is not this apply's doing.
		if seen, err = readState(ctx, a.target, like); err != nil {
			return ApplyResult[T]{}, err
		}
	}
	applied := ApplyResult[T]{Object: answer, Outcome: Updated, FormerManagers: formerManagersOf(answer, a.request.FieldOwner)}
	var before kube.Object
	if seen.exists && seen.object.GetUID() == answer.GetUID() {
		before = seen.object
		if a.request.DryRun || before.GetResourceVersion() != answer.GetResourceVersion() {
			applied.Changed = diff(a.contents, before, answer, a.settings.subresource)
		}
	}
	after, err := a.stateOf(answer)
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

// withoutHash returns changes without that of the annotation of option ConfigurationHash, which says
// nothing to readers.
func (a application) withoutHash(changes []FieldChange) []FieldChange {
	if a.settings.hash == "" {
		return changes
	}
	return slices.DeleteFunc(changes, func(c FieldChange) bool { return c.Path == join("metadata.annotations", a.settings.hash) })
}

// remember notes what has come of the apply.
func (a application) remember(after appliedState, outcome ObjectOutcome) {
	switch {
	case a.request.DryRun:
	case a.request.Status == 0:
		// An interceptor has answered itself, and nobody knows what it has done.
		a.client.applied.forgetWritten(a.id.object)
	default:
		a.client.applied.store(a.id, after)
		if a.request.Force && outcome != Unchanged {
			a.client.applied.forgetForced(a.id)
		}
	}
}

// refused says what an error means. What the client has remembered is dropped: an apply whose
// answer was lost may have been done.
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
		applied.Outcome, applied.Conflicts = Conflict, conflicts
		if seen.exists {
			applied.Object = seen.object
		}
		return applied, &ConflictError{FieldOwner: a.request.FieldOwner, Conflicts: conflicts, Err: err}
	}
	if a.uid != "" && !seen.exists && apierrors.IsConflict(err) {
		return applied, fmt.Errorf("%w: what was applied has uid %s: %s", a.gone(), a.uid, err.Error())
	}
	return applied, a.asReplaced(err, a.uid)
}
