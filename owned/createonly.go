package owned

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned/ownerref"
)

// applyCreateOnly restores the labels, annotations and owner reference of a CreateOnly child that exists, and leaves
// its other fields to other clients. It sends a patch, because an apply without the other fields would remove those
// with which the child was created.
func (p *pass) applyCreateOnly(ctx context.Context, i *item, live *metav1.PartialObjectMetadata) error {
	if err := p.checkGiven(ctx, i, live); err != nil {
		return err
	}
	marked := live.DeepCopy()
	if i.referable {
		if err := ownerref.SetController(ctx, p.client, p.owner, marked); err != nil {
			return fmt.Errorf("apply %s, which is create-only: %w", i.result, err)
		}
	}
	p.set.mark(p.ownerKind.GroupKind(), p.owner, marked, i.Wave)
	patch := client.MergeFrom(live, marked).Locked(live) // a merge patch replaces the list of owner references
	if !patch.Empty() {
		if _, err := client.Patch(ctx, p.client, live, patch); err != nil {
			return err
		}
	}
	var err error
	if i.result.Object, err = p.read(ctx, i); err != nil {
		return err
	}
	if i.result.Outcome = Unchanged; !patch.Empty() {
		i.result.Outcome, i.result.Changed = Updated, client.Diff(p.client, live, marked)
	}
	i.result.Readiness = i.Ready(i.result.Object)
	return nil
}

// read reads the object of a child: without options, from the API server if the informer does not have the child yet.
func (p *pass) read(ctx context.Context, i *item, options ...client.ReadOption) (kube.Object, error) {
	key, ofKind := kube.KeyOf(i.object), client.OfKind(i.kind)
	obj, err := client.Get[*unstructured.Unstructured](ctx, p.client, key, append(options, ofKind)...)
	if errors.Is(err, client.ErrGone) && len(options) == 0 && p.isCovered(i) {
		obj, err = client.Get[*unstructured.Unstructured](ctx, p.client, key, ofKind, client.FromAPI())
	}
	if err != nil {
		return nil, err
	}
	converted, err := convertLike(i.object, obj)
	if err != nil {
		return nil, fmt.Errorf("convert %s to %T: %w", i.result, i.object, err)
	}
	return converted, nil
}

// convertLike returns obj as the type of desired, because Child.Ready may expect that type.
func convertLike(desired kube.Object, obj *unstructured.Unstructured) (kube.Object, error) {
	if reflect.TypeOf(desired) == reflect.TypeOf(obj) {
		return obj, nil
	}
	typed := reflect.New(reflect.TypeOf(desired).Elem()).Interface().(kube.Object)
	// The converter of apimachinery panics at unexported fields.
	encoded, err := json.Marshal(obj.Object)
	if err == nil {
		err = utiljson.Unmarshal(encoded, typed)
	}
	return typed, err
}
