package predicate

import (
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Labels passes changes of objects that selector matches: in their new state or, for a Deleted, in their last
// state. An Updated passes if the old or the new state matches, so that the handler runs when an object enters or
// leaves the selection. labels.Parse and labels.SelectorFromSet return selectors, and labels.Everything() matches
// all objects. Labels panics if selector is nil.
func Labels(selector labels.Selector) informer.Predicate {
	if selector == nil {
		panic("predicate.Labels: the selector is nil")
	}
	return func(c informer.Change) bool {
		after, err := c.States().New()
		if err != nil || after != nil && selector.Matches(labels.Set(after.Labels())) {
			return true
		}
		before, err := c.States().Old()
		if err != nil || before != nil && selector.Matches(labels.Set(before.Labels())) {
			return true
		}
		return c.Type == informer.Updated && (before == nil || after == nil) // one state is unknown and may match
	}
}

// Types passes changes of these types only.
//
// The types are not a complete history, because informers merge changes: while a watch is interrupted, an object
// that is created and changed becomes an Added, one that is deleted and created again becomes an Updated, and one
// that is created and deleted produces no change.
func Types(types ...informer.ChangeType) informer.Predicate {
	types = slices.Clone(types)
	return func(c informer.Change) bool { return slices.Contains(types, c.Type) }
}

// Func passes the changes for which passes returns true. before and after are the decoded states: before is nil for
// Listed and Added, after is nil for Deleted. Either may be nil for an Updated of an object that several parts of
// a combined Retriever have. passes may change both. It is called for every change, also if the UIDs differ. A change
// with states that cannot be decoded as T passes without a call.
//
// T must be the type of the informer's objects. The objects of a metadata-only informer (source.Owned has one)
// contain metadata only, for every T. Objects in protobuf cannot be decoded as unstructured: all their changes
// pass.
//
// Decoding both states is expensive: put a cheaper predicate first in an And. Func panics if passes is nil.
func Func[T kube.Object](passes func(before, after T) bool) informer.Predicate {
	if passes == nil {
		panic("predicate.Func: the function is nil")
	}
	return func(c informer.Change) bool {
		before, after, err := informer.Decode[T](c)
		return err != nil || passes(before, after)
	}
}

// And passes a change that all predicates pass. It calls them in order and stops at the first one that drops the
// change. Without predicates it passes every change.
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

// Or passes a change that at least one predicate passes. It calls them in order and stops at the first one that
// passes the change. Without predicates it drops every change.
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

// Not passes the changes that p drops, and drops those that p passes.
//
// Not of a Changed predicate also drops every Listed, Added and Deleted, and every change that cannot be decoded:
// with Not(StatusChanged) a new object starts no run, which is rarely intended. To drop only updates of the status,
// use GenerationChanged, or Or(Types(informer.Listed, informer.Added, informer.Deleted), Not(p)).
func Not(p informer.Predicate) informer.Predicate {
	checked("Not", []informer.Predicate{p})
	return func(c informer.Change) bool { return !p(c) }
}

// checked returns a copy of predicates. It panics if one is nil: otherwise the panic would happen at the first
// change, in a goroutine of the informer.
func checked(function string, predicates []informer.Predicate) []informer.Predicate {
	for _, p := range predicates {
		if p == nil {
			panic("predicate." + function + ": a predicate is nil")
		}
	}
	return slices.Clone(predicates)
}
