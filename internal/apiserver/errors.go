package apiserver

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// conflictMessage is the message of an update of a stale version.
const conflictMessage = "the object has been modified; please apply your changes to the latest version and try again"

func statusError(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	}}
}

// statusOf returns the Status that is sent for an error. Errors that are not for the client get 500, as in the real
// server.
func statusOf(err error) *metav1.Status {
	var apiStatus apierrors.APIStatus
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if errors.As(err, &apiStatus) {
		status = apiStatus.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	return &status
}

// invalidOptions returns the error of invalid query parameters or delete options, or nil.
func invalidOptions(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: kind}, "", errs)
}

// undecodable returns the error of a body that is not an object of the kind.
func undecodable(kind *Kind, actual schema.GroupVersionKind, err error, body []byte) error {
	if actual.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", actual.Kind,
			actual.Version, kind.Kind, err))
	}
	const shown = 30
	summary := string(body)
	switch {
	case len(body) == 0:
		summary = "<empty>"
	case body[0] != '{':
		summary = fmt.Sprintf("%x", body[:min(shown, len(body))])
	case len(body) > shown:
		summary = summary[:shown]
	}
	if len(body) > shown {
		summary += " ..."
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)",
		kind.Kind, err, summary))
}

// storedPrecondition returns the error of a write whose precondition does not hold when it is stored. It contains the
// key in etcd.
func (r *request) storedPrecondition(namespace, name string, problem error, dryRun bool) error {
	key := "/registry/"
	if dryRun {
		key = "/"
	}
	if r.kind.custom() {
		key += r.kind.Group + "/"
	}
	folder := r.kind.Resource
	if r.kind.Group == "" && folder == "services" {
		folder = "services/specs"
	}
	key += folder + "/" + keyOf(namespace, name)
	return apierrors.NewConflict(r.kind.groupResource(), name,
		fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: %w", key,
			problem))
}

// precondition describes a precondition that does not hold.
func precondition(what string, want, have any) error {
	//nolint:staticcheck // the real server's text
	return fmt.Errorf("Precondition failed: %s in precondition: %v, %s in object meta: %v", what, want, what, have)
}

// strictErrors returns the single errors in a StrictDecodingError.
func strictErrors(err error) []error {
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return strict.Errors()
	}
	return nil
}
