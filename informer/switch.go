package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/evenkeel-go/evenkeel/kube"
)

// SetRetriever replaces the Retriever, for example to add or remove namespaces or to change the selection. The informer
// need not run. SetRetriever returns when the new watches have listed and the old ones have ended.
//
// Retrievers that are in both the old and the new Retriever (the same value, or the same cluster, kind and selection)
// continue unchanged. New ones are listed and watched, and their objects are announced as Added. Then the old ones end,
// and objects that no remaining Retriever has are announced as Deleted. So an object in both the old and the new
// selection is never deleted: it is announced as Updated.
//
// A new Retriever that is forbidden, or whose kind is missing, is not waited for if another one of retriever has
// listed. It is set, Health has its error, and its objects are announced when it can list.
//
// Errors: an informer that several users share (Shared); a mistake in retriever; a view through another type (see As),
// which cannot retrieve the informer's objects;
// the end of ctx before the new Retrievers have listed. In the last case the error contains the reason, and nothing has
// changed. A call waits for the previous call to return. If ctx ends meanwhile, nothing has changed. Until the call
// returns, Ready and WaitSynced depend only on the present Retrievers. A failing new Retriever is logged, and is in the
// error.
func (i *Informer[T]) SetRetriever(ctx context.Context, retriever Retriever[T]) error {
	fail := func(err error) error { return fmt.Errorf("informer %q: set the retriever: %w", i.Name(), err) }
	if retriever == nil {
		return fail(errors.New("it is nil"))
	}
	if objectType := i.core.objectType; objectType != reflect.TypeFor[T]() {
		return fail(fmt.Errorf("this is a view of an informer of %s: set it there", objectType))
	}
	retriever = Config[T]{Retriever: retriever, KeepAppliedBy: i.core.appliedBy}.withDefaults().Retriever
	description := retriever.Describe()
	if description.Problem != nil {
		return fail(description.Problem)
	}
	if description.GroupVersionKind != i.core.kind {
		return fail(fmt.Errorf("the informer is of kind %q, the retriever of %q", i.core.kind,
			description.GroupVersionKind))
	}
	c := i.core
	if users := c.unshare(); users > 1 {
		return fail(fmt.Errorf("%d controllers and sources share the informer: make one of its own with informer.New, "+
			"and set it in Config.Informer or pass it to the source", users))
	}
	select {
	case c.switching <- struct{}{}:
		defer func() { <-c.switching }()
	case <-ctx.Done():
		return fail(fmt.Errorf("wait for another call: %w", ctx.Err()))
	}
	c.mu.Lock()
	old, before := c.parts, c.selectionText
	c.mu.Unlock()
	wanted, added := i.partsFor(inScope(ctx, partsOf(retriever)), old)
	for _, p := range added {
		p.isNew = true
	}
	dropped := without(old, wanted)
	c.setParts(slices.Concat(old, added), before, added, dropped)
	if err := c.waitAdded(ctx, added); err != nil {
		c.setParts(old, before, nil, nil)
		c.drop(added)
		return fail(err)
	}
	c.mu.Lock()
	for _, p := range added {
		p.isNew = false
	}
	c.mu.Unlock()
	c.setParts(wanted, description.text(), nil, nil)
	c.drop(dropped)
	return nil
}

// rescope replaces the parts for the default namespaces of a Cluster if the kind has another scope than they are for:
// by one part if the kind lives in no namespace, otherwise by one for each namespace. A part calls it, and is dropped
// after its return. It returns false while SetRetriever runs: then the part has failed, and tries again.
func (i *Informer[T]) rescope() bool {
	c := i.core
	c.mu.Lock()
	defer c.mu.Unlock()
	session := c.session
	if session == nil || c.rescoping {
		return true // the next session tries again
	}
	select {
	case c.switching <- struct{}{}:
	default:
		return false
	}
	c.rescoping = true
	session.spawn(func(ctx context.Context) { // waited for by the last Run
		defer func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.rescoping = false
			<-c.switching
		}()
		var retrievers []Retriever[T]
		old := c.allParts()
		for _, p := range old {
			retrievers = append(retrievers, p.identity.(Retriever[T]))
		}
		retrievers = inScope(ctx, retrievers)
		wanted, added := i.partsFor(retrievers, old)
		c.setParts(wanted, Combine(retrievers...).Describe().text(), added, nil)
		c.drop(without(old, wanted))
	})
	return true
}

