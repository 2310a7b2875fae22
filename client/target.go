package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// target is the object, or the collection of objects, of a call, with its options.
type target struct {
	settings
	client   *Client
	kind     schema.GroupVersionKind
	resource kube.Resource
	key      kube.Key
	model    any    // of the caller's type: an object or a nil pointer
	action   string // of the call, for its errors
}

// begin evaluates the options of a call for an object.
func begin[O option](
	ctx context.Context, c *Client, action string, obj kube.Object, options []O, accepted string,
) (target, error) {
	s, err := newSettings(options, accepted)
	if err != nil {
		return target{}, fmt.Errorf("%s: %w", action, err)
	}
	located := obj
	if s.parent != nil {
		located = s.parent
	}
	t, err := c.locate(ctx, located)
	if err == nil && (action != "create" || s.parent != nil || located.GetGenerateName() == "") {
		err = t.checkName()
	}
	t.settings, t.action, t.model = s, action, obj
	if err != nil {
		err = fmt.Errorf("%s: %w", action, err)
	}
	return t, err
}

// failed adds the action and the target to an error; nil stays nil.
func (t target) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("%s %s: %w", t.action, t, err)
	}
	return err
}

// targetOf returns the target of obj, with the kind and scope of the cluster.
func (c *Client) targetOf(ctx context.Context, obj kube.Object) (target, error) {
	t, err := c.locate(ctx, obj)
	if err == nil {
		err = t.checkName()
	}
	return t, err
}

func (t target) checkName() error {
	if t.key.Name == "" {
		return fmt.Errorf("the %s has no name", t.kind.Kind)
	}
	return nil
}

// locate is targetOf for an object that need not have a name.
func (c *Client) locate(ctx context.Context, obj kube.Object) (target, error) {
	if err := c.check(); err != nil {
		return target{}, err
	}
	if usercode.IsNil(obj) {
		return target{}, errors.New("the object is nil")
	}
	kind, err := c.config.Cluster.KindOf(obj)
	if err != nil {
		return target{}, fmt.Errorf("%s: %w", kube.KeyOf(obj), err)
	}
	t := target{client: c, kind: kind, key: kube.KeyOf(obj), model: obj}
	return t, t.resolve(ctx)
}

// targetFor returns the target with this key, of the kind of T or the given kind.
func targetFor[T kube.Object](ctx context.Context, c *Client, key kube.Key, s settings) (target, error) {
	if err := c.check(); err != nil {
		return target{}, err
	}
	var none T
	t := target{client: c, kind: s.kind, key: key, model: any(none), settings: s}
	err := notAType[T]()
	if reflect.TypeFor[T]().Kind() == reflect.Pointer {
		t.kind, err = kindFor[T](c, s.kind)
	}
	switch {
	case err != nil && key.Name != "":
		return t, fmt.Errorf("%s: %w", key, err)
	case err != nil:
		return t, err
	}
	return t, t.resolve(ctx)
}

// kindFor returns the kind of T, or the given kind: of option OfKind or of a Selection.
func kindFor[T kube.Object](c *Client, named schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if reflect.TypeFor[T]().Kind() != reflect.Pointer {
		if named.Empty() {
			return named, notAType[T]()
		}
		return named, nil
	}
	cluster, model := c.config.Cluster, apiobject.New[T]()
	kind, err := cluster.KindOf(model)
	isKnown := err == nil
	switch {
	case named.Empty() && !isKnown:
		return kind, fmt.Errorf("%w, or name it by option OfKind, or by the Kind of a Selection", err)
	case named.Empty():
		return kind, nil
	case !isKnown || kind == named:
		return named, nil
	}
	// A type may be registered for several kinds.
	if kinds, _, _ := cluster.Scheme().ObjectKinds(model); slices.Contains(kinds, named) { // nil if there is an error
		return named, nil
	}
	return named, fmt.Errorf("the given kind is %s, and a %T is a %s", named, model, kind)
}

func notAType[T any]() error {
	return fmt.Errorf("%s is an interface: name the type that is to be made", reflect.TypeFor[T]())
}

