package owned

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// ForeignError reports that the object with the name of a child belongs to another owner. The Set did not change it.
//
// Informers of the label LabelSet do not have the object, so its deletion does not enqueue the owner: the next retry
// detects it. Retries are those of a missing permission (retry.Forbidden): the first after 1 s, later every 5 min.
type ForeignError struct {
	kind schema.GroupVersionKind
	key  kube.Key
	// Holder describes the current owner: "Deployment web (uid 1234)", or "no owner".
	Holder string
	// Orphan is true if the object has no owner, so that Config.AdoptOrphans would take it over.
	Orphan bool
	// Former is true if the controller of the object is a former owner: an earlier object of the owner's kind and name,
	// which is gone. The garbage collector should delete the object; then the child is created. If it was a child of
	// this set and has no other owner, Apply deletes it after Former.OwnerGrace.
	Former bool

	terminating *termination // if a child of a former owner is being deleted
	deletedAt   time.Time    // when Apply deletes it; zero: never
}

// Error implements error.
func (e *ForeignError) Error() string {
	text := fmt.Sprintf("%s %s already exists, and belongs to %s", e.kind.Kind, e.key, e.Holder)
	if e.Former {
		text += ", an earlier object of that name that is gone: "
		switch {
		case e.terminating != nil:
			return text + e.terminating.text() + "; the child is created after that"
		case !e.deletedAt.IsZero():
			return text + "the garbage collector should delete it; otherwise it is deleted at " +
				e.deletedAt.UTC().Format(time.RFC3339) + "; the child is created after that"
		}
		return text + "the garbage collector should delete it; the child is created after that; if it stays, delete it"
	}
	if e.Orphan {
		return text + ": delete it, or set AdoptOrphans to take it over"
	}
	return text + ": it was not changed; use another name"
}

// Persistent reports that a retry alone does not help: the error stays until a person deletes the object or changes
// the owner, unless it belongs to a former owner.
func (e *ForeignError) Persistent() bool { return !e.Former }

// RetryClass determines the class for package retry.
func (e *ForeignError) RetryClass() retry.Class {
	if e.Former {
		return retry.Transient
	}
	return retry.Forbidden
}

// immutableError reports that the desired state changes immutable fields of a child.
type immutableError struct {
	child  string   // "Job shop/web"
	fields []string // the paths of the fields, if they are known
	err    error    // of the API server
}

// Error implements error.
func (e *immutableError) Error() string {
	return fmt.Sprintf("%s: %s cannot be changed: set Recreate of the child to delete it and create it again "+
		"(its dependents stay with Propagation: DeletePropagationOrphan): %s",
		e.child, e.changed(), e.err)
}

// changed names the fields.
func (e *immutableError) changed() string {
	if len(e.fields) == 0 {
		return "an immutable field"
	}
	return strings.Join(e.fields, ", ")
}

// Unwrap returns the error of the API server.
func (e *immutableError) Unwrap() error { return e.err }
