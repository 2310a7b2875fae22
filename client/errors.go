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

// What has become of an object since the caller saw it. The errors that wrap these wrap an
// error of k8s.io/apimachinery/pkg/api/errors too: a "not found" for ErrGone, a "conflict" for
// ErrReplaced and ErrChanged, an "already exists" for ErrExists.
var (
	// ErrGone says that there is no object of that kind and name.
	ErrGone = errors.New("the object is gone")
	// ErrReplaced says that the object was deleted and another one of its name created: the
	// uid is not the same.
	ErrReplaced = errors.New("the object was replaced by another one of its name")
	// ErrChanged says that the object has been written to in the meantime: the
	// resourceVersion is not the same.
	ErrChanged = errors.New("the object has changed")
	// ErrExists says that the object was not created because one of its name exists already. Whose
	// that is, the caller has to find out from the API server: it may be the caller's own, created
	// by a request whose response was lost.
	ErrExists = errors.New("an object of that name exists already")
)

// ErrNoNamespace says that there is no namespace for the object that is to be created. The API
// server calls that "not found" too, and it is not the object that is not there.
var ErrNoNamespace = errors.New("its namespace does not exist")

// ErrTerminating says that an object is being deleted, so that nothing should be made for it any
// more. EnsureNamespace, finalizer.Add, ownerref.Adopt and owned.Set.Apply return it.
var ErrTerminating = errors.New("it is being deleted")

// errElsewhere says that what the API server did not find is not the object of the request. Who
// took that for ErrGone would leave behind what is still there.
var errElsewhere = errors.New("not the object but something else was not found")

// explain says what the answer of the API server means for what was requested.
func (c *Client) explain(ctx context.Context, r *Request, err error) error {
	cluster := c.config.Cluster
	unknownPath := apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case !apierrors.IsNotFound(err) && r.Verb.Writes():
		return asTooLarge(err)
	case !apierrors.IsNotFound(err):
		return err
	case missesNamespace(r, err):
		return fmt.Errorf("%w: %w", ErrNoNamespace, err)
	case r.Subresource != "" && !c.hasSubresource(ctx, r):
		return fmt.Errorf("its kind has no %s subresource: %w: %w", r.Subresource, kube.ErrNotServed, err)
	case unknownPath, r.isCollection() && isAbout(r, err):
		// Not the answer of anybody who knows the kind: its definition has been removed. Collections
		// are there as long as the kind is.
		cluster.Forget(r.Kind.GroupVersion())
		return fmt.Errorf("%w: %w", kube.ErrNotServed, err)
	case !isAbout(r, err):
		return fmt.Errorf("%w: %w", errElsewhere, err)
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}

// hasSubresource reports whether objects of the kind have the subresource. The API server gives
// the same answer when they have none as when the object is gone, for custom resources; so it is
// asked how it serves the kind, where it did not say so before.
func (c *Client) hasSubresource(ctx context.Context, r *Request) bool {
	cluster := c.config.Cluster
	if _, known := cluster.SubresourceKind(r.Resource, r.Subresource); known {
		return true
	}
	cluster.Forget(r.Kind.GroupVersion())
	if _, err := cluster.Resource(ctx, r.Kind); err != nil {
		return true // nobody knows: then it is the object that is not there, as was said
	}
	_, known := cluster.SubresourceKind(r.Resource, r.Subresource)
	return known
}

// missesNamespace reports whether an answer is about the namespace of what was to be created.
func missesNamespace(r *Request, err error) bool {
	details := detailsOf(err)
	return details != nil && details.Group == "" && details.Kind == "namespaces" && r.Key.Namespace != "" && details.Name == r.Key.Namespace
}

// isAbout reports whether it is the object of the request that was not found. A webhook may refuse
// a write, a deletion too, because it does not find something, in the same words; what is created
// is not there by its nature, and what is sent to a subresource may name other objects: the Pod
// that a token is to be bound to. The API server itself always names the object.
func isAbout(r *Request, err error) bool {
	if !r.Verb.Writes() && r.Subresource == "" {
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
	return answerOf(err).Details
}

// answerOf returns what the API server said in its answer; nothing when err wraps none.
func answerOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return metav1.Status{}
	}
	return status.Status()
}

// ChangedError makes the error of a write that was not done because obj is not what was seen, and why:
// ErrChanged, of which apierrors.IsConflict is true too. It is for callers whose JSON patch tests
// what was seen. The API server calls a failed test invalid, and what is invalid is not tried
// again; so only the text of why is kept, unless why is a conflict itself.
func ChangedError(ctx context.Context, c *Client, obj kube.Object, why error) error {
	if apierrors.IsConflict(why) {
		return asChanged(why)
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		// There is a name for it all the same: what has happened matters more.
		t.key = keyOf(obj)
		t.resource.Group, t.resource.Resource = t.kind.Group, t.kind.Kind
	}
	return t.conflict(ErrChanged, "%v", why)
}

// asChanged says of a conflict that the object has changed. One over fields that others manage
// is none of that: the object may be as it was.
func asChanged(err error) error {
	if !apierrors.IsConflict(err) || errors.Is(err, ErrChanged) || errors.Is(err, ErrReplaced) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrChanged, err)
}
