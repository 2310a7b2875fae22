package owned

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// ForeignError says that the object in the place of a child belongs to somebody else. It was
// left as it is. When it goes, the next retry of the owner sees that: informers of the label LabelSet
// do not show it, so nothing else wakes the owner.
type ForeignError struct {
	Kind schema.GroupVersionKind
	Key  kube.Key
	// Holder is whose it is: "Deployment web (uid 1234)"; "nobody".
	Holder string
	// Orphan is true when it is nobody's, so that Config.AdoptOrphans would take it over.
	Orphan bool
	// Former is true when its controller is an earlier object of the owner's kind and name: the
	// garbage collector deletes it, and then there is room for the child.
	Former bool
}

// Error implements error.
func (e *ForeignError) Error() string {
	text := fmt.Sprintf("%s %s is there already, and belongs to %s", e.Kind.Kind, e.Key, e.Holder)
	if e.Former {
		return text + ", an earlier object of that name: the garbage collector deletes it, and the child comes after that"
	}
	if e.Orphan {
		return text + ": delete it, or set AdoptOrphans to take it over"
	}
	return text + ": it is left as it is; use another name"
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
