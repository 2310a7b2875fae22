package crd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrHasObjects reports that Remove kept a definition because objects of its kind exist.
var ErrHasObjects = errors.New("objects of its kind exist")

// Remove deletes the definition with this name ("websites.shop.example.com") and returns when it is gone. A
// definition that does not exist is not an error.
//
// Deleting a definition deletes all objects of its kind in all namespaces. Remove therefore returns ErrHasObjects while
// objects exist; RemoveWithObjects deletes them too. Remove does not detect an object that is created between its check
// and the deletion.
//
// With a client for dry runs Remove does not wait.
//
// Errors: ErrHasObjects, with the number of objects and some names; the deadline of ctx, by default 1 min, with what
// blocks the deletion; errors of requests.
func Remove(ctx context.Context, c *client.Client, name string) error {
	return remove(ctx, c, name, false)
}

// RemoveWithObjects is Remove with all objects of the kind. Objects with finalizers block the deletion until their
// controllers remove the finalizers; these controllers must still run. After the deadline, it may take up to 2 s more
// to find the objects that block the deletion.
func RemoveWithObjects(ctx context.Context, c *client.Client, name string) error {
	return remove(ctx, c, name, true)
}

func remove(ctx context.Context, c *client.Client, name string, withObjects bool) error {
	s, err := newSettings[EnsureOption](ctx, c)
	if err == nil && name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return fmt.Errorf("remove %s %s: %w", kindName, name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e := &ensurer{settings: s, name: name}
	if err := e.remove(ctx, withObjects); err != nil {
		return fmt.Errorf("remove %s %s: %w", kindName, name, err)
	}
	return nil
}

func (e *ensurer) remove(ctx context.Context, withObjects bool) error {
	definition, err := read(ctx, e.client, e.name)
	if errors.Is(err, client.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if definition.DeletionTimestamp == nil { // otherwise its objects are being deleted already
		if !withObjects {
			if err := e.checkNoObjects(ctx, definition); err != nil {
				return err
			}
		}
		err := client.Delete(ctx, e.client, definition)
		if err != nil && !errors.Is(err, client.ErrGone) {
			return err
		}
	}
	if e.client.Config().DryRun {
		return nil
	}
	if err := e.waitGone(ctx, definition); err != nil {
		return err
	}
	for _, kind := range servedKinds(definition) {
		e.client.Cluster().Forget(kind.GroupVersion())
	}
	return nil
}

// checkNoObjects returns an error if objects exist, or if that is unknown.
func (e *ensurer) checkNoObjects(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) error {
	if !isEstablished(d) {
		return nil // objects cannot be created before that
	}
	served := servedKinds(d)
	if len(served) == 0 {
		return errors.New("none of its versions is served, so its objects cannot be listed: " +
			"serve one version, or delete the objects too with RemoveWithObjects")
	}
	e.client.Cluster().Forget(served[0].GroupVersion())
	objects, err := e.summarizeObjects(ctx, served[0])
	if err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	if objects.count > 0 {
		return fmt.Errorf("%w: %s: delete them first, or use RemoveWithObjects", ErrHasObjects, objects)
	}
	return nil
}

// objectSummary describes the objects of a kind.
type objectSummary struct {
	count          int
	names          []string // at most 5
	withFinalizers int
	finalizers     string // one object and its finalizers
}

func (s objectSummary) String() string {
	text := fmt.Sprintf("%d of them: %s", s.count, strings.Join(s.names, ", "))
	if s.count > len(s.names) {
		text += ", ..."
	}
	return text
}

// summarizeObjects lists the objects of a kind in all namespaces.
func (e *ensurer) summarizeObjects(ctx context.Context, kind schema.GroupVersionKind) (objectSummary, error) {
	const maxNames = 5
	var s objectSummary
	all := kube.Selection{Kind: kind, Namespaces: []string{kube.AllNamespaces}}
	for obj, err := range client.List[*metav1.PartialObjectMetadata](ctx, e.client, all, client.FromAPI()) {
		if err != nil {
			return s, err
		}
		s.count++
		if len(s.names) < maxNames {
			s.names = append(s.names, kube.KeyOf(obj).String())
		}
		if len(obj.Finalizers) > 0 {
			s.withFinalizers++
			s.finalizers = fmt.Sprintf("%s by %s", kube.KeyOf(obj), strings.Join(obj.Finalizers, ", "))
		}
	}
	return s, nil
}

// describeRemaining describes what blocks the deletion of a definition, and reports whether finalizers of objects do.
func (e *ensurer) describeRemaining(
	ctx context.Context, d *apiextensionsv1.CustomResourceDefinition,
) (text string, held bool) {
	text = "the definition exists, with finalizers " + strings.Join(d.Finalizers, ", ")
	if len(d.Finalizers) == 0 {
		text = "the definition exists"
	}
	served := servedKinds(d)
	if len(served) == 0 {
		return text, false
	}
	objects, err := e.summarizeObjects(ctx, served[0])
	switch {
	case err != nil:
		// Who may not list the objects of all namespaces may have controllers of some.
		return fmt.Sprintf("%s, and its objects cannot be listed: %v", text, err), apierrors.IsForbidden(err)
	case objects.count == 0:
		return text, false
	case objects.withFinalizers == 0:
		return fmt.Sprintf("objects remain, %s", objects), false
	}
	return fmt.Sprintf("objects remain, %d of %d held by finalizers: %s: their controllers must remove the finalizers",
		objects.withFinalizers, objects.count, objects.finalizers), true
}
