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

// ChildOutcome is the result of a run for a child; in a plan, the expected result. Other values than the constants are
// for people: Err, Waits, Readiness, and Report.Pending and Report.Remaining describe them.
type ChildOutcome string

// Outcomes.
const (
	// Created: the child did not exist, and was created.
	Created = ChildOutcome(client.Created)
	// Updated: the child was changed.
	Updated = ChildOutcome(client.Updated)
	// Unchanged: the child was in its desired state.
	Unchanged = ChildOutcome(client.Unchanged)
	// Deleted: the child was deleted. After Set.Delete it is gone; after Apply its finalizers may keep it.
	Deleted ChildOutcome = "deleted"

	// The child was deleted because immutable fields must change, or because it belonged to a former owner
	// (Former.OwnerGrace). The run after its deletion creates it.
	outcomeRecreating ChildOutcome = "recreating"
	// The child was not changed in this run; see Result.Waits.
	outcomeWaiting ChildOutcome = "waiting"
	// The child is being deleted and still exists; see Result.terminating. A desired child is created when it is gone.
	outcomeTerminating ChildOutcome = "terminating"
	// The object with the name of the child belongs to another owner, and was not changed.
	outcomeForeign ChildOutcome = "foreign"
	// See Result.Err.
	outcomeFailed ChildOutcome = "failed"
)

// termination describes the deletion of an object that still exists.
type termination struct {
	// since is the deletionTimestamp of the object: the time of the deletion plus the grace period.
	since time.Time
	// finalizers block the deletion. Without finalizers, the object exists until its grace period ends.
	finalizers []string
	// forceRemoved are finalizers of other controllers that this run has removed; see Config.ForceRemoveFinalizers.
	forceRemoved []string
}

// text describes the deletion for messages.
func (d termination) text() string {
	text := "it is being deleted since " + d.since.UTC().Format(time.RFC3339)
	if len(d.finalizers) > 0 {
		text += ", held by finalizers " + strings.Join(d.finalizers, ", ")
	}
	if len(d.forceRemoved) > 0 {
		text += "; force-removed finalizers " + strings.Join(d.forceRemoved, ", ")
	}
	return text
}

// Result is the result for one child.
type Result struct {
	Kind schema.GroupVersionKind
	Key  kube.Key
	// Desired is false for an existing object that is not, or not anymore, a desired child.
	Desired bool
	Outcome ChildOutcome
	// Object is the child as it is in the API server or an informer; nil if it was not applied.
	Object kube.Object
	// Changed are the changed fields of an Updated child; in a Plan also the fields of a Created one. Values of Secrets
	// are client.Hidden.
	Changed []client.FieldChange
	// Readiness is the state of an applied child.
	Readiness readiness.State
	// Waits is the reason why the child waits; in a Plan, would wait.
	Waits string
	// Note is additional information for people. Most children have no note.
	Note string
	// Err is the reason why the child is not in its desired state.
	Err error

	wave        int          // of the child; for an undesired one, that of its annotation
	terminating *termination // if the object is being deleted
}

// String names the child: "Deployment shop/web".
func (r Result) String() string { return r.Kind.Kind + " " + r.Key.String() }

// applied reports whether the child has the desired fields.
func (r Result) applied() bool {
	return r.Err == nil && (r.Outcome == Created || r.Outcome == Updated || r.Outcome == Unchanged)
}

// isReady reports whether the child is in its desired state and ready.
func (r Result) isReady() bool { return r.applied() && r.Readiness.Ready() }

// isPending reports whether the child keeps the report from being ready: a desired one that is not ready, or an
// undesired one that could not be deleted.
func (r Result) isPending() bool { return r.Err != nil || r.Desired && !r.isReady() }

// pending describes why the child is not ready, or not gone.
func (r Result) pending() string {
	switch {
	case r.Outcome == outcomeWaiting:
		return r.String() + " waits: " + r.Waits
	case r.terminating != nil:
		return r.String() + ": " + r.terminating.text()
	case r.Err != nil:
		return r.Err.Error() // contains the child's name
	case r.Outcome == Deleted:
		return r.String() + " is deleted first"
	case r.Outcome == outcomeRecreating:
		return r.String() + " is created again when it is deleted"
	case r.Readiness.Message != "":
		return r.String() + ": " + r.Readiness.Message
	}
	return r.String() + ": " + string(r.Outcome) + ", not ready"
}

// Report is the result of a call for an owner: of Apply, Delete or Plan.
type Report struct {
	// Results are the desired children, by wave and otherwise in the given order, and after them the other existing
	// children, the highest wave first and otherwise by kind (in the order of Config.Kinds) and key.
	Results []Result
	// OwnerTerminating is true if Apply did nothing because the owner is being deleted.
	OwnerTerminating bool
	// RunAgain is the time after which the owner should be handled again without any change, to force-remove a
	// finalizer or to delete a child of a former owner. Handlers pass it to controller.RequeueAfter. Zero: not needed.
	RunAgain time.Duration

	failure error  // the reason why Results is empty
	owner   string // "WebApp shop/web"
}

// Ready reports whether all desired children are in their desired state and ready, and nothing has failed. Undesired
// children that still exist do not count, unless their deletion failed: see Remaining.
func (r Report) Ready() bool {
	return !r.OwnerTerminating && r.failure == nil && !slices.ContainsFunc(r.Results, Result.isPending)
}

// maxPending is the number of children that Pending and Remaining describe.
const maxPending = 5

// Pending describes why the children are not Ready, for the message of a condition; "" if they are. The text does not
// change while their state does not.
func (r Report) Pending() string {
	switch {
	case r.failure != nil:
		return r.failure.Error()
	case r.OwnerTerminating:
		return "the owner is being deleted"
	}
	var texts []string
	for _, result := range r.Results {
		if result.isPending() {
			texts = append(texts, result.pending())
		}
	}
	return joinFirst(texts)
}

func joinFirst(texts []string) string {
	if more := len(texts) - maxPending; more > 0 {
		texts = append(texts[:maxPending:maxPending], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, "; ")
}

// remaining returns the undesired children that still exist. Those that this run has deleted are not among them: if
// their deletion is blocked, the next run reports it.
func (r Report) remaining() []Result {
	var remaining []Result
	for _, result := range r.Results {
		switch result.Outcome {
		case Deleted, outcomeForeign:
		default:
			if !result.Desired {
				remaining = append(remaining, result)
			}
		}
	}
	return remaining
}

// Remaining describes the undesired children that still exist, for the message of a condition. After Delete, "" means
// that no child of this set is left: the API server returned no object of Config.Kinds with the owner's labels in the
// namespaces of the set, except those of other owners. It ignores objects without these labels, such as children that
// another library created or that Former.Children selects. The report of an error is never "".
func (r Report) Remaining() string {
	if r.failure != nil {
		return r.failure.Error()
	}
	var texts []string
	for _, result := range r.remaining() {
		texts = append(texts, result.pending())
	}
	return joinFirst(texts)
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

// Object returns an applied child as it is in the API server or an informer, for fields that only the cluster sets,
// such as the address of a Service. found is false if the report has no applied child of type T with this key.
func Object[T kube.Object](r Report, key kube.Key) (obj T, found bool) {
	for _, result := range r.Results {
		if typed, ok := result.Object.(T); ok && result.Key == key {
			return typed, true
		}
	}
	return obj, false
}
