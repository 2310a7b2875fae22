// Package patchtest reads the results of JSON patches that test the state of an object.
package patchtest

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Failed reports whether the API server rejected a JSON patch because a test in it failed, or because it changes a
// missing field. (An object that is invalid after the patch is rejected with causes.) A caller that knows that only a
// test can have failed reads the object and tries again, or returns Changed.
func Failed(err error) bool {
	var response apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &response) {
		return false
	}
	details := response.Status().Details
	return details == nil || len(details.Causes) == 0 ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// Changed returns client.ErrChanged, for which apierrors.IsConflict is true, for a write that failed with why because
// obj has changed. The API server reports a failed test as invalid, and invalid requests are not retried soon. So
// Changed keeps only the text of why, unless why is a conflict itself.
func Changed(ctx context.Context, c *client.Client, obj kube.Object, why error) error {
	switch {
	case errors.Is(why, client.ErrChanged), errors.Is(why, client.ErrReplaced):
		return why
	case apierrors.IsConflict(why):
		return fmt.Errorf("%w: %w", client.ErrChanged, why)
	}
	var resource schema.GroupResource // without it, the error still names the object
	if kind, err := c.Cluster().KindOf(obj); err == nil {
		resource = schema.GroupResource{Group: kind.Group, Resource: kind.Kind}
		if served, err := c.Cluster().Resource(ctx, kind); err == nil {
			resource = served.GroupResource()
		}
	}
	conflict := apierrors.NewConflict(resource, obj.GetName(), errors.New(why.Error()))
	return fmt.Errorf("%w: %w", client.ErrChanged, conflict)
}
