// Package ownerref makes, reads and ends owner references: what tells Kubernetes' garbage
// collector, and people, whose an object is.
//
// An owner reference names an owner by its uid, and leads no further than Kubernetes lets it:
// the owner lives in the namespace of what it owns, or in none. Everything here checks that
// against how the cluster serves both kinds, before any request; where no reference is possible,
// the error is ErrScope, and package owned shows how labels can do instead.
//
// SetController, Set, Remove and RemoveController change the child in memory, for callers who
// write it then: Apply and Create send what they have set. Adopt and Release write by
// themselves, one small patch each, and nothing when it is so already.
package ownerref