// inScope returns the Retrievers, with those for the default namespaces of a Cluster replaced by those for the scope
// that their kind has there. If the scope is not known, they stay.
func inScope[T kube.Object](ctx context.Context, retrievers []Retriever[T]) []Retriever[T] {
	var result []Retriever[T]
	add := func(r Retriever[T]) {
		if !slices.ContainsFunc(result, func(other Retriever[T]) bool { return sameRetriever(r, other) }) {
			result = append(result, r)
		}
	}
	for _, r := range retrievers {
		direct, ok := r.(*clusterRetriever[T])
		if !ok || len(direct.limit) == 0 {
			add(r)
			continue
		}
		namespaces := []string{direct.namespace}
		resource, err := direct.cluster.Resource(ctx, direct.kind)
		switch {
		case err == nil && !resource.Namespaced:
			namespaces = []string{""}
		case err == nil && direct.namespace == "":
			namespaces = direct.limit
		}
		for _, namespace := range namespaces {
			scoped := *direct
			scoped.namespace = namespace
			add(&scoped)
		}
	}
	return result
}

// partsFor returns a part for each Retriever: one of old, or a new one, which is also in added.
func (i *Informer[T]) partsFor(retrievers []Retriever[T], old []*part) (wanted, added []*part) {
	for _, r := range retrievers {
		n := slices.IndexFunc(old, func(p *part) bool {
			return sameRetriever(p.identity, r) && !slices.Contains(wanted, p)
		})
		if n >= 0 {
			wanted = append(wanted, old[n])
			continue
		}
		p := i.newPart(r)
		wanted, added = append(wanted, p), append(added, p)
	}
	return wanted, added
}

func without(parts, others []*part) []*part {
	return slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return slices.Contains(others, p) })
}

// sameRetriever reports whether two Retrievers certainly retrieve the same objects.
func sameRetriever[T kube.Object](a any, b Retriever[T]) bool {
	if reflect.ValueOf(a).Comparable() && a == any(b) {
		return true
	}
	first, ok := a.(*clusterRetriever[T])
	second, ok2 := b.(*clusterRetriever[T])
	if !ok || !ok2 {
		return false
	}
	return first.cluster == second.cluster && first.kind == second.kind &&
		first.namespace == second.namespace && first.labels == second.labels && first.fields == second.fields
}

// setParts replaces the parts. If a session runs, it starts the parts in start. Those in leaving will be dropped.
func (c *core) setParts(parts []*part, selectionText string, start, leaving []*part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts, c.selectionText = parts, selectionText
	for _, p := range parts {
		p.leaves = slices.Contains(leaving, p)
	}
	if c.session != nil {
		for _, p := range start {
			first := Listed
			if p.isNew {
				first = Added
			}
			c.session.start(p, first)
		}
	}
}

// waitAdded waits until the added parts are settled, or until the informer stops.
func (c *core) waitAdded(ctx context.Context, added []*part) error {
	for _, p := range added {
		c.mu.Lock()
		running, settled, ended := c.session != nil, p.settled, p.ended
		c.mu.Unlock()
		if !running {
			return nil
		}
		select {
		case <-settled:
		case <-ended:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("wait for the first list of %s: %w", p.describes, ctx.Err()),
				p.status.condition().err)
		}
	}
	return nil
}

// drop ends removed parts, and announces the deletion of objects that no other part has.
func (c *core) drop(parts []*part) {
	for _, p := range parts {
		c.mu.Lock()
		stop, ended := p.stop, p.ended
		c.mu.Unlock()
		if stop != nil {
			stop()
			<-ended
		}
		p.contents.removeAll()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checkSynced() // all remaining parts may have listed
}
