package finalizer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Report says what blocks an object's deletion, and for how long.
type Report struct {
	// Since is when the object should have gone, by its deletionTimestamp (the deletion plus the
	// grace period), and For how long ago that was. Zero when it is not being deleted.
	Since time.Time
	For   time.Duration
	// Finalizers are what the object waits for.
	Finalizers []string

	// The following are known to a Finalizer's Blocking only.

	// Own is true when the Finalizer's own entry is among them.
	Own bool
	// Step is the first step of the Finalizer's teardown that is not done, and Done are those that
	// are. Empty when not Own.
	Step string
	Done []string
}

// Blocking reports what blocks the deletion of obj at the time now.
func Blocking(obj metav1.Object, now time.Time) Report {
	deleted := obj.GetDeletionTimestamp()
	if deleted == nil {
		return Report{}
	}
	return Report{Since: deleted.Time, For: max(now.Sub(deleted.Time), 0), Finalizers: slices.Clone(obj.GetFinalizers())}
}

// Blocking reports what blocks the deletion of obj at the time now, with the teardown's progress.
func (f *Finalizer[T]) Blocking(obj T, now time.Time) Report {
	r := Blocking(obj, now)
	if r.Own = slices.Contains(r.Finalizers, f.config.Name); !r.Own {
		return r
	}
	r.Done = f.done(obj)
	if left := f.left(r.Done); len(left) > 0 {
		r.Step = left[0].Name
	}
	return r
}

// Blocked reports whether the object is being deleted, and finalizers keep it.
func (r Report) Blocked() bool { return len(r.Finalizers) > 0 && !r.Since.IsZero() }

// String returns a sentence for people. It is the same until something changes: it says since
// when, and not for how long.
func (r Report) String() string {
	if r.Since.IsZero() {
		return "it is not being deleted"
	}
	since := "it is being deleted since " + r.Since.UTC().Format(time.RFC3339)
	switch {
	case len(r.Finalizers) == 0:
		return since + ", and no finalizer keeps it"
	case r.Step != "" && len(r.Done) > 0:
		return fmt.Sprintf("%s, and waits for %s; the teardown is at step %q (done: %s)", since, r.waitsFor(), r.Step, strings.Join(r.Done, ", "))
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
