package owned

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// ChildOutcome is what has become of a child in a run; in a Plan, what would.
type ChildOutcome string

// The outcomes.
const (
	// Created: there was none.
	Created ChildOutcome = "created"
	// Updated: it has changed.
	Updated ChildOutcome = "updated"
	// Unchanged: it was as it should be.
	Unchanged ChildOutcome = "unchanged"
	// Recreating: it was deleted, because fields were to change that cannot be changed, or because it
	// belonged to a former owner (Config.FormerOwnerGrace). When its deletion is seen, the next run
	// creates it.
	Recreating ChildOutcome = "recreating"
	// Waiting: nothing was done about it yet; Result.Waits says for what it waits.
	Waiting ChildOutcome = "waiting"
	// Terminating: it is being deleted, and not gone; Result.Terminating says what holds it. A
	// child that is desired is created again after that.
	Terminating ChildOutcome = "terminating"
	// Foreign: the object in its place belongs to somebody else, and was left as it is.
	Foreign ChildOutcome = "foreign"
	// Failed: it could not be done; see Result.Err.
	Failed ChildOutcome = "failed"
	// Pruned: it was no longer desired, and was deleted.
	Pruned ChildOutcome = "pruned"
	// Deleted: it was deleted, by Set.Delete, and is gone.
	Deleted ChildOutcome = "deleted"
)

// Deletion is that of an object that is not gone yet.
type Deletion struct {
	// Since is the object's deletionTimestamp: when it would be gone if nothing held it.
	Since time.Time
	// Finalizers hold it. Empty: its grace period does.
	Finalizers []string
	// ForceRemoved are finalizers of others that this run has removed; see Config.ForceRemoveFinalizers.
	ForceRemoved []string
}

// text describes the deletion.
func (d Deletion) text() string {
	text := "it is being deleted since " + d.Since.UTC().Format(time.RFC3339)
	if len(d.Finalizers) > 0 {
		text += ", held by finalizers " + strings.Join(d.Finalizers, ", ")
	}
	if len(d.ForceRemoved) > 0 {
		text += "; released from " + strings.Join(d.ForceRemoved, ", ")
	}
	return text
}

// Result is what has become of one child.
type Result struct {
	Kind schema.GroupVersionKind
	Key  kube.Key
	// Desired is false for what was found and is not, or no longer, among the desired children.
	Desired bool
	// Wave is the child's; of one that is not desired, as its AnnotationWave says.
	Wave    int
	Outcome ChildOutcome
	// Object is the child as the API server or an informer has it; nil when it was not applied.
	Object kube.Object
	// Changed are the fields that have changed, of one that was Updated; in a Plan also the
	// fields of what would be created. The values of Secrets are client.Hidden.
	Changed []client.FieldChange
	// Readiness is the state of a child that was applied.
	Readiness readiness.State
	// Waits says for what the child waits, or in a Plan: would wait.
	Waits string
	// Terminating is set when the object is being deleted.
	Terminating *Deletion
	// Note says more, for people. Empty for most.
	Note string
	// Err is why the child is not as it should be.
	Err error
}

// String names the child: "Deployment shop/web".
func (r Result) String() string { return r.Kind.Kind + " " + r.Key.String() }

// applied reports whether the child has the fields that it should.
func (r Result) applied() bool {
	return r.Err == nil && (r.Outcome == Created || r.Outcome == Updated || r.Outcome == Unchanged)
}

// isReady reports whether the child is as it should be, and ready.
func (r Result) isReady() bool { return r.applied() && r.Readiness.Ready() }

// isPending reports whether the child keeps the report from being ready: one that is desired and not
// ready, and one that is not desired and could not be deleted.
func (r Result) isPending() bool { return r.Err != nil || r.Desired && !r.isReady() }

