package watched

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
}

// setName identifies a set of children in a cluster.
type setName struct {
	name  string
	owner schema.GroupKind
}

// Prepare implements controller.Source.
func (s ownerSource) Prepare(target controller.Target) (controller.PreparedSource, error) {
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
	start := prepared.Start
	prepared.Start = func(ctx context.Context, enqueue controller.Enqueue) func() error {
		release, other := apiobject.ClaimsOf(s.cluster.HTTPClient()).Claim(name, s.holder, target.Controller)
		if release == nil {
			return func() error {
				return fmt.Errorf("set %q of children of %s is used by controller %q already, and both would delete "+
					"the children of the other: set another Set.Name", name.name, name.owner.Kind, other)
			}
		}
		run := start(ctx, enqueue)
		return func() error {
			defer release()
			return run()
		}
	}
	return prepared, nil
}
