package client

import (
	"context"
	"encoding/json"
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
	settings   settings
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
	settings      settings
	configuration map[string]any
	declared      map[string]any // configuration without the uid and the resourceVersion
	digest        digest         // of declared
}

// compute computes the configuration once.
func (d *desired) compute() (err error) {
	if d.declared != nil {
		return nil
	}
	configuration, err := configurationOf(d.target, d.object, d.settings)
	if err != nil {
		return err
	}
	if d.settings.hash != "" {
		d.digest, err = hashConfiguration(configuration, d.settings.hash)
	}
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	declared := declaredIn(configuration)
	if d.settings.hash == "" {
		encoded, err := json.Marshal(declared)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		d.digest = digestOfBytes(encoded)
	}
	d.configuration, d.declared = configuration, declared
	return nil
}

// application validates an apply and prepares it.
func (c *Client) application(ctx context.Context, obj kube.Object, options []ApplyOption) (application, error) {
	s, err := newSettings(options)
	if err != nil {
		return application{}, err
	}
	t, err := c.targetOf(ctx, obj)
	if err != nil {
		return application{}, err
	}
	a := application{
		target: t, settings: s, request: t.request(VerbApply, s), term: leadership.Lost(ctx),
		contents: newContents(c.shapes),
	}
	fail := func(format string, args ...any) (application, error) {
		return a, fmt.Errorf("%s: %w", t.withSubresource(s), fmt.Errorf(format, args...))
	}
	switch {
	case a.request.FieldOwner == "":
		return fail("no field owner: set Config.FieldOwner, or option FieldOwner, to a name that stays the same over " +
			"versions of the program")
	case s.subresource == "scale":
		return fail("the body of the scale has the kind Scale: use UpdateSubresource or ScaleLive")
	case s.unchanged && obj.GetResourceVersion() == "":
		return fail("the object has no resourceVersion, so a change cannot be detected")
	}
	if s.absent {
		if err := checkIfAbsent(obj, s); err != nil {
			return fail("%w", err)
		}
	}
	if s.hash != "" && s.subresource != "" {
		return fail("option ConfigurationHash is for the object itself, not for its %s", s.subresource)
	}
	a.request.PatchType = types.ApplyYAMLPatchType
	a.id = appliedID{
		object:     objectID(t.kind.GroupKind(), t.key),
		collection: unique.Make(collection{t.kind.GroupKind(), t.key.Namespace}),
		applier: unique.Make(applier{
			version: t.kind.Version, fieldOwner: a.request.FieldOwner,
			subresource: s.subresource,
		}),
	}
	if err := a.identify(obj); err != nil {
		return fail("%w", err)
	}
	return a, nil
}

// identify sets uid, input and configured. It does not compute the configuration if the input equals that of
// the last apply to the object.
func (a *application) identify(obj kube.Object) error {
	a.desired = &desired{target: a.target, object: obj, settings: a.settings}
	a.uid = obj.GetUID()
	if !a.settings.absent {
		a.input = a.client.shapes.digestOfInput(obj, a.settings.hash)
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
	if a.settings.hash == "" {
		return changes
	}
	path := difference.Path{}.Field("metadata").Field("annotations").Field(a.settings.hash).String()
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
