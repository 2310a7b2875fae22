package owned

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// pass is the state of one Apply, Delete or plan for one owner.
type pass struct {
	set       *Set
	client    *client.Client
	plan      bool // writes nothing, and no wave waits
	owner     kube.Object
	ownerKind schema.GroupVersionKind
	items     []*item // the desired children, by wave

	found     map[identity]*metav1.PartialObjectMetadata // existing objects with the labels of the owner's children
	undesired []Result                                   // results of found objects that are not desired
	runAgain  time.Duration

	live *metav1.PartialObjectMetadata // the owner at the last checkOwner
}

// identity identifies a child in every version of its kind.
type identity struct {
	kind schema.GroupKind
	key  kube.Key
}

// item is a desired child.
type item struct {
	Child
	kind      schema.GroupVersionKind
	object    kube.Object // a copy; when resolved, with the labels and annotations of the set
	resolved  bool        // the cluster serves its kind
	referable bool        // it has an owner reference
	result    Result
}

func (i *item) identity() identity {
	return identity{i.kind.GroupKind(), kube.KeyOf(i.object)}
}

// begin validates the owner. It makes no request.
func (s *Set) begin(owner kube.Object) (*pass, error) {
	if usercode.IsNil(owner) {
		return nil, errors.New("the owner is nil")
	}
	c := s.config.Client
	kind, err := c.Cluster().KindOf(owner)
	if err != nil {
		return nil, fmt.Errorf("owner %s: %w", kube.KeyOf(owner), err)
	}
	if owner.GetUID() == "" || owner.GetName() == "" {
		return nil, fmt.Errorf("owner %s %s has no uid, which identifies an owner: use an object that was read from "+
			"the cluster",
			kind.Kind, kube.KeyOf(owner))
	}
	return &pass{set: s, client: c, owner: owner, ownerKind: kind, found: map[identity]*metav1.PartialObjectMetadata{}},
		nil
}

// String names the owner.
func (p *pass) String() string { return p.ownerKind.Kind + " " + kube.KeyOf(p.owner).String() }

// addChildren validates all desired children and adds them. It makes no request except those that discover the scope
// of kinds.
func (p *pass) addChildren(ctx context.Context, children []Child) error {
	var errs []error
	seen := map[identity]bool{}
	for n, child := range children {
		i, err := p.newItem(ctx, child)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("child %d: %w", n, err))
		case seen[i.identity()]:
			errs = append(errs, fmt.Errorf("child %d: %s is listed twice", n, i.result))
		default:
			seen[i.identity()] = true
			p.items = append(p.items, i)
		}
	}
	slices.SortStableFunc(p.items, func(a, b *item) int { return cmp.Compare(a.Wave, b.Wave) })
	return errors.Join(errs...)
}

func (p *pass) newItem(ctx context.Context, child Child) (*item, error) {
	if usercode.IsNil(child.Object) {
		return nil, errors.New("Object is nil")
	}
	switch child.Object.(type) {
	case Child, *Child:
		return nil, errors.New("Object is a Child: set it to the object itself")
	}
	kind, err := p.client.Cluster().KindOf(child.Object)
	if err != nil {
		return nil, err
	}
	object, err := withoutServerFields(child.Object)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind.Kind, kube.KeyOf(child.Object), err)
	}
	switch child.Propagation {
	case "", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan:
	default:
		return nil, fmt.Errorf("%s %s: Propagation is %q: it must be metav1.DeletePropagationBackground, Foreground "+
			"or Orphan", kind.Kind, kube.KeyOf(child.Object), child.Propagation)
	}
	i := &item{Child: child, kind: kind, object: object}
	if i.Ready == nil {
		i.Ready = readiness.Of
	}
	name := kind.Kind + " " + kube.KeyOf(i.object).String()
	if i.object.GetName() == "" {
		return nil, fmt.Errorf("%s has no name, which identifies a child: generateName cannot be used", kind.Kind)
	}
	if !p.set.config.has(kind.GroupKind()) {
		return nil, fmt.Errorf("%s: its kind is not in Config.Kinds, so it would not be found again: add %s, for an "+
			"operator to its Owns", name, kind)
	}
	// A kind that is not served yet may be defined by a child of a lower wave.
	if err := p.resolve(ctx, i); err != nil && !errors.Is(err, kube.ErrNotServed) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if i.identity() == (identity{p.ownerKind.GroupKind(), kube.KeyOf(p.owner)}) {
		return nil, fmt.Errorf("%s is the owner, which cannot be its own child", name)
	}
	i.result = Result{Kind: kind, Key: kube.KeyOf(i.object), wave: i.Wave, Desired: true}
	return i, nil
}

