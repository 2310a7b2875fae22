package kube

import "strings"

// ChangedParts is a set of the parts in which two states of an object differ.
type ChangedParts uint16

// The parts of an object.
const (
	// ChangedUID: the object was replaced by another one with the same name.
	ChangedUID ChangedParts = 1 << iota
	ChangedResourceVersion
	ChangedGeneration
	// ChangedDeletion: the deletionTimestamp was set (or removed).
	ChangedDeletion
	ChangedLabels
	ChangedAnnotations
	ChangedFinalizers
	ChangedOwnerReferences
	// ChangedSpec: anything outside of metadata and status, such as the spec, or the data of a Secret.
	ChangedSpec
	ChangedStatus

	// ChangedAnything is the set of all parts.
	ChangedAnything ChangedParts = 1<<iota - 1
)

// Has reports whether c contains at least one of parts.
func (c ChangedParts) Has(parts ChangedParts) bool { return c&parts != 0 }

// String returns the names of the parts, separated by commas, or "nothing".
func (c ChangedParts) String() string {
	names := [...]string{
		"uid", "resourceVersion", "generation", "deletion", "labels", "annotations", "finalizers", "ownerReferences",
		"spec", "status",
	}
	var parts []string
	for i, name := range names {
		if c&(1<<i) != 0 {
			parts = append(parts, name)
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ",")
}

// MarshalText returns the text of String.
func (c ChangedParts) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// changedByServer are the parts that every write changes, so they contain no information on their own.
const changedByServer = ChangedResourceVersion | ChangedGeneration

// Summary returns the text of String without the parts that every write changes, or "metadata" if no other part
// changed.
func (c ChangedParts) Summary() string {
	if c&^changedByServer == 0 {
		return "metadata"
	}
	return (c &^ changedByServer).String()
}
