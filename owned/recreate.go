package owned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// recreate deletes a child with immutable fields, if it still belongs to the owner. The next run creates it.
func (p *pass) recreate(
	ctx context.Context, i *item, live *metav1.PartialObjectMetadata, reason *immutableError,
) error {
	i.result.Note = reason.changed() + " cannot be changed"
	if err := p.checkOwner(ctx); err != nil {
		return fmt.Errorf("recreate %s: %w", i.result, err)
	}
	if p.ownerChanged() {
		i.result.Outcome, i.result.Waits = outcomeWaiting, waitsForOwner
		return nil
	}
	deletes, loop := p.checkLoop(i.identity(), live.UID)
	if !deletes {
		return loop
	}
	err := client.DeleteLive(ctx, p.client, metadataOnly(i.kind, live), func(live *metav1.PartialObjectMetadata) error {
		if ownership, holder := p.ownershipOf(live); ownership != own {
			return &ForeignError{kind: i.kind, key: kube.KeyOf(live), Holder: holder, Orphan: ownership == orphan}
		}
		return nil
	}, client.Propagation(cmp.Or(i.Propagation, p.set.config.Propagation)))
	if err != nil && !errors.Is(err, client.ErrGone) {
		return err
	}
	i.result.Outcome = outcomeRecreating
	p.noteDeletion(i.identity(), live.UID)
	p.recordRecreating(i)
	return loop
}

// recordRecreating writes an Event about a child that was deleted to be created again.
func (p *pass) recordRecreating(i *item) {
	p.record(corev1.EventTypeNormal, "ChildRecreating", "Delete",
		fmt.Sprintf("%s is recreated: %s", i.result, i.result.Note))
}

// immutableFields returns the fields that the API server refused to update because they are immutable. ok is false if
// it gave any other reason too: it would reject a new object as well, so the old one must stay.
func immutableFields(err error) (fields []string, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) || status.Status().Details == nil {
		return nil, false
	}
	causes := status.Status().Details.Causes
	for _, cause := range causes {
		if !isImmutable(cause) {
			return nil, false
		}
		if cause.Field != "" && !slices.Contains(fields, cause.Field) {
			fields = append(fields, cause.Field)
		}
	}
	return fields, len(causes) > 0
}

// nameFields replaces "spec" in the fields of an error by the fields below it that must change, because the API server
// does not name those of a StatefulSet. The text of the API server quotes the fields that may change.
func (p *pass) nameFields(ctx context.Context, i *item, reason *immutableError) {
	at := slices.Index(reason.fields, "spec")
	if at < 0 {
		return
	}
	live, err := client.Get[*unstructured.Unstructured](ctx, p.client, i.result.Key, client.OfKind(i.kind),
		client.FromAPI())
	if err != nil {
		return // the field that the API server has named is good enough
	}
	var named []string
	for _, change := range client.Diff(p.client, live, i.object) {
		field, inSpec := strings.CutPrefix(change.Path, "spec.")
		name := regexp.MustCompile(`^\w*`).FindString(field)
		if inSpec && change.After != nil && !strings.Contains(reason.err.Error(), "'"+name+"'") {
			named = append(named, change.Path)
		}
	}
	if len(named) > 0 {
		reason.fields = slices.Replace(reason.fields, at, at+1, named...)
	}
}

// isImmutable reports whether the text of a cause means an immutable field. The API has no code for it. The phrases are
// those of k8s.io/kubernetes/pkg/apis/*/validation and of common validation rules in CustomResourceDefinitions.
//
// Values in the text may contain anything and must not be searched. Causes of the type Invalid have the value before
// the last colon. Causes of the type Forbidden have no value, but some have a diff in further lines.
func isImmutable(cause metav1.StatusCause) bool {
	text := cause.Message
	switch cause.Type {
	case metav1.CauseTypeFieldValueInvalid:
		text = text[strings.LastIndex(text, ": ")+1:]
	case metav1.CauseTypeForbidden:
		text, _, _ = strings.Cut(text, "\n")
	default:
		return false
	}
	for _, phrase := range []string{
		"immutable", "may not change", "may not be changed", "cannot change", "cannot be changed", "can't be changed",
		"updates to ", "may not be updated", "cannot be updated",
	} {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
