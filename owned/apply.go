package owned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/ownerref"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// Apply makes the children of owner be as they are desired: these, and no others. Handlers call
// it in every run, with all children; a list that is empty deletes all there are.
//
// Flow:
//
//  1. All children are checked. A mistake in any of them ends the matter before any request.
//     When owner is being deleted, nothing is done: see Delete.
//  2. The children there are, of all of Config.Kinds, are found by their labels.
//  3. Wave after wave, the children are applied. The first wave in which a child is not ready
//     is the last of this run. Nothing is waited for: the owner is handled again when a child
//     changes, if its controller has a source for that (OwnerKeys), and goes on from there.
//  4. When all children of all waves were applied, what was found and is not desired is deleted,
//     the last wave first (AnnotationWave tells): a wave when all above it are gone.
//
// Guarantees:
//   - Only what is the owner's is touched. An object in the place of a child that has another
//     controller, or the labels of another set, or (without Config.AdoptOrphans) belongs to
//     nobody, is reported as Foreign. A child is created only if the API server finds no object in
//     its place at that moment (client.IfAbsent).
//   - What is pruned carries the labels of the owner's children, its own key in AnnotationChild
//     and, where an owner reference is possible, the owner's uid as its controller: in the state
//     whose uid and resourceVersion are the preconditions of its deletion.
//   - A stale list of children deletes nothing: before anything is deleted, owner is read from
//     the API server, and must have the uid and the generation (kinds without one: the
//     resourceVersion) that the caller's has. This is not known of changes to the labels and
//     annotations of kinds with a generation, and not of what the list is made of besides owner.
//   - For an owner that is gone, or another one of its name, no child is created that the
//     garbage collector would not find.
//   - One child's error does not keep the others of its wave from being applied.
//
// The error joins those of the children (*ForeignError, *ImmutableError, client.ErrTerminating when
// owner is being deleted and does not show it yet, and what requests met), which are in the report
// too. That a child is not ready, or waits, is none. A report that comes with an error is never ready, so
// a handler can summarise its States in the owner's status before it returns the error.
func (s *Set) Apply(ctx context.Context, owner kube.Object, children ...Child) (Report, error) {
	p, err := s.begin(s.config.Client, owner)
	if err != nil {
		return Report{failure: err}, fmt.Errorf("apply children: %w", err)
	}
	report, err := p.run(ctx, children)
	if err != nil {
		return report, fmt.Errorf("apply children of %s: %w", p, err)
	}
	return report, nil
}

func (p *pass) run(ctx context.Context, children []Child) (Report, error) {
	if err := p.desire(ctx, children); err != nil {
		return Report{failure: err}, err
	}
	if p.owner.GetDeletionTimestamp() != nil {
		return Report{OwnerTerminating: true}, nil
	}
	if err := p.takeInventory(ctx, false); err != nil {
		return Report{failure: err}, err
	}
	if err := p.findFormer(ctx); err != nil {
		return Report{failure: err}, err
	}
	if p.set.config.Prune == PruneFirst {
		p.prune(ctx, "")
	}
	p.applyWaves(ctx)
	switch p.set.config.Prune {
	case PruneLast:
		p.prune(ctx, p.unapplied())
	case PruneNever:
		p.prune(ctx, "pruning is switched off")
	case PruneFirst:
	}
	report := p.report()
	err := report.err()
	if err == nil && !p.plan && len(report.left()) == 0 {
		p.noteSearched()
	}
	return report, err
}

func (p *pass) report() Report {
	report := Report{RunAgain: p.runAgain}
	for _, i := range p.items {
		report.Results = append(report.Results, i.result)
	}
	report.Results = append(report.Results, p.leftover...)
	return report
}

// applyWaves applies the children, as long as those of lower waves are ready. A plan goes on,
// and notes what would have to wait.
func (p *pass) applyWaves(ctx context.Context) {
	gate := ""
	for n, i := range p.items {
		if gate == "" && n > 0 && i.Wave != p.items[n-1].Wave {
			gate = p.unready(i.Wave)
		}
		i.result.Waits = gate
		if gate != "" && !p.plan {
			i.result.Outcome = Waiting
			continue
		}
		if err := p.applyItem(ctx, i); err != nil {
			i.result.Outcome, i.result.Err = Failed, err
		}
	}
}

// unready says which children below a wave keep it waiting; "" for none.
func (p *pass) unready(wave int) string {
	var missing []Result
	for _, i := range p.items {
		if i.Wave < wave && !i.result.isReady() {
			missing = append(missing, i.result)
		}
	}
	return waitFor(missing, "ready")
}

