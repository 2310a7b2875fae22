package owned

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// applyChild brings one child to its desired state, as far as that is possible in this run.
func (p *pass) applyChild(ctx context.Context, i *item) error {
	if err := p.bring(ctx, i); err != nil {
		return err
	}
	return p.recordFinished(ctx, i)
}

// bring is applyChild without the note that the child has finished.
func (p *pass) bring(ctx context.Context, i *item) error {
	if !i.resolved {
		if err := p.resolve(ctx, i); err != nil {
			return p.ignoreIfPlanned(i, fmt.Errorf("apply %s: %w", i.result, err))
		}
		i.result.Key = kube.KeyOf(i.object)
	}
	live, err := p.lookUp(ctx, i)
	if err != nil {
		return err
	}
	if live == nil {
		finished, err := p.hasFinished(ctx, i, "it has finished, and does not exist anymore")
		if finished || err != nil {
			return err
		}
		if err = p.create(ctx, i); !errors.Is(err, client.ErrExists) {
			return err
		}
		// An earlier run with a lost response may have created the object. Otherwise it belongs to another owner.
		var getErr error
		live, getErr = p.getLive(ctx, i)
		switch {
		case errors.Is(getErr, client.ErrGone):
			return err // it was deleted in between, and the next run creates the child
		case getErr != nil:
			return fmt.Errorf("find the owner of %s: %w", i.result, getErr)
		}
	}
	return p.applyTo(ctx, i, live)
}

// maxAttempts is the number of attempts to write a child that other clients change meanwhile.
const maxAttempts = 3

// applyTo applies the child to the last known state of its object. Each write has the resourceVersion of the state from
// which the owner was determined as precondition: a cache may show an object as a child that a user has given away, or
// that the garbage collector has orphaned. If the object has changed, applyTo reads it from the API server.
func (p *pass) applyTo(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	for attempt := 1; ; attempt++ {
		err := p.applyToState(ctx, i, live)
		if !errors.Is(err, client.ErrChanged) || attempt == maxAttempts {
			return err
		}
		var getErr error
		if live, getErr = p.getLive(ctx, i); getErr != nil {
			return err
		}
	}
}

// applyToState brings the object in this state to the desired state of the child, if it belongs to the owner or may be
// adopted.
func (p *pass) applyToState(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	ownership, holder := p.ownershipOf(live)
	// An owner of that name in another namespace is a different object, so referable is required.
	if former, ok := p.formerOwner(live); ok && i.referable {
		return p.replaceFormer(ctx, i, live, former)
	}
	switch {
	case ownership == foreign || ownership == orphan && !p.set.config.AdoptOrphans:
		i.result.Outcome = outcomeForeign
		i.result.Err = &ForeignError{kind: i.kind, key: kube.KeyOf(live), Holder: holder, Orphan: ownership == orphan}
		return nil
	case live.GetDeletionTimestamp() != nil && ownership == orphan:
		// An orphan was never given to the owner, so its finalizers must stay.
		i.result.Outcome, i.result.terminating = outcomeTerminating, deletionOf(live)
		return nil
	case live.GetDeletionTimestamp() != nil:
		if err := p.readFinal(ctx, i, live); err != nil {
			return err
		}
		return p.terminating(ctx, &i.result, live)
	case i.CreateOnly:
		return p.applyCreateOnly(ctx, i, live)
	}
	return p.update(ctx, i, live)
}

// checkGiven reads the owner before an object in this state is given to it. An object without a reference to the owner
// may be one that the garbage collector has orphaned (kubectl delete --cascade=orphan); then the owner is terminating
// already. With the reference, the garbage collector would delete it after the owner.
func (p *pass) checkGiven(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	ownership, _ := p.ownershipOf(live)
	if metav1.GetControllerOfNoCopy(live) != nil || !i.referable && ownership == own {
		return nil
	}
	if err := p.checkOwner(ctx); err != nil {
		return fmt.Errorf("adopt %s: %w", i.result, err)
	}
	return nil
}

// create creates a child with an apply, so that its fields have one field manager from the start. The error is
// client.ErrExists if an object with its name exists.
func (p *pass) create(ctx context.Context, i *item) error {
	if !i.referable {
		// The garbage collector will not delete this child.
		if err := p.checkOwner(ctx); err != nil {
			return fmt.Errorf("create %s: %w", i.result, err)
		}
	}
	applied, err := client.Apply(ctx, p.client, i.object, append(i.configurationHash(), client.IfAbsent())...)
	if err != nil {
		return p.ignoreIfPlanned(i, err)
	}
	i.setApplied(applied)
	p.noteCreation(i.identity(), applied.Object.GetUID())
	p.reportRepetition(ctx, i)
	return nil
}

// update applies a child that exists. The request contains its uid, so that it cannot change another object with
// its name, and the resourceVersion.
func (p *pass) update(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	takesOver := p.mustTakeOver(i, live)
	if takesOver && !p.plan {
		var err error
		if live, err = p.takeOver(ctx, i); err != nil {
			return err
		}
	}
	if err := p.checkGiven(ctx, i, live); err != nil {
		return err
	}
	i.object.SetUID(live.GetUID())
	i.object.SetResourceVersion(live.GetResourceVersion())
	options := append(i.configurationHash(), client.IfUnchanged())
	if !p.set.config.ReportConflicts {
		options = append(options, client.Force())
	}
	applied, err := client.Apply(ctx, p.client, i.object, options...)
	if takesOver && p.plan && p.set.config.isFormerConflict(err) { // Apply takes the fields over first
		applied, err = client.Apply(ctx, p.client, i.object, append(options, client.Force())...)
	}
	if err == nil {
		if !p.plan && applied.Outcome == client.Updated &&
			applied.Object.GetResourceVersion() == live.GetResourceVersion() {
			applied.Outcome, applied.Changed = client.Unchanged, nil // the client did not know the previous state
		}
		i.setApplied(applied)
		if takesOver && p.plan {
			return p.planTakeOver(ctx, i)
		}
		p.reportLeftFields(ctx, i, applied.FormerManagers)
		return nil
	}
	fields, immutable := immutableFields(err)
	if !immutable {
		return err
	}
	const note = "it has finished and has other immutable fields: it keeps all fields, and a new name runs it again"
	finished, readErr := p.hasFinished(ctx, i, note)
	if !finished && readErr == nil {
		finished, readErr = p.finishesNow(ctx, i, live, note)
	}
	if finished || readErr != nil {
		return readErr
	}
	reason := &immutableError{child: i.result.String(), fields: fields, err: err}
	p.nameFields(ctx, i, reason)
	if !i.Recreate {
		return reason
	}
	return p.recreate(ctx, i, live, reason)
}

// configurationHash returns the option that stores a hash of the applied configuration in the child. A CreateOnly child
// has no hash, because other clients change its fields.
func (i *item) configurationHash() []client.WriteOption {
	if i.CreateOnly {
		return nil
	}
	return []client.WriteOption{client.ConfigurationHash(annotationConfiguration)}
}

// setApplied sets the result of an apply.
func (i *item) setApplied(applied client.ApplyResult[kube.Object]) {
	r := &i.result
	r.Object, r.Changed = applied.Object, applied.Changed
	r.Outcome = ChildOutcome(applied.Outcome)
	if r.Readiness = i.Ready(applied.Object); applied.Object.GetDeletionTimestamp() != nil {
		r.Readiness = readiness.State{Status: readiness.Terminating, Message: "it is being deleted"}
	}
}
