package owned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// annotationFinished is the annotation of an owner with the children of type Child.Once that have finished.
const annotationFinished = "evenkeel.dev/finished"

// finished are the values of annotationFinished: the status of each finished child, by set and child.
type finished map[string]readiness.Status

// finishedIn reads the annotation of an owner. Content that another client has written is ignored.
func finishedIn(owner kube.Object) finished {
	f := finished{}
	if json.Unmarshal([]byte(owner.GetAnnotations()[annotationFinished]), &f) != nil {
		return finished{}
	}
	return f
}

// once returns the name of a child in annotationFinished.
func (p *pass) once(i *item) string {
	return p.set.config.Name + "/" + i.kind.GroupKind().String() + "/" + i.identity().key.String()
}

// hasFinished reports whether a child that must be created has finished before, and sets its result with this note.
// The annotation of the cached owner may be outdated, so the owner is read before a child is created.
func (p *pass) hasFinished(ctx context.Context, i *item, note string) (bool, error) {
	if !i.Once {
		return false, nil
	}
	status, found := finishedIn(p.owner)[p.once(i)]
	if !found {
		if err := p.checkOwner(ctx); err != nil {
			return false, fmt.Errorf("create %s: %w", i.result, err)
		}
		status, found = finishedIn(p.live)[p.once(i)]
	}
	if found {
		i.result.Outcome, i.result.Note = Unchanged, note
		i.result.Readiness = readiness.State{Status: status, Message: "it has finished"}
	}
	return found, nil
}

// finishesNow reports whether a child of type Child.Once, whose change was rejected, has finished since this state, and
// sets its result with this note: for example, a Job finishes while a new version of the program starts. The error is
// client.ErrChanged if the child is being deleted by now, which may be why it ends, or another object has its name.
func (p *pass) finishesNow(
	ctx context.Context, i *item, live *metav1.PartialObjectMetadata, note string,
) (bool, error) {
	if !i.Once {
		return false, nil
	}
	obj, err := p.read(ctx, i, client.FromAPI())
	switch {
	case errors.Is(err, client.ErrGone):
		return false, nil
	case err != nil:
		return false, err
	case obj.GetUID() != live.GetUID() || obj.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("%s was replaced or is being deleted: %w", i.result, client.ErrChanged)
	}
	state := i.Ready(obj)
	if state.Status != readiness.Current && state.Status != readiness.Failed {
		return false, nil
	}
	i.result.Outcome, i.result.Note, i.result.Readiness = Unchanged, note, state
	return true, nil
}

// readFinal sets the readiness that a child of type Child.Once has when its deletion begins: a Job with a TTL of 0 is
// being deleted before a run sees that it has finished. A child that ends because it is being deleted (a Job has failed
// when the garbage collector has deleted its Pods) has not finished.
func (p *pass) readFinal(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	child := ownedChild{p.owner.GetUID(), i.identity()}
	if !i.Once || p.set.deletions.Get(child).ending == live.GetUID() {
		return nil
	}
	obj, err := p.read(ctx, i)
	switch {
	case errors.Is(err, client.ErrGone):
		return nil
	case err != nil:
		return err
	case obj.GetUID() != live.GetUID():
		return nil
	}
	isTerminating := obj.GetDeletionTimestamp() != nil // otherwise an informer has an earlier state
	obj.SetDeletionTimestamp(nil)
	i.result.Readiness = i.Ready(obj)
	if status := i.result.Readiness.Status; isTerminating && !p.plan && status != readiness.Current &&
		status != readiness.Failed {
		p.set.deletions.Do(child, func(d *deletion) { d.ending = live.GetUID() })
	}
	return nil
}

// reportRepetition warns when a child that its ttlSecondsAfterFinished deletes was created again, and would be forever.
// It warns once for each child.
func (p *pass) reportRepetition(ctx context.Context, i *item) {
	var child struct {
		Spec struct {
			TTL *int64 `json:"ttlSecondsAfterFinished"`
		}
	}
	encoded, err := json.Marshal(i.result.Object)
	if i.Once || p.plan || err != nil || json.Unmarshal(encoded, &child) != nil || child.Spec.TTL == nil {
		return
	}
	key := ownedChild{p.owner.GetUID(), i.identity()}
	if p.set.deletions.Get(key) != (deletion{}) {
		return // the set has deleted it, for example to recreate it
	}
	p.set.creations.Do(key, func(count *int) {
		if *count++; *count == 2 {
			i.result.Note = "it was deleted and created again: set Child.Once, because it has ttlSecondsAfterFinished"
		}
	})
	if i.result.Note != "" {
		p.client.Cluster().Logger().WarnContext(ctx, "child is created again and again", "owner", p.String(), "child",
			i.result.String(), "message", i.result.Note)
	}
}

// recordFinished notes in the owner that a child has finished.
func (p *pass) recordFinished(ctx context.Context, i *item) error {
	status := i.result.Readiness.Status
	if !i.Once || p.plan || status != readiness.Current && status != readiness.Failed {
		return nil
	}
	if _, noted := finishedIn(p.owner)[p.once(i)]; noted {
		return nil
	}
	if err := p.checkOwner(ctx); err != nil {
		return fmt.Errorf("note that %s has finished: %w", i.result, err)
	}
	all := finishedIn(p.live)
	desired := []string{}
	for _, other := range p.items {
		desired = append(desired, p.once(other))
	}
	maps.DeleteFunc(all, func(name string, _ readiness.Status) bool {
		return strings.HasPrefix(name, p.set.config.Name+"/") && !slices.Contains(desired, name)
	})
	all[p.once(i)] = status
	encoded, err := json.Marshal(all)
	if err != nil {
		return err
	}
	noted := p.live.DeepCopy()
	noted.SetAnnotations(with(noted.GetAnnotations(), map[string]string{annotationFinished: string(encoded)}))
	// Another set of the owner may write the annotation at the same time.
	if _, err := client.Patch(ctx, p.client, p.live, client.MergeFrom(p.live, noted).Locked(p.live)); err != nil {
		return fmt.Errorf("note in %s that %s has finished: %w", p, i.result, err)
	}
	return nil
}
