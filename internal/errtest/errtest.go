// Package errtest has errors of the API server for tests, and expectations of errors.
package errtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Pods is the resource of the errors.
func Pods() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

// Conflict is the response to an update of a stale object.
func Conflict() error {
	return apierrors.NewConflict(Pods(), "web", errors.New("object has changed"))
}

// Invalid is the response to an object with invalid fields.
func Invalid(fields ...string) error {
	var list field.ErrorList
	for _, f := range fields {
		list = append(list, field.Invalid(field.NewPath(f), "x", "no"))
	}
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "web", list)
}

// Response is a response without a Status, for example of a proxy. retryAfter is in seconds.
func Response(code, retryAfter int) error {
	return apierrors.NewGenericServerResponse(code, "PUT", Pods(), "web", "", retryAfter, true)
}

// ApplyConflict is the response to an apply of fields that another manager owns.
func ApplyConflict(fields ...string) error {
	var causes []metav1.StatusCause
	for _, f := range fields {
		causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldManagerConflict, Field: f})
	}
	return apierrors.NewApplyConflict(causes, "conflict with \"kubectl\"")
}

// NamespaceTerminating is the response to the creation of an object in a namespace that is being deleted.
func NamespaceTerminating(namespace string) error {
	err := apierrors.NewForbidden(Pods(), "web",
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", namespace),
		Field: "metadata.namespace",
	}}
	return err
}

// Expect fails the test unless err has each part once. Without parts, err must be nil.
func Expect(tb testing.TB, err error, parts ...string) {
	tb.Helper()
	if len(parts) == 0 && err != nil {
		tb.Errorf("unexpected error: %v", err)
	}
	for _, part := range parts {
		if err == nil || strings.Count(err.Error(), part) != 1 {
			tb.Errorf("the error is %v; want %q in it, once", err, part)
		}
	}
}
