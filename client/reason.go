package client

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/retry"
)

// The results of failureOf.
const (
	objectMissing = "missing"
	otherFailure  = "other"
)

// IgnoreNotFound returns nil for an error that only means that the object does not exist, and any other error
// unchanged: also a missing namespace (ErrNoNamespace), a kind that is not served, and the rejection by a
// webhook that did not find something.
func IgnoreNotFound(err error) error {
	failures := retryrules.Failures(err, failureOf)
	if slices.ContainsFunc(failures, func(failure string) bool { return failure != objectMissing }) {
		return err
	}
	return nil
}

// failureOf reports what err itself means, without the errors that it wraps; "": unknown. class is its class in package
// retry.
func failureOf(err error, class retry.Class) string {
	switch err {
	case ErrGone: //nolint:errorlint // retryrules.Failures unwraps
		return objectMissing
	case ErrNoNamespace, errElsewhere, kube.ErrNotServed:
		return otherFailure
	}
	switch {
	case class == "":
		return ""
	case apierrors.IsNotFound(err):
		return objectMissing
	}
	return otherFailure
}
