package owned

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// ForeignError says that the object in the place of a child belongs to somebody else. It was
// left as it is. When it goes, the next retry of the owner sees that: informers of the label LabelSet
// do not show it, so nothing else wakes the owner. Retries come as for a missing permission
// (retry.Forbidden): after 1 s at first, every 5 min in the end.
type ForeignError struct {
	Kind schema.GroupVersionKind
	Key  kube.Key
	// Holder is whose it is: "Deployment web (uid 1234)"; "nobody".
	Holder string
	// Orphan is true when it is nobody's, so that Config.AdoptOrphans would take it over.
	Orphan bool
	// Former is true when its controller is an earlier object of the owner's kind and name, which is
	// gone: the garbage collector should delete it, and then the child is created. If it was a child
	// of the same set, and has no other owner, Apply deletes it after Config.FormerOwnerGrace.
	Former bool

	terminating *Deletion // of a former owner's child that is being deleted
	deletedAt   time.Time // when Apply deletes it; zero: never
}

// Error implements error.
func (e *ForeignError) Error() string {
	text := fmt.Sprintf("%s %s is there already, and belongs to %s", e.Kind.Kind, e.Key, e.Holder)
	if e.Former {
		text += ", an earlier object of that name that is gone: "
		switch {
		case e.terminating != nil:
			return text + e.terminating.text() + ", and the child is created after that"
		case !e.deletedAt.IsZero():
			return text + "the garbage collector should delete it; if it is still there, it is deleted at " +
				e.deletedAt.UTC().Format(time.RFC3339) + ", and the child is created after that"
		}
		return text + "the garbage collector should delete it, and the child is created after that; if it stays, delete it"
	}
	if e.Orphan {
		return text + ": delete it, or set AdoptOrphans to take it over"
	}
	return text + ": it is left as it is; use another name"
}

// Persistent is what retry.Persistent asks: somebody has to delete the object, or to change the owner.
// The object of an earlier owner goes by itself.
func (e *ForeignError) Persistent() bool { return !e.Former }

// RetryClass implements retry.Classed. Nothing tells when the object goes, so it is looked for
// again as often as a missing permission.
func (e *ForeignError) RetryClass() retry.Class {
	if e.Former {
		return retry.Transient
	}
	return retry.Forbidden
}

// ImmutableError says that fields of a child are to change which cannot be changed.
type ImmutableError struct {
	Kind schema.GroupVersionKind
	Key  kube.Key
	// Fields are their paths, as far as the API server names them.
	Fields []string
	// Err is what it answered.
	Err error
}

// Error implements error.
func (e *ImmutableError) Error() string {
	return fmt.Sprintf("%s %s: %s cannot be changed: set Recreate of the child to have it deleted and created anew: %s",
		e.Kind.Kind, e.Key, e.fields(), e.Err)
}

func (e *ImmutableError) fields() string {
	if len(e.Fields) == 0 {
		return "what has changed"
	}
	return strings.Join(e.Fields, ", ")
}

// Unwrap gives errors.Is and errors.As the API server's answer.
func (e *ImmutableError) Unwrap() error { return e.Err }

// immutableFields returns the fields for which an update was refused because they cannot be
// changed. ok is false when there is any other reason too: then a new object would be refused
// as well, and the old one must stay.
func immutableFields(err error) (fields []string, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return nil, false
	}
	causes := status.Status().Details.Causes
	for _, cause := range causes {
		if !saysImmutable(cause) {
			return nil, false
		}
		if cause.Field != "" && !slices.Contains(fields, cause.Field) {
			fields = append(fields, cause.Field)
		}
	}
	return fields, len(causes) > 0
}

// saysImmutable reads the text of a cause, because the API has no code for it. The texts are
// those of k8s.io/kubernetes/pkg/apis/*/validation, and of the rules that people write in
// CustomResourceDefinitions. A value in the text may say anything and must not be read: it
// stands before the last colon, in causes of the type Invalid; those of Forbidden have none,
// but some show the difference in further lines.
func saysImmutable(cause metav1.StatusCause) bool {
	text := cause.Message
	switch cause.Type {
	case metav1.CauseTypeFieldValueInvalid:
		text = text[strings.LastIndex(text, ": ")+1:]
	case metav1.CauseTypeForbidden:
		text, _, _ = strings.Cut(text, "\n")
	default:
		return false
	}
	for _, phrase := range []string{
		"immutable", "may not change", "may not be changed", "cannot change", "cannot be changed", "can't be changed",
		"updates to ", "may not be updated", "cannot be updated",
	} {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
