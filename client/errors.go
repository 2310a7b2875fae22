package client

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Errors about an object that has changed since the caller read it. Errors that wrap them also wrap an error of
// k8s.io/apimachinery/pkg/api/errors: "not found" for ErrGone, "conflict" for ErrReplaced and ErrChanged,
// "already exists" for ErrExists.
var (
	// ErrGone means that the object does not exist.
	ErrGone = errors.New("the object is gone")
	// ErrReplaced means that the object was deleted, and another one with the same name created: the uid
	// differs.
	ErrReplaced = errors.New("the object was replaced by another one of its name")
	// ErrChanged means that the object was written since it was read: the resourceVersion differs.
	ErrChanged = errors.New("the object has changed")
	// ErrExists means that the object was not created because one with the same name exists. The caller must
	// read it from the API server to find its owner: the caller's own request may have created it, if its
	// response was lost.
	ErrExists = errors.New("an object of that name exists already")
)

// ErrNoNamespace means that the namespace of a new object does not exist. The API server reports "not found" for
// it too, but means the namespace.
var ErrNoNamespace = errors.New("its namespace does not exist")

// ErrTerminating means that an object is being deleted, so that nothing must be created for it.
// EnsureNamespace, finalizer.Add, ownerref.Adopt and owned.Set.Apply return it.
var ErrTerminating = errors.New("it is being deleted")

// errElsewhere means that the API server did not find something other than the object of the request. A caller
// that treated it as ErrGone would leave the object behind.
var errElsewhere = errors.New("not the object but something else was not found")

// explain adds to an error of the API server its meaning for the request.
func (c *Client) explain(ctx context.Context, r *Request, err error) error {
	cluster := c.config.Cluster
	unknownPath := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case !apierrors.IsNotFound(err) && r.Verb.IsWrite():
		return asTooLarge(err)
	case !apierrors.IsNotFound(err):
		return err
	case missesNamespace(r, err):
		return fmt.Errorf("%w: %w", ErrNoNamespace, err)
	case r.Subresource != "" && !c.hasSubresource(ctx, r):
		return fmt.Errorf("its kind has no %s subresource: %w: %w", r.Subresource, kube.ErrNotServed, err)
	case unknownPath, r.isCollection() && isAbout(r, err):
		// The API server does not serve the kind: its definition was removed. Collections exist as long as their kind.
		cluster.Forget(r.Kind.GroupVersion())
		return fmt.Errorf("%w: %w", kube.ErrNotServed, err)
	case !isAbout(r, err):
		return fmt.Errorf("%w: %w", errElsewhere, err)
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}

// hasSubresource reports whether the kind has the subresource. For custom resources the API server returns the
// same response if the kind has no such subresource and if the object does not exist; so hasSubresource reads the
// discovery of the kind again, unless the subresource is known.
func (c *Client) hasSubresource(ctx context.Context, r *Request) bool {
	cluster := c.config.Cluster
	if _, known := cluster.SubresourceKind(r.Resource, r.Subresource); known {
		return true
	}
	cluster.Forget(r.Kind.GroupVersion())
	if _, err := cluster.Resource(ctx, r.Kind); err != nil {
		return true // unknown: then the response means the object
	}
	_, known := cluster.SubresourceKind(r.Resource, r.Subresource)
	return known
}

// missesNamespace reports whether err is about the missing namespace of a new object.
func missesNamespace(r *Request, err error) bool {
	details := detailsOf(err)
	return details != nil && details.Group == "" && details.Kind == "namespaces" && r.Key.Namespace != "" &&
		details.Name == r.Key.Namespace
}

// isAbout reports whether a "not found" is about the object of the request. A webhook may reject a write, also
// a deletion, with the same response because it does not find something else. A created object cannot be missing,
// and a request to a subresource may name other objects, such as the Pod of a token. The API server itself
// always names the missing object.
func isAbout(r *Request, err error) bool {
	if !r.Verb.IsWrite() && r.Subresource == "" {
		return true
	}
	if r.Verb == VerbCreate && r.Subresource == "" {
		return false
	}
	details := detailsOf(err)
	if details == nil {
		return false
	}
	resource, _, _ := strings.Cut(details.Kind, "/") // as in "deployments/scale"
	return (resource == "" || resource == r.Resource.Resource) && (details.Name == "" || details.Name == r.Key.Name)
}

func detailsOf(err error) *metav1.StatusDetails {
	return statusOf(err).Details
}

// statusOf returns the Status that err wraps as the response of the API server, or an empty one.
func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}
	}
	return status.Status()
}

// asChanged adds ErrChanged to a conflict. It ignores conflicts over fields of other managers, because the
// object may not have changed.
func asChanged(err error) error {
	if !apierrors.IsConflict(err) || errors.Is(err, ErrChanged) || errors.Is(err, ErrReplaced) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrChanged, err)
}
