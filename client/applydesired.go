package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/kube"
)

// application is one apply.
type application struct {
	target
	request    *Request
	desired    *desired
	uid        types.UID // that the object must have; empty: any
	input      digest    // of the object passed to Apply; zero: not compared with an earlier apply
	configured digest    // of desired.declared
	id         appliedID
	term       <-chan struct{} // the leadership of the apply; nil: none
	contents   *contents       // of the states of the object
}

// desired is the configuration of an apply. It is computed on demand: most applies have the same input as the
// previous one, and change nothing.
type desired struct {
	target        target
	object        kube.Object
	configuration map[string]any
	declared      map[string]any // configuration without the uid and the resourceVersion
	digest        digest         // of declared
}

// compute computes the configuration once.
func (d *desired) compute() error {
	if d.declared != nil {
		return nil
	}
	configuration, err := configurationOf(d.target, d.object)
	if err != nil {
		return err
	}
	if d.target.hash != "" {
		d.digest = hashConfiguration(configuration, d.target.hash)
	}
	d.configuration, d.declared = configuration, declaredIn(configuration)
	if d.target.hash == "" {
		d.digest = digestOf(d.declared)
	}
	return nil
}

// application validates an apply and prepares it.
func (c *Client) application(ctx context.Context, obj kube.Object, options []WriteOption) (application, error) {
	t, err := begin(ctx, c, "apply", obj, options, optionsOfApply)
	if err != nil {
		return application{}, err
	}
	a := application{
		target: t, request: t.request(VerbApply), term: leadership.Lost(ctx), contents: newContents(c.shapes),
	}
	switch {
	case t.subresource == "scale":
		err = errors.New("the body of the scale has the kind Scale: use Update with option SubresourceOf, or ScaleLive")
	case t.unchanged && obj.GetResourceVersion() == "":
		err = errors.New("the object has no resourceVersion, so a change cannot be detected")
	case t.absent && t.checkIfAbsent(obj) != nil:
		err = t.checkIfAbsent(obj)
	case t.hash != "" && t.subresource != "":
		err = fmt.Errorf("option ConfigurationHash is for the object itself, not for its %s", t.subresource)
	}
	if err != nil {
		return a, t.failed(err)
	}
	a.request.PatchType = types.ApplyYAMLPatchType
	a.id = appliedID{
		object:     objectID(t.kind.GroupKind(), t.key),
		collection: unique.Make(collection{t.kind.GroupKind(), t.key.Namespace}),
		applier: unique.Make(applier{
			version: t.kind.Version, fieldOwner: a.request.FieldOwner,
			subresource: t.subresource,
		}),
	}
	return a, t.failed(a.identify(obj))
}

// identify sets uid, input and configured. It does not compute the configuration if the input equals that of
// the last apply to the object.
func (a *application) identify(obj kube.Object) error {
	a.desired = &desired{target: a.target, object: obj}
	a.uid = obj.GetUID()
	if !a.absent {
		a.input = digestOfInput(a.client.shapes, obj, a.hash)
		if last, remembered := a.client.applied.get(a.id); remembered && last.input.same(a.input) {
			a.configured = last.configured
			return nil
		}
	}
	if err := a.desired.compute(); err != nil {
		return err
	}
	a.configured = a.desired.digest
	return nil
}

// withoutHash returns changes without the annotation of option ConfigurationHash.
func (a application) withoutHash(changes []FieldChange) []FieldChange {
	if a.hash == "" {
		return changes
	}
	path := difference.Path{}.Field("metadata").Field("annotations").Field(a.hash).String()
	return slices.DeleteFunc(changes, func(c FieldChange) bool { return c.Path == path })
}

// remember stores the result of the apply.
func (a application) remember(after appliedState, outcome ObjectOutcome) {
	switch {
	case a.request.DryRun:
	case a.request.Status == 0:
		// An interceptor has answered the request, and may have written the object.
		a.client.applied.forgetWritten(a.id.object)
	default:
		a.client.applied.store(a.id, after)
		if a.request.Force && outcome != Unchanged {
			a.client.applied.forgetForced(a.id)
		}
	}
}
