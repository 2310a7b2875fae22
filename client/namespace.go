package client

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EnsureNamespace makes sure that there is a namespace of that name, with these labels. Others
// that it has are left alone. When it is there with them, nothing is written; when an informer
// of the client shows that, nothing is asked either.
//
// Outcome: Created, Updated (labels were set), Unchanged. Options: DryRun, FieldOwner.
//
// Errors: ErrTerminating when the namespace is being deleted: nothing can be created in it, and
// it can be created again when it is gone. It needs the verbs get, create and patch of
// namespaces, and a Client that is not limited to one namespace.
func EnsureNamespace(ctx context.Context, c *Client, name string, labels map[string]string, options ...WriteOption) (ObjectOutcome, error) {
	outcome, err := ensureNamespace(ctx, c, name, labels, options)
	if err != nil {
		return "", fmt.Errorf("ensure namespace %s: %w", name, err)
	}
	return outcome, nil
}

func ensureNamespace(ctx context.Context, c *Client, name string, labels map[string]string, options []WriteOption) (ObjectOutcome, error) {
	wanted := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
	s, err := newSettings(options)
	if err != nil {
		return "", err
	}
	if err := checkLabels(labels); err != nil {
		return "", err
	}
	t, err := c.targetOf(ctx, wanted)
	if err != nil {
		return "", err
	}
	// An informer of metadata will do: what it shows has all labels, or lacks some that are then
	// set again.
	seen, answered, err := cachedState(t, wanted, true)
	if err == nil && !answered {
		seen, err = readState(ctx, t, wanted)
	}
	if err != nil {
		return "", err
	}
	if !seen.exists {
		r := t.request(VerbCreate, s)
		r.Object = wanted // a Namespace needs nothing but metadata
		_, err := exchange(ctx, t, r, wanted)
		if !apierrors.IsAlreadyExists(err) {
			return Created, err
		}
		if seen, err = readState(ctx, t, wanted); err != nil {
			return "", err
		}
		if !seen.exists {
			return "", t.gone() // it was there a moment ago
		}
	}
	return labelNamespace(ctx, c, seen.object, labels, options)
}

// labelNamespace sets the labels of a namespace that is there.
func labelNamespace(
	ctx context.Context, c *Client, namespace *metav1.PartialObjectMetadata, labels map[string]string, options []WriteOption,
) (ObjectOutcome, error) {
	if since := namespace.GetDeletionTimestamp(); since != nil {
		return "", fmt.Errorf("%w since %s: nothing can be created in it; what is still in it, kubectl describe tells",
			ErrTerminating, since.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	_, changed, err := SetLabels(ctx, c, namespace, labels, options...)
	switch {
	case err != nil:
		return "", err
	case changed:
		return Updated, nil
	}
	return Unchanged, nil
}
