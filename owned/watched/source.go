package watched

import (
	"context"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/source"
)

// ownerSource enqueues the owners of children that are of the controller's kind. While it runs, no other set of its
// name may have a controller of that kind.
type ownerSource struct {
	objects informer.Any
	set     string
	cluster *kube.Cluster
	holder  *Children
	given   *atomic.Bool // to a controller
}

// setName identifies a set of children in a cluster.
type setName struct {
	name  string
	owner schema.GroupKind
}

// Prepare implements controller.Source.
func (s ownerSource) Prepare(target controller.Target) (controller.PreparedSource, error) {
	s.given.Store(true)
	name := setName{s.set, target.Kind.GroupKind()}
	var kinds []schema.GroupKind
	if name.owner.Kind != "" {
		kinds = append(kinds, name.owner)
	}
	owners := owned.OwnerKeys[*metav1.PartialObjectMetadata](s.set, kinds...)
	prepared, err := source.OwnedBy(s.objects, owners).Prepare(target)
	if err != nil {
		return prepared, err
	}
	s.require(target.Controller)
	start := prepared.Start
	prepared.Start = func(ctx context.Context, enqueue controller.Enqueue) (func() error, error) {
		release, other := apiobject.ClaimsOf(s.cluster.HTTPClient()).Claim(name, s.holder, target.Controller)
		if release == nil {
			return nil, fmt.Errorf("set %q of children of %s is used by controller %q already, and both would delete "+
				"the children of the other: set another Set.Name", name.name, name.owner.Kind, other)
		}
		run, err := start(ctx, enqueue)
		if err != nil || run == nil {
			release()
			return nil, err
		}
		return func() error {
			defer release()
			return run()
		}, nil
	}
	return prepared, nil
}

// require records what the set does with the objects of a controller, which own the children.
func (s ownerSource) require(controller string) {
	verbs := []string{"get"} // before children are created or deleted
	switch s.objects.Kind().GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupKind{Kind: "Pod"}:
		verbs = []string{"get", "patch"} // for owned.Child.Once, which is not known before Apply
	}
	observers := apiobject.ObserversOf(s.cluster)
	observers.Join(s.holder.Set, controller)
	observers.Require(
		apiobject.Permission{Part: s.holder.Set, Verbs: verbs},
		// for OwnerReferencesPermissionEnforcement: references block the deletion
		apiobject.Permission{Part: s.holder.Set, Subresource: "finalizers", Verbs: []string{"update"}},
	)
}

// reportSources is a client.Interceptor. It warns once if a handler makes requests although a source was not given to a
// controller: then the informer of its kind does not run, and each run requests idle children.
func (c *Children) reportSources(next client.RoundTrip) client.RoundTrip {
	return func(ctx context.Context, r *client.Request) error {
		if c.reported.Load() {
			return next(ctx, r)
		}
		if _, ok := controller.RunFrom(ctx); ok && !c.reported.Swap(true) {
			var missing []string
			for _, source := range c.Sources {
				if own, ok := source.(ownerSource); ok && !own.given.Load() && !own.objects.Health().Synced {
					missing = append(missing, own.objects.Kind().Kind)
				}
			}
			if len(missing) > 0 {
				controller.LoggerFrom(ctx).WarnContext(ctx, "children are not watched: each run requests them",
					"kinds", missing, "hint", "set Config.Sources of the controller to Children.Sources")
			}
		}
		return next(ctx, r)
	}
}