// pending says what is missing until the child is ready.
func (r Result) pending() string {
	switch {
	case r.Outcome == Waiting:
		return r.String() + " waits: " + r.Waits
	case r.Terminating != nil:
		return r.String() + ": " + r.Terminating.text()
	case r.Err != nil:
		return r.Err.Error() // which names the child
	case r.Outcome == Pruned || r.Outcome == Deleted:
		return r.String() + " is deleted first"
	case r.Outcome == Recreating:
		return r.String() + " is created anew when it is deleted"
	case r.Readiness.Message != "":
		return r.String() + ": " + r.Readiness.Message
	}
	return r.String() + ": " + string(r.Outcome) + ", not ready"
}

// Report is what has become of an owner's children.
type Report struct {
	// Results are the desired children, by wave and otherwise in the order in which they were
	// given, and after them what else was found, the last wave first and otherwise by kind (as in
	// Config.Kinds) and key.
	Results []Result
	// OwnerTerminating is true when nothing was applied because the owner is being deleted.
	OwnerTerminating bool
	// RunAgain is when the owner should be handled again although nothing has changed: when
	// a finalizer may be released, or a former owner's child deleted. Zero: never. Handlers hand it to controller.RequeueAfter.
	RunAgain time.Duration

	// failure is why there are no results.
	failure error
}

// Ready reports whether all desired children are as they should be, and ready, and nothing has failed.
// What is still to be deleted does not count, unless it could not be deleted: see Left.
func (r Report) Ready() bool {
	return !r.OwnerTerminating && r.failure == nil && !slices.ContainsFunc(r.Results, Result.isPending)
}

// maxPending is how many children Pending names.
const maxPending = 5

// Pending says what is missing until the children are ready, in a sentence for a condition's
// message. It is "" when they are, and it does not change while nothing does.
func (r Report) Pending() string {
	switch {
	case r.failure != nil:
		return r.failure.Error()
	case r.OwnerTerminating:
		return "the owner is being deleted"
	}
	var all []string
	for _, result := range r.Results {
		if result.isPending() {
			all = append(all, result.pending())
		}
	}
	return sentence(all)
}

func sentence(all []string) string {
	if more := len(all) - maxPending; more > 0 {
		all = append(all[:maxPending:maxPending], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// Left returns the children that are no longer desired, and are there still. Those that this run
// has pruned are not among them; what holds one of them, the next run says.
func (r Report) left() []Result {
	var left []Result
	for _, result := range r.Results {
		switch result.Outcome {
		case Deleted, Pruned, Foreign:
		default:
			if !result.Desired {
				left = append(left, result)
			}
		}
	}
	return left
}

// AllDeleted reports, after Delete, whether no child of this set is left: the API server returned no object of
// Config.Kinds with the owner's labels in the namespaces of the set, except Foreign ones. Objects that belong
// to the owner without these labels, such as children that another library made, or that Config.FormerChildren
// selects, are not children of the set, and may still exist. It is false for the report of an error.
func (r Report) AllDeleted() bool { return r.failure == nil && len(r.left()) == 0 }

// Remaining says what Left holds, in a sentence for a condition's message; "" for nothing.
func (r Report) Remaining() string {
	if r.failure != nil {
		return r.failure.Error()
	}
	var all []string
	for _, result := range r.left() {
		all = append(all, result.pending())
	}
	return sentence(all)
}

// err joins the errors of the children.
func (r Report) err() error {
	var errs []error
	for _, result := range r.Results {
		if result.Err != nil {
			errs = append(errs, result.Err)
		}
	}
	return errors.Join(errs...)
}

// Object returns a child that was applied, as the API server or an informer has it: for what
// only the cluster knows of it, such as the address of a Service. found is false when the report
// has no such child of type T, or has it not as an object.
func Object[T kube.Object](r Report, key kube.Key) (obj T, found bool) {
	for _, result := range r.Results {
		if typed, ok := result.Object.(T); ok && result.Key == key {
			return typed, true
		}
	}
	return obj, false
}