// waitFor says that a wave is not ready, or not gone, because of these; "" for none.
func waitFor(missing []Result, state string) string {
	if len(missing) == 0 {
		return ""
	}
	text := fmt.Sprintf("wave %d is not %s: %s", missing[0].Wave, state, missing[0].pending())
	if more := len(missing) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// unapplied says why it is too early to prune; "" when it is not.
func (p *pass) unapplied() string {
	for _, i := range p.items {
		// In a plan, what would wait is not applied either.
		if !i.result.applied() || i.result.Waits != "" {
			return fmt.Sprintf("what is desired comes first: %s is %s", i.result, i.result.Outcome)
		}
	}
	return ""
}

// applyItem brings one child to its desired state, as far as that can be done now.
func (p *pass) applyItem(ctx context.Context, i *item) error {
	if !i.placed {
		if err := p.place(ctx, i); err != nil {
			return p.planned(i, fmt.Errorf("apply %s: %w", i.result, err))
		}
		i.result.Key = kube.KeyOf(i.object)
	}
	live, err := p.lookUp(ctx, i)
	if err != nil {
		return err
	}
	if live == nil {
		err := p.create(ctx, i)
		if !errors.Is(err, client.ErrExists) {
			return err
		}
		// It may be another owner's, or this owner's: created by a run whose response was lost.
		var getErr error
		live, getErr = p.getLive(ctx, i)
		switch {
		case errors.Is(getErr, client.ErrGone):
			return err // it was deleted meanwhile, and the next run creates the child
		case getErr != nil:
			return fmt.Errorf("look whose %s is: %w", i.result, getErr)
		}
	}
	return p.applyTo(ctx, i, live)
}

// applyTo brings the object that is in the place of a child to the child's desired state, if it is
// the owner's.
func (p *pass) applyTo(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	ownership, holder := p.set.ownershipOf(p.owner, live)
	// An owner elsewhere has its own namesakes.
	if former, ok := p.formerOwner(live); ok && i.referable {
		return p.replaceFormer(ctx, i, live, former)
	}
	switch {
	case ownership == foreign || ownership == orphan && !p.set.config.AdoptOrphans:
		i.result.Outcome = Foreign
		i.result.Err = &ForeignError{
			Kind: i.kind, Key: kube.KeyOf(live), Holder: holder, Orphan: ownership == orphan,
		}
		return nil
	case live.GetDeletionTimestamp() != nil && ownership == orphan:
		// What nobody has given to the owner is not the owner's to release.
		i.result.Outcome, i.result.Terminating = Terminating, deletionOf(live)
		return nil
	case live.GetDeletionTimestamp() != nil:
		return p.terminating(ctx, &i.result, live)
	case ownership == orphan:
		// What an owner that is gone came to own would be deleted.
		if err := p.checkOwner(ctx); err != nil {
			return fmt.Errorf("adopt %s: %w", i.result, err)
		}
		if !i.CreateOnly { // whose marks are locked anyway
			// It may have come to be somebody's since there was seen.
			i.object.SetResourceVersion(live.GetResourceVersion())
			return p.update(ctx, i, live, client.IfUnchanged())
		}
	}
	if i.CreateOnly {
		return p.keep(ctx, i, live)
	}
	return p.update(ctx, i, live)
}

// create creates a child. The error is client.ErrExists when there is an object in its place. The
// child is applied, so that its fields are managed in one way from the beginning.
func (p *pass) create(ctx context.Context, i *item) error {
	if !i.referable {
		// The garbage collector will not clear it away.
		if err := p.checkOwner(ctx); err != nil {
			return fmt.Errorf("create %s: %w", i.result, err)
		}
	}
	applied, err := client.Apply(ctx, p.client, i.object, append(i.hashed(), client.IfAbsent())...)
	if err != nil {
		return p.planned(i, err)
	}
	i.applied(applied)
	return nil
}

// hashed is the option by which it is known later what was applied.
func (i *item) hashed() []client.ApplyOption {
	if i.CreateOnly {
		return nil // others change its fields
	}
	return []client.ApplyOption{client.ConfigurationHash(annotationConfiguration)}
}

// planned lets a plan go on where a child cannot be tried, because what it needs (its namespace,
// the definition of its kind) is only planned too.
func (p *pass) planned(i *item, err error) error {
	missing := errors.Is(err, kube.ErrNotServed) || errors.Is(err, client.ErrNoNamespace)
	if !p.plan || !missing || !p.createsBefore(i) {
		return err
	}
	i.result.Outcome = Created
	i.result.Note = "not checked by the API server: what it needs is only planned"
	return nil
}

// createsBefore reports whether a plan creates what another child may need.
func (p *pass) createsBefore(i *item) bool {
	for _, other := range p.items {
		if other == i {
			return false
		}
		if other.result.Outcome == Created && (other.kind.Kind == "Namespace" || other.kind.Kind == "CustomResourceDefinition") {
			return true
		}
	}
	return false
}

// keep leaves the fields of a child to others, sees to it that it has its marks, and looks how
// it is. The marks are patched: an apply of nothing else would take back the fields that the child
// was created with.
func (p *pass) keep(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	marked := live.DeepCopy()
	if i.referable {
		if err := ownerref.SetController(ctx, p.client, p.owner, marked); err != nil {
			return fmt.Errorf("keep %s: %w", i.result, err)
		}
	}
	p.set.mark(p.owner, marked, i.Wave)
	marks := client.MergeFrom(live, marked).Locked(live) // the owner references are a list
	if !marks.Empty() {
		if _, err := client.Patch(ctx, p.client, live, marks); err != nil {
			return err
		}
	}
	obj, err := client.Get[*unstructured.Unstructured](ctx, p.client, kube.KeyOf(live), client.OfKind(i.kind))
	if errors.Is(err, client.ErrGone) && p.isCovered(i) { // of a child that only the API server shows yet
		obj, err = client.Get[*unstructured.Unstructured](ctx, p.client, kube.KeyOf(live), client.OfKind(i.kind), client.FromAPI())
	}
	if err != nil {
		return err
	}
	i.result.Object = obj
	if reflect.TypeOf(i.object) != reflect.TypeOf(obj) {
		// Checks may expect the type that they were given.
		typed := reflect.New(reflect.TypeOf(i.object).Elem()).Interface().(kube.Object)
		// Not by apimachinery's converter, which panics at fields that are not exported.
		encoded, err := json.Marshal(obj.Object)
		if err == nil {
			err = utiljson.Unmarshal(encoded, typed)
		}
		if err != nil {
			return fmt.Errorf("read %s as a %T: %w", i.result, typed, err)
		}
		i.result.Object = typed
	}
	if i.result.Outcome = Unchanged; !marks.Empty() {
		i.result.Outcome, i.result.Changed = Updated, client.Diff(live, marked)
	}
	i.result.Readiness = i.Ready(i.result.Object)
	return nil
}

// update applies a child that is there. Its uid goes along, so that another object of its name is
// not taken for it.
func (p *pass) update(ctx context.Context, i *item, live *metav1.PartialObjectMetadata, options ...client.ApplyOption) error {
	takesOver := p.mustTakeOver(i, live)
	if takesOver && !p.plan {
		var err error
		if live, err = p.takeOver(ctx, i); err != nil {
			return err
		}
		if i.object.GetResourceVersion() != "" { // option IfUnchanged
			i.object.SetResourceVersion(live.GetResourceVersion())
		}
	}
	i.object.SetUID(live.GetUID())
	options = append(options, i.hashed()...)
	if p.set.config.OnConflict == ForceConflicts {
		options = append(options, client.Force())
	}
	applied, err := client.Apply(ctx, p.client, i.object, options...)
	if takesOver && p.plan && p.set.config.isFormerConflict(err) { // a take-over comes before the apply
		applied, err = client.Apply(ctx, p.client, i.object, append(options, client.Force())...)
	}
	if err == nil {
		if !p.plan && applied.Outcome == client.Updated && applied.Object.GetResourceVersion() == live.GetResourceVersion() {
			applied.Outcome, applied.Changed = client.Unchanged, nil // the client did not know the state before
		}
		i.applied(applied)
		if takesOver && p.plan {
			return p.planTakeOver(ctx, i)
		}
		p.reportLeft(ctx, i, applied.FormerManagers)
		return nil
	}
	fields, immutable := immutableFields(err)
	if !immutable {
		return err
	}
	reason := &ImmutableError{Kind: i.kind, Key: kube.KeyOf(live), Fields: fields, Err: err}
	if !i.Recreate && !p.set.config.Recreate {
		return reason
	}
	return p.recreate(ctx, i, live, reason)
}

// recreate deletes a child, if it is still the owner's, in the state that is read now.
func (p *pass) recreate(ctx context.Context, i *item, live *metav1.PartialObjectMetadata, reason *ImmutableError) error {
	i.result.Note = reason.fields() + " cannot be changed"
	if err := p.checkOwner(ctx); err != nil {
		return fmt.Errorf("delete %s, to create it anew: %w", i.result, err)
	}
	if p.ownerMoved() {
		i.result.Outcome, i.result.Waits = Waiting, ownerHasMoved
		return nil
	}
	err := client.DeleteLive(ctx, p.client, metadataOnly(i.kind, live), func(live *metav1.PartialObjectMetadata) error {
		if ownership, holder := p.set.ownershipOf(p.owner, live); ownership != own {
			return &ForeignError{Kind: i.kind, Key: kube.KeyOf(live), Holder: holder, Orphan: ownership == orphan}
		}
		return nil
	}, client.Propagation(p.set.config.Propagation))
	if err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	i.result.Outcome = Recreating
	p.announce(corev1.EventTypeNormal, "ChildRecreating", "Delete",
		fmt.Sprintf("%s is deleted and created anew: %s", i.result, i.result.Note))
	return nil
}

// applied notes what came of an apply.
func (i *item) applied(applied client.ApplyResult[kube.Object]) {
	r := &i.result
	r.Object, r.Changed = applied.Object, applied.Changed
	switch applied.Outcome {
	case client.Created:
		r.Outcome = Created
	case client.Unchanged:
		r.Outcome = Unchanged
	default:
		r.Outcome = Updated
	}
	if r.Readiness = i.Ready(applied.Object); applied.Object.GetDeletionTimestamp() != nil {
		r.Readiness = readiness.State{Status: readiness.Terminating, Message: "it is being deleted"}
	}
}
