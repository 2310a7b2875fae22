package crd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// ErrHasObjects says that a definition is not removed because there are objects of its kind.
var ErrHasObjects = errors.New("there are objects of its kind")

// Remove removes the definition of that name ("websites.shop.example.com"), and returns when it
// is gone. One that is not there is fine.
//
// With a definition go all objects of its kind, in all namespaces. So it is refused while
// there are any, unless option WithObjects says that they are meant too: then those with
// finalizers keep the definition until their controllers have taken these off, and had better
// run. An object that is created between the look and the removal is not seen.
//
// With a client for dry runs, nothing is waited for.
//
// Options: WithObjects, Timeout, Logger.
//
// Errors: ErrHasObjects, with their number and some of their names; the end of the time, with
// what remains; what a request met.
func Remove(ctx context.Context, c *client.Client, name string, options ...Option) error {
	s, err := newSettings(c, options, "WithObjects", "Timeout", "Logger")
	if err == nil && name == "" {
		err = errors.New("it has no name")
	}
	if err != nil {
		return fmt.Errorf("remove %s %s: %w", kindName, name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e := &ensurer{client: s.client, settings: s}
	if err := e.remove(ctx, name); err != nil {
		return fmt.Errorf("remove %s %s: %w", kindName, name, err)
	}
	return nil
}

func (e *ensurer) remove(ctx context.Context, name string) error {
	definition, err := read(ctx, e.client, name)
	if errors.Is(err, client.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	if definition.DeletionTimestamp == nil { // otherwise its objects go in any case
		if !e.settings.withObjects {
			if err := e.refuseObjects(ctx, definition); err != nil {
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

// refuseObjects returns an error when there are objects, or when nobody can tell.
func (e *ensurer) refuseObjects(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) error {
	if !isTrue(d, apiextensionsv1.Established) {
		return nil // nothing can have been created
	}
	served := servedKinds(d)
	if len(served) == 0 {
		return errors.New("none of its versions is served, so that nobody can see whether there are objects: " +
			"have one served, or say by option WithObjects that they may go")
	}
	e.client.Cluster().Forget(served[0].GroupVersion())
	found, err := e.look(ctx, served[0])
	if err != nil {
		return fmt.Errorf("look for objects: %w", err)
	}
	if found.count > 0 {
		return fmt.Errorf("%w: %s: delete them first, or use option WithObjects", ErrHasObjects, found)
	}
	return nil
}

// found are objects of a kind.
type found struct {
	count      int
	names      []string // some of them
	finalizers int      // how many objects have finalizers
	held       string   // one of these
}

func (f found) String() string {
	text := fmt.Sprintf("%d of them: %s", f.count, strings.Join(f.names, ", "))
	if f.count > len(f.names) {
		text += ", ..."
	}
	return text
}

// look counts the objects of a kind.
func (e *ensurer) look(ctx context.Context, kind schema.GroupVersionKind) (found, error) {
	const named = 5
	var f found
	for obj, err := range client.List[*metav1.PartialObjectMetadata](ctx, e.client, client.OfKind(kind), client.FromAPI()) {
		if err != nil {
			return f, err
		}
		f.count++
		if len(f.names) < named {
			f.names = append(f.names, kube.KeyOf(obj).String())
		}
		if len(obj.Finalizers) > 0 {
			f.finalizers++
			f.held = fmt.Sprintf("%s by %s", kube.KeyOf(obj), strings.Join(obj.Finalizers, ", "))
		}
	}
	return f, nil
}

// whatRemains says what keeps a definition that is being removed.
func (e *ensurer) whatRemains(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) string {
	text := "it is there, with the finalizers " + strings.Join(d.Finalizers, ", ")
	if len(d.Finalizers) == 0 {
		text = "it is there"
	}
	served := servedKinds(d)
	if len(served) == 0 {
		return text
	}
	f, err := e.look(ctx, served[0])
	switch {
	case err != nil || f.count == 0:
		return text
	case f.finalizers == 0:
		return fmt.Sprintf("objects remain, %s", f)
	}
	return fmt.Sprintf("objects remain, %d of %d held by finalizers: %s: their controllers have to take these off", f.finalizers, f.count, f.held)
}
