package finalizer

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Report describes what blocks the deletion of an object.
type Report struct {
	// Since is the deletionTimestamp of the object: the time of the deletion plus the grace period. Zero if the object
	// is not being deleted.
	Since time.Time
	// Finalizers are those of the object, which block the deletion. Empty if the object is not being deleted.
	Finalizers []string
	// Step is the first step of the Finalizer's teardown that is not done, and Done are those that are. Empty if its
	// entry is not in Finalizers.
	Step string
	Done []string
}

// Blocking returns a report about obj, with the progress of the teardown.
func (f *Finalizer[T]) Blocking(obj T) Report {
	deleted := obj.GetDeletionTimestamp()
	if deleted == nil {
		return Report{}
	}
	r := Report{Since: deleted.Time, Finalizers: slices.Clone(obj.GetFinalizers())}
	if !has(obj, f.config.Name) {
		return r
	}
	r.Done = f.done(obj)
	if remaining := f.remaining(r.Done); len(remaining) > 0 {
		r.Step = remaining[0].Name
	}
	return r
}

// String describes the report for people. It does not change while the state does not.
func (r Report) String() string {
	if r.Since.IsZero() {
		return "it is not being deleted"
	}
	since := "it is being deleted since " + r.Since.UTC().Format(time.RFC3339)
	switch {
	case len(r.Finalizers) == 0:
		return since + ", and has no finalizers"
	case r.Step != "" && len(r.Done) > 0:
		return fmt.Sprintf("%s, and waits for %s; the teardown is at step %q (done: %s)", since, r.waitsFor(), r.Step,
			strings.Join(r.Done, ", "))
	case r.Step != "":
		return fmt.Sprintf("%s, and waits for %s; the teardown is at step %q", since, r.waitsFor(), r.Step)
	}
	return fmt.Sprintf("%s, and waits for %s", since, r.waitsFor())
}

func (r Report) waitsFor() string {
	if len(r.Finalizers) == 1 {
		return "the finalizer " + r.Finalizers[0]
	}
	return "the finalizers " + strings.Join(r.Finalizers, ", ")
}
