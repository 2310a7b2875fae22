package kube

import "strings"

// Change is a set of the parts in which two states of an object differ.
type Change uint16

// The parts of an object.
const (
	// ChangedUID: another object of the same name has taken the place of the old one.
	ChangedUID Change = 1 << iota
	ChangedResourceVersion
	ChangedGeneration
	// ChangedDeletion: the object has got (or lost) a deletionTimestamp.
	ChangedDeletion
	ChangedLabels
	ChangedAnnotations
	ChangedFinalizers
	ChangedOwnerReferences
	// ChangedSpec: anything outside the metadata and the status, whatever it is called
	// (the data of a Secret, for one).
	ChangedSpec
	ChangedStatus

	// ChangedAnything asks for all of them.
	ChangedAnything Change = 1<<iota - 1
)

// Has tells whether c has at least one of parts.
func (c Change) Has(parts Change) bool { return c&parts != 0 }

// String lists the parts, separated by commas; "nothing" for none.
func (c Change) String() string {
	names := [...]string{
		"uid", "resourceVersion", "generation", "deletion", "labels", "annotations", "finalizers", "ownerReferences", "spec", "status",
	}
	var has []string
	for i, name := range names {
		if c&(1<<i) != 0 {
			has = append(has, name)
		}
	}
	if len(has) == 0 {
		return "nothing"
	}
	return strings.Join(has, ",")
}

// MarshalText returns String's text, so that JSON says what changed.
func (c Change) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// changedByServer are parts that every write changes: they say nothing by themselves.
const changedByServer = ChangedResourceVersion | ChangedGeneration

// Summary is String without the parts that every write changes; "metadata" when it comes down
// to those.
func (c Change) Summary() string {
	if c&^changedByServer == 0 {
		return "metadata"
	}
	return (c &^ changedByServer).String()
}
