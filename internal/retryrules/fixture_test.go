package retryrules

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func pods() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

func conflict() error { return apierrors.NewConflict(pods(), "web", errors.New("object has changed")) }

func invalid(fields ...string) error {
	var list field.ErrorList
	for _, f := range fields {
		list = append(list, field.Invalid(field.NewPath(f), "x", "no"))
	}
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", list)
}

func response(code int, retryAfter int) error {
	return apierrors.NewGenericServerResponse(code, "PUT", pods(), "web", "", retryAfter, true)
}

// applyConflict is the response to an apply of fields that another manager owns.
func applyConflict(fields ...string) error {
	var causes []metav1.StatusCause
	for _, f := range fields {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: f})
	}
	return apierrors.NewApplyConflict(causes, "conflict with \"kubectl\"")
}

// endless wraps itself.
type endless struct{}

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return e }

type busy time.Duration

func (busy) Error() string               { return "busy" }
func (b busy) RetryAfter() time.Duration { return time.Duration(b) }
