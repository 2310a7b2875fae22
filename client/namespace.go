package client

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// EnsureNamespace creates a namespace with this name and these labels, or sets the labels of the existing one.
// It keeps other labels. If nothing differs, it writes nothing; if an informer of the client shows that, it
// makes no request.
//
// Outcome: Created, Updated (labels were set), Unchanged. Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: ErrTerminating if the namespace is being deleted: no object can be created in it, and it can be
// created again after that. EnsureNamespace needs the verbs get, create and patch of namespaces, and a Client
// that is not limited to one namespace.
func EnsureNamespace(
	ctx context.Context, c *Client, name string, labels map[string]string, options ...WriteOption,
) (outcome ObjectOutcome, err error) {
	defer func() {
		if err != nil {
			outcome, err = "", fmt.Errorf("ensure namespace %s: %w", name, err)
		}
	}()
	wanted := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
	}
	s, err := newSettings(options, optionsOfWrite)
	if err := errors.Join(err, checkLabels(labels)); err != nil {
		return "", err
	}
	t, err := c.targetOf(ctx, wanted)
	if err != nil {
		return "", err
	}
	t.settings = s
	// An informer of metadata is enough, because it shows the labels.
	seen, answered, err := cachedState(t, wanted, true, t.informers(ctx, true))
	if err == nil && !answered {
		seen, err = readState(ctx, t, wanted)
	}
	if err == nil && !seen.exists {
		r := t.request(VerbCreate)
		r.Object = wanted // a Namespace needs only metadata
		if _, err := exchange(ctx, t, r, wanted); !apierrors.IsAlreadyExists(err) {
			return Created, err
		}
		seen, err = readState(ctx, t, wanted)
	}
	switch {
	case err != nil:
		return "", err
	case !seen.exists:
		return "", t.gone() // it was deleted after the create
	case seen.object.GetDeletionTimestamp() != nil:
		return "", fmt.Errorf("%w since %s: no object can be created in it; kubectl describe shows its remaining "+
			"content", ErrTerminating, seen.object.GetDeletionTimestamp().UTC().Format("2006-01-02 15:04:05 MST"))
	}
	_, changed, err := EditMetadata(ctx, c, seen.object, func(present, _ map[string]string) {
		maps.Copy(present, labels)
	}, options...)
	if changed {
		return Updated, nil
	}
	return Unchanged, err
}
