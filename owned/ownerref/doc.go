// Package ownerref sets and removes owner references, by which Kubernetes' garbage collector finds the
// owners of an object.
//
// An owner reference identifies the owner by its uid. Kubernetes requires that the owner is cluster-scoped or
// in the namespace of the child. The functions of this package check that against the scopes of both kinds
// before they write, and return ErrScope if no reference is possible. Package owned then uses labels.
//
// SetController, Set and Remove change the child in memory only: the caller writes it, for example
// with client.Apply or client.Create. SetControllerInMemory needs no client. Adopt and Release write a small patch
// themselves, and make no request if nothing changes.
package ownerref