// withoutServerFields returns a copy of an object without the metadata that only the API server sets.
func withoutServerFields(obj kube.Object) (kube.Object, error) {
	copied, err := copyOf(obj)
	if err != nil {
		return nil, err
	}
	copied.SetUID("")
	copied.SetResourceVersion("")
	copied.SetGeneration(0)
	copied.SetManagedFields(nil)
	copied.SetCreationTimestamp(metav1.Time{})
	copied.SetDeletionTimestamp(nil)
	copied.SetDeletionGracePeriodSeconds(nil)
	copied.SetSelfLink("")
	copied.SetGenerateName("")
	return copied, nil
}

// copyOf returns a deep copy. DeepCopy of an unstructured object panics for an int, a type that hand-written maps
// contain.
func copyOf(obj kube.Object) (kube.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj.DeepCopyObject().(kube.Object), nil // has the same type
	}
	encoded, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("encode the object: %w", err)
	}
	copied := &unstructured.Unstructured{}
	return copied, utiljson.Unmarshal(encoded, &copied.Object)
}

// resolve sets the namespace of a child by the scope of its kind, and adds the owner reference, labels and annotations.
func (p *pass) resolve(ctx context.Context, i *item) error {
	resource, err := p.client.Cluster().Resource(ctx, i.kind)
	if err != nil {
		return err
	}
	p.set.setServed(i.kind.GroupKind(), true)
	if resource.Namespaced && i.object.GetNamespace() == "" {
		i.object.SetNamespace(p.owner.GetNamespace())
	}
	namespace := i.object.GetNamespace()
	namespaces := p.set.config.namespacesOf(p.owner, p.client.Cluster().Namespaces())
	switch {
	case !resource.Namespaced && namespace != "":
		p.client.Cluster().Forget(i.kind.GroupVersion()) // the definition may be replaced by one with another scope
		return errors.New("it has a namespace, but its kind is cluster-scoped")
	case resource.Namespaced && namespace == "":
		p.client.Cluster().Forget(i.kind.GroupVersion())
		return errors.New("it has no namespace, its kind is namespaced, and the owner has no namespace to " +
			"use as default")
	case resource.Namespaced && namespaces != nil && !slices.Contains(namespaces, namespace):
		return fmt.Errorf("namespace %s is not among the namespaces of children, %q: add it to Config.Namespaces, or "+
			"to those to which the Cluster is limited", namespace, namespaces)
	}
	switch err := ownerref.SetController(ctx, p.client, p.owner, i.object); {
	case err == nil:
		i.referable = true
	case !errors.Is(err, ownerref.ErrScope):
		return err
	}
	p.set.mark(p.ownerKind.GroupKind(), p.owner, i.object, i.Wave)
	if names := p.set.config.takenOver(); names != "" && !i.CreateOnly {
		annotations := i.object.GetAnnotations()
		annotations[annotationTakenOver] = names
		i.object.SetAnnotations(annotations)
	}
	i.resolved = true
	return nil
}

// checkOwner reads the owner from the API server. It is called before each operation that would delete something, or
// leave an object behind, if the cache were outdated. A pass may be long, so it reads each time (pruning reads once).
func (p *pass) checkOwner(ctx context.Context) error {
	live, err := client.GetLive(ctx, p.client, metadataOnly(p.ownerKind, p.owner))
	switch {
	case err != nil:
		return fmt.Errorf("read the owner: %w", err)
	case live.GetDeletionTimestamp() != nil:
		return fmt.Errorf("the owner %s: %w", p, client.ErrTerminating)
	}
	p.live = live
	return nil
}

// ownerChanged reports whether the owner had another state at the last checkOwner than the one from which the desired
// children were made. Most kinds count changes of the spec (generation). For the others, any change counts.
func (p *pass) ownerChanged() bool {
	if p.owner.GetGeneration() > 0 {
		return p.live.GetGeneration() != p.owner.GetGeneration()
	}
	return p.live.GetResourceVersion() != p.owner.GetResourceVersion()
}
