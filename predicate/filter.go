package predicate

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Labels passes changes of objects that selector matches: in their new state, or, when they
// are gone, in their last. An Updated passes when it matched before or matches now, so that
// entering and leaving the selection count. labels.Parse and labels.SelectorFromSet make
// selectors. It panics when selector is nil; labels.Everything passes all.
func Labels(selector labels.Selector) informer.Predicate {
	if selector == nil {
		panic("predicate.Labels: the selector is nil")
	}
	return func(c informer.Change) bool {
		after, err := c.New()
		if err != nil || after != nil && selector.Matches(labels.Set(after.Labels())) {
			return true
		}
		before, err := c.Old()
		if err != nil || before != nil && selector.Matches(labels.Set(before.Labels())) {
			return true
		}
		return c.Type == informer.Updated && (before == nil || after == nil) // half of it is not known
	}
}

// InNamespaces passes changes of objects in these namespaces. The namespace of cluster-scoped
// objects is "". Without any, all pass, as in informer.Selection.
func InNamespaces(namespaces ...string) informer.Predicate {
	namespaces = slices.Clone(namespaces)
	return func(c informer.Change) bool {
		return len(namespaces) == 0 || slices.Contains(namespaces, c.Key.Namespace)
	}
}

// Types passes changes of these types only.
//
// A handler has to cope with changes that were merged on the way: an object that was created
// and changed while the watch was broken is Added, one that was deleted and created again is
// Updated, and one that was created and deleted in that time was never there.
func Types(types ...informer.ChangeType) informer.Predicate {
	types = slices.Clone(types)
	return func(c informer.Change) bool { return slices.Contains(types, c.Type) }
}

// Func passes what passes says about the states before and after a change, decoded: before is
// nil for Listed and Added, after is nil for Deleted. (Either may be nil for an Updated of an
// object that several parts of a joined Retriever have.) Both belong to passes. It is asked
// about every change, also one whose UIDs differ; for one whose states cannot be decoded as a
// T it is not asked, and the change passes.
//
// T is the type of the informer's objects. With an informer of metadata (source.Owned has
// one), the objects have nothing but metadata, whatever T is. Objects kept as protobuf cannot
// be decoded as unstructured: all their changes pass.
//
// Decoding both states is what costs most in handling a change: put a cheaper predicate first
// in an And. It panics when passes is nil.
func Func[T kube.Object](passes func(before, after T) bool) informer.Predicate {
	if passes == nil {
		panic("predicate.Func: the function is nil")
	}
	return func(c informer.Change) bool {
		before, after, err := informer.Decode[T](c)
		return err != nil || passes(before, after)
	}
}

// And passes what all predicates pass, in their order: it stops at the first that drops. Of
// none, it passes everything.
func And(predicates ...informer.Predicate) informer.Predicate {
	predicates = checked("And", predicates)
	return func(c informer.Change) bool {
		for _, passes := range predicates {
			if !passes(c) {
				return false
			}
		}
		return true
	}
}

// Or passes what at least one of the predicates passes, in their order: it stops at the first
// that passes. Of none, it passes nothing.
func Or(predicates ...informer.Predicate) informer.Predicate {
	predicates = checked("Or", predicates)
	return func(c informer.Change) bool {
		for _, passes := range predicates {
			if passes(c) {
				return true
			}
		}
		return false
	}
}

// Not passes what p drops, and drops what p passes.
//
// So Not of one of the Changed predicates drops every Listed, Added and Deleted, and every
// change whose states cannot be read: Not(StatusChanged) starts no run for a new object, and
// is rarely what is meant. To leave out updates of the status alone and keep the rest, use
// GenerationChanged, or Or(Types(informer.Listed, informer.Added, informer.Deleted), Not(p)).
func Not(p informer.Predicate) informer.Predicate {
	checked("Not", []informer.Predicate{p})
	return func(c informer.Change) bool { return !p(c) }
}

// checked returns a copy of predicates, none of which is nil: that would show only when the
// first change comes, in a goroutine of the informer.
func checked(of string, predicates []informer.Predicate) []informer.Predicate {
	for _, p := range predicates {
		if p == nil {
			panic("predicate." + of + ": a predicate is nil")
		}
	}
	return slices.Clone(predicates)
}