// resolve reads how the cluster serves the kind, and validates the name and the namespace. It passes t as text to other
// functions, so that t need not be allocated.
func (t *target) resolve(ctx context.Context) error {
	if err := apiobject.CheckSegments(t.key.Namespace, t.key.Name); err != nil {
		return fmt.Errorf("%s has an invalid name or namespace: %w", t.kind.Kind, err)
	}
	if namespaced, declared := apiobject.DeclaredScopeOf(t.model, t.kind, t.client.config.Cluster.Scheme()); declared {
		if err := t.place(namespaced); err != nil {
			return err
		}
	}
	if isBody(t.kind.GroupKind()) {
		return fmt.Errorf("%s: a %s is the body of a subresource, and no object: use option SubresourceOf, or "+
			"ScaleLive, with the object itself", t.String(), t.kind.Kind)
	}
	var err error
	if t.resource, err = t.client.config.Cluster.Resource(ctx, t.kind); err != nil {
		return fmt.Errorf("%s: %w", t.String(), err)
	}
	if err = t.place(t.resource.Namespaced); err != nil {
		if other := *t; other.place(!t.resource.Namespaced) == nil {
			// the definition may be replaced by one with another scope
			t.client.config.Cluster.Forget(t.kind.GroupVersion())
		}
	}
	return err
}

// isBody reports whether a kind of Kubernetes exists only as the body of a subresource.
func isBody(kind schema.GroupKind) bool {
	switch kind {
	case schema.GroupKind{Group: "autoscaling", Kind: "Scale"}, schema.GroupKind{Group: "policy", Kind: "Eviction"},
		schema.GroupKind{Group: "authentication.k8s.io", Kind: "TokenRequest"}:
		return true
	}
	return false
}

// place validates the namespace for a kind with this scope, and sets that of the client.
func (t *target) place(namespaced bool) error {
	only := t.client.config.Namespace
	switch {
	case !namespaced && t.key.Namespace != "":
		return fmt.Errorf("%s names a namespace, and its kind lives in none", t.String())
	case !namespaced && only != "":
		return fmt.Errorf("%s lives in no namespace, and this client is for namespace %s only", t.String(), only)
	case only != "" && t.key.Namespace == "":
		t.key.Namespace = only
	case only != "" && t.key.Namespace != only:
		return fmt.Errorf("%s is not in namespace %s, the only one that this client is for", t.String(), only)
	case namespaced && t.key.Namespace == "" && t.key.Name != "":
		// Otherwise the request could find another object or none, and the object would seem to be gone.
		return fmt.Errorf("%s has no namespace, and its kind lives in namespaces", t.String())
	}
	return nil
}

// String returns "Kind namespace/name/subresource", as far as known.
func (t target) String() string {
	name := t.kind.Kind
	switch {
	case t.key.Name != "":
		name += " " + t.key.String()
	case t.key.Namespace != "":
		name += " in " + t.key.Namespace
	}
	if t.subresource != "" {
		name += "/" + t.subresource
	}
	return name
}

// request returns a request for the target, with the settings of the client and the caller.
func (t target) request(verb Verb) *Request {
	config := t.client.config
	r := &Request{
		Verb: verb, Kind: t.kind, Resource: t.resource, Key: t.key, Subresource: t.subresource, model: t.model,
	}
	if verb == VerbGet {
		r.List.ResourceVersion = t.notOlderThan
	}
	if verb.IsWrite() {
		r.DryRun = t.dryRun || config.DryRun
		r.FieldOwner = cmp.Or(t.fieldOwner, config.FieldOwner)
		r.FieldValidation = cmp.Or(t.fieldValidation, config.FieldValidation)
		r.Force = t.force
	}
	return r
}

// conflict returns an error that wraps both reason and a conflict of apimachinery.
func (t target) conflict(reason error, format string, args ...any) error {
	detail := fmt.Errorf(format, args...)
	return fmt.Errorf("%w: %w", reason, apierrors.NewConflict(t.resource.GroupResource(), t.key.Name, detail))
}
