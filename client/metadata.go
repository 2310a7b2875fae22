package client

import (
	"context"
	"errors"
	"maps"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/kube"
)

// EditMetadata changes labels and annotations of the object by a merge patch of what edit changes in copies of those
// of obj, which are never nil. It keeps other labels and annotations. If nothing differs, it makes no request and
// returns obj and false; otherwise the patched object and true.
//
//	_, changed, err := client.EditMetadata(ctx, c, pod, func(labels, annotations map[string]string) {
//		labels["tier"] = "web"
//		delete(annotations, "shop.example.com/paused")
//	})
//
// obj is the object as it was read, from a cache or the API server, of any type; metadata is enough. EditMetadata
// does not change it. If it has a uid, only that object is patched.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: ErrGone; ErrReplaced if another object has the name; changes that the API server would reject.
func EditMetadata[T kube.Object](
	ctx context.Context, c *Client, obj T, edit func(labels, annotations map[string]string), options ...WriteOption,
) (T, bool, error) {
	var none T
	t, err := begin(ctx, c, "edit the metadata of", obj, options, optionsOfWrite)
	if err != nil {
		return none, false, err
	}
	if edit == nil {
		return none, false, t.failed(errors.New("the function edit is nil"))
	}
	labels, annotations := map[string]string{}, map[string]string{}
	maps.Copy(labels, obj.GetLabels())
	maps.Copy(annotations, obj.GetAnnotations())
	edit(labels, annotations)
	path := field.NewPath("metadata", "annotations")
	labelPatch, setLabels := changed(obj.GetLabels(), labels)
	annotationPatch, setAnnotations := changed(obj.GetAnnotations(), annotations)
	err = errors.Join(checkLabels(setLabels), validation.ValidateAnnotations(setAnnotations, path).ToAggregate())
	if err != nil {
		return none, false, t.failed(err)
	}
	metadata := map[string]any{}
	if len(labelPatch) > 0 {
		metadata["labels"] = labelPatch
	}
	if len(annotationPatch) > 0 {
		metadata["annotations"] = annotationPatch
	}
	if len(metadata) == 0 {
		return obj, false, nil
	}
	if obj.GetUID() != "" {
		metadata["uid"] = obj.GetUID()
	}
	patched, err := sendPatch(ctx, t, mergeBody(map[string]any{"metadata": metadata}), obj)
	if err != nil {
		return none, false, t.failed(t.asReplaced(err, obj.GetUID()))
	}
	return patched, true, nil
}

func checkLabels(labels map[string]string) error {
	return metav1validation.ValidateLabels(labels, field.NewPath("metadata", "labels")).ToAggregate()
}

// changed returns the difference as a merge patch, in which null removes a key, and the part of it that sets values.
func changed(before, after map[string]string) (patch map[string]any, set map[string]string) {
	patch, set = map[string]any{}, map[string]string{}
	for key, value := range after {
		if old, exists := before[key]; !exists || old != value {
			patch[key], set[key] = value, value
		}
	}
	for key := range before {
		if _, exists := after[key]; !exists {
			patch[key] = nil
		}
	}
	return patch, set
}
