package owned

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// takenOver returns the value of annotationTakenOver; "" without former managers.
func (c Config) takenOver() string { return strings.Join(c.Former.Managers, ",") }

// mustTakeOver reports whether former managers may still own fields of a child.
func (p *pass) mustTakeOver(i *item, live metav1.Object) bool {
	return len(p.set.config.Former.Managers) > 0 && !i.CreateOnly &&
		live.GetAnnotations()[annotationTakenOver] != p.set.config.takenOver()
}

// takeOver makes the set the field manager of the fields that former managers own in a child. It reads the child first,
// and returns it as it is after the take-over. The next apply sets the annotation.
func (p *pass) takeOver(ctx context.Context, i *item) (*metav1.PartialObjectMetadata, error) {
	live, err := p.getLive(ctx, i)
	if err != nil {
		return nil, err
	}
	if ownership, holder := p.ownershipOf(live); ownership == foreign || ownership == orphan &&
		!p.set.config.AdoptOrphans {
		return nil, &ForeignError{kind: i.kind, key: kube.KeyOf(live), Holder: holder, Orphan: ownership == orphan}
	}
	changed, err := client.TakeOver(ctx, p.client, metadataOnly(i.kind, live), p.set.config.Former.Managers,
		client.IfUnchanged())
	if err != nil || !changed {
		return live, err
	}
	return p.getLive(ctx, i)
}

// planTakeOver adds the fields that an apply after a take-over would remove to the result of a dry run.
func (p *pass) planTakeOver(ctx context.Context, i *item) error {
	live, err := client.Get[*unstructured.Unstructured](ctx, p.client, i.result.Key, client.OfKind(i.kind),
		client.FromAPI())
	if err != nil {
		return err
	}
	left, err := client.LeftFields(ctx, p.client, live, i.result.Object, p.set.config.Former.Managers)
	if err == nil && len(left) > 0 {
		i.result.Outcome = Updated
		i.result.Changed = append(i.result.Changed, left...)
		slices.SortStableFunc(i.result.Changed, func(a, b client.FieldChange) int {
			return strings.Compare(a.Path, b.Path)
		})
	}
	return err
}

// isFormerConflict reports whether an apply failed only because of conflicts with former managers.
func (c Config) isFormerConflict(err error) bool {
	conflict, ok := errors.AsType[*client.ConflictError](err)
	return ok && !slices.ContainsFunc(conflict.Conflicts, func(f client.FieldConflict) bool {
		return !slices.Contains(c.Former.Managers, f.Manager)
	})
}

// maxLeftFieldsShown is the number of left fields that a note contains.
const maxLeftFieldsShown = 5

// reportLeftFields notes the undesired fields of a child that stay because managers, earlier versions of the program,
// own them. The child is applied already, so an error here is only logged.
func (p *pass) reportLeftFields(ctx context.Context, i *item, managers []string) {
	if len(managers) == 0 || p.plan {
		return
	}
	left, err := client.LeftFields(ctx, p.client, i.result.Object, i.result.Object, managers)
	if err != nil {
		p.client.Cluster().Logger().WarnContext(ctx, "failed to find fields of former managers",
			"owner", p.String(), "child", i.result.String(), "managers", managers, "error", err)
	}
	if len(left) == 0 {
		return
	}
	var paths []string
	for _, field := range left {
		if len(paths) == maxLeftFieldsShown {
			paths = append(paths, fmt.Sprintf("and %d more", len(left)-maxLeftFieldsShown))
			break
		}
		paths = append(paths, field.Path)
	}
	i.result.Note = fmt.Sprintf("fields that %s wrote by Update stay: %s; Former.Managers removes them",
		strings.Join(managers, " and "), strings.Join(paths, ", "))
	p.client.Cluster().Logger().WarnContext(ctx, "child has fields of former managers",
		"owner", p.String(), "child", i.result.String(), "managers", managers, "fields", paths)
}
