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
	"github.com/evenkeel-go/evenkeel/ownerref"
	"github.com/evenkeel-go/evenkeel/readiness"
)

// pass is one run over an owner's children.
type pass struct {
	set       *Set
	client    *client.Client
	plan      bool // nothing is kept, and no wave waits
	owner     kube.Object
	ownerKind schema.GroupVersionKind
	items     []*item // the desired children, by wave

	found    map[identity]*metav1.PartialObjectMetadata // what carries the labels of the owner's children
	leftover []Result                                   // what is found and not desired, when it was dealt with
	runAgain time.Duration

	live *metav1.PartialObjectMetadata // the owner as the API server had it when it was asked last
}

// identity is what a child is known by, in whatever version of its kind.
type identity struct {
	kind schema.GroupKind
	key  kube.Key
}

// item is a desired child.
type item struct {
	Child
	kind      schema.GroupVersionKind
	object    kube.Object // a copy, with marks when it is placed
	placed    bool        // the cluster serves its kind
	referable bool        // an owner reference leads to the owner
	result    Result
}

func (i *item) identity() identity {
	return identity{i.kind.GroupKind(), kube.KeyOf(i.object)}
}

// begin checks the owner. It makes no request.
func (s *Set) begin(c *client.Client, owner kube.Object) (*pass, error) {
	if usercode.IsNil(owner) {
		return nil, errors.New("the owner is nil")
	}
	kind, err := c.Cluster().KindOf(owner)
	if err != nil {
		return nil, fmt.Errorf("owner %s: %w", kube.KeyOf(owner), err)
	}
	if owner.GetUID() == "" || owner.GetName() == "" {
		return nil, fmt.Errorf("owner %s %s has no uid, by which owners are known: use an object that was read from the cluster",
			kind.Kind, kube.KeyOf(owner))
	}
	return &pass{set: s, client: c, owner: owner, ownerKind: kind, found: map[identity]*metav1.PartialObjectMetadata{}}, nil
}

// String names the owner.
func (p *pass) String() string { return p.ownerKind.Kind + " " + kube.KeyOf(p.owner).String() }

// desire checks the desired children, all of them. It makes no request but for how the cluster
// serves kinds.
func (p *pass) desire(ctx context.Context, children []Child) error {
	var errs []error
	seen := map[identity]bool{}
	for n, child := range children {
		i, err := p.newItem(ctx, child)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("child %d: %w", n, err))
		case seen[i.identity()]:
			errs = append(errs, fmt.Errorf("child %d: %s is among the children twice", n, i.result))
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
	kind, err := p.client.Cluster().KindOf(child.Object)
	if err != nil {
		return nil, err
	}
	object, err := bare(child.Object)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind.Kind, kube.KeyOf(child.Object), err)
	}
	i := &item{Child: child, kind: kind, object: object}
	if i.Ready == nil {
		i.Ready = readiness.Of
	}
	name := kind.Kind + " " + kube.KeyOf(i.object).String()
	if i.object.GetName() == "" {
		return nil, fmt.Errorf("%s has no name: by its name it is found again, so that none can be generated", kind.Kind)
	}
	if !p.set.config.has(kind.GroupKind()) {
		return nil, fmt.Errorf("%s: its kind is not among Config.Kinds, so that it would not be found again: add %s", name, kind)
	}
	// A kind that is not served yet may be what a child of a lower wave defines.
	if err := p.place(ctx, i); err != nil && !errors.Is(err, kube.ErrNotServed) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if i.identity() == (identity{p.ownerKind.GroupKind(), kube.KeyOf(p.owner)}) {
		return nil, fmt.Errorf("%s is the owner, which cannot be its own child", name)
	}
	i.result = Result{Kind: kind, Key: kube.KeyOf(i.object), Wave: i.Wave, Desired: true}
	return i, nil
}

// bare returns a copy of an object without what only the API server can say.
func bare(obj kube.Object) (kube.Object, error) {
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

// copyOf returns a copy. DeepCopy of an unstructured object panics at an int, as people write
// it into maps by hand.
func copyOf(obj kube.Object) (kube.Object, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj.DeepCopyObject().(kube.Object), nil // of the same type
	}
	encoded, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("read the fields of the object: %w", err)
	}
	copied := &unstructured.Unstructured{}
	return copied, utiljson.Unmarshal(encoded, &copied.Object)
}

// place finds out where a child lives, and puts the owner's marks on it.
func (p *pass) place(ctx context.Context, i *item) error {
	resource, err := p.client.Cluster().Resource(ctx, i.kind)
	if err != nil {
		return err
	}
	p.set.missing.served(i.kind.GroupKind())
	if resource.Namespaced && i.object.GetNamespace() == "" {
		i.object.SetNamespace(p.owner.GetNamespace())
	}
	namespace := i.object.GetNamespace()
	namespaces := p.set.config.namespacesOf(p.owner)
	switch {
	case !resource.Namespaced && namespace != "":
		return fmt.Errorf("it names a namespace, and its kind lives in none")
	case resource.Namespaced && namespace == "":
		return fmt.Errorf("it has no namespace, its kind lives in namespaces, and the owner is in none that it could get")
	case resource.Namespaced && !slices.Contains(namespaces, namespace) && !slices.Contains(namespaces, metav1.NamespaceAll):
		return fmt.Errorf("namespace %s is not among those in which children are looked for, %q: add it to Config.Namespaces",
			namespace, namespaces)
	}
	switch err := ownerref.SetController(ctx, p.client, p.owner, i.object); {
	case err == nil:
		i.referable = true
	case !errors.Is(err, ownerref.ErrScope):
		return err
	}
	p.set.mark(p.owner, i.object, i.Wave)
	if names := p.set.config.takenOver(); names != "" && !i.CreateOnly {
		annotations := i.object.GetAnnotations()
		annotations[annotationTakenOver] = names
		i.object.SetAnnotations(annotations)
	}
	i.placed = true
	return nil
}

// checkOwner reads the owner from the API server: before a cache is believed where the belief
// would destroy something, or leave something behind. A pass may be long, so each time anew (pruning
// asks once).
func (p *pass) checkOwner(ctx context.Context) error {
	live, err := client.Live(ctx, p.client, metadataOnly(p.ownerKind, p.owner))
	switch {
	case err != nil:
		return fmt.Errorf("look at the owner: %w", err)
	case live.GetDeletionTimestamp() != nil:
		return fmt.Errorf("the owner %s: %w", p, client.ErrTerminating)
	}
	p.live = live
	return nil
}

// ownerMoved reports whether the owner had another state, when it was checked, than the one from
// which the desired children were made. Most kinds count changes of their spec (the generation); of
// others, any change will do.
func (p *pass) ownerMoved() bool {
	if p.owner.GetGeneration() > 0 {
		return p.live.GetGeneration() != p.owner.GetGeneration()
	}
	return p.live.GetResourceVersion() != p.owner.GetResourceVersion()
}
