package predicate

import (
	"slices"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

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
// Decoding both states is expensive: call a cheaper predicate first, or pass it to the source before this one. Func
// panics if passes is nil.
func Func[T kube.Object](passes func(before, after T) bool) informer.Predicate {
	if passes == nil {
		panic("predicate.Func: the function is nil")
	}
	return func(c informer.Change) bool {
		before, after, err := informer.Decode[T](c)
		return err != nil || passes(before, after)
	}
}

// Or passes a change that at least one predicate passes. It calls them in order and stops at the first one that
// passes the change. Without predicates it drops every change.
func Or(predicates ...informer.Predicate) informer.Predicate {
	for _, p := range predicates {
		if p == nil { // otherwise the panic would happen at the first change, in a goroutine of the informer
			panic("predicate.Or: a predicate is nil")
		}
	}
	predicates = slices.Clone(predicates)
	return func(c informer.Change) bool {
		for _, passes := range predicates {
			if passes(c) {
				return true
			}
		}
		return false
	}
}
