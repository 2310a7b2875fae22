package client

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/kube"
)

// SetLabels sets these labels of the object by a merge patch of those that differ in obj. It keeps other
// labels. If nothing differs, it makes no request and returns obj and false; otherwise the patched object and
// true.
//
// obj is the object as it was read, from a cache or the API server, of any type; metadata is enough. SetLabels
// does not change it. If it has a uid, only that object is patched.
//
// Options: DryRun, FieldOwner, FieldValidation.
//
// Errors: ErrGone; ErrReplaced if another object has the name; labels that the API server would reject.
func SetLabels[T kube.Object](
	ctx context.Context, c *Client, obj T, labels map[string]string, options ...WriteOption,
) (T, bool, error) {
	return setMetadata(ctx, c, obj, "set labels", "labels", valuesOf(labels), checkLabels(labels), options)
}

// RemoveLabels removes the labels with these keys from the object. Otherwise it works like SetLabels.
func RemoveLabels[T kube.Object](
	ctx context.Context, c *Client, obj T, keys []string, options ...WriteOption,
) (T, bool, error) {
	return setMetadata(ctx, c, obj, "remove labels", "labels", removed(keys), nil, options)
}

// SetAnnotations is SetLabels for annotations.
func SetAnnotations[T kube.Object](
	ctx context.Context, c *Client, obj T, annotations map[string]string, options ...WriteOption,
) (T, bool, error) {
	invalid := validation.ValidateAnnotations(annotations, field.NewPath("metadata", "annotations")).ToAggregate()
	return setMetadata(ctx, c, obj, "set annotations", "annotations", valuesOf(annotations), invalid, options)
}

// RemoveAnnotations is RemoveLabels for annotations.
func RemoveAnnotations[T kube.Object](
	ctx context.Context, c *Client, obj T, keys []string, options ...WriteOption,
) (T, bool, error) {
	return setMetadata(ctx, c, obj, "remove annotations", "annotations", removed(keys), nil, options)
}

func checkLabels(labels map[string]string) error {
	return metav1validation.ValidateLabels(labels, field.NewPath("metadata", "labels")).ToAggregate()
}

// valuesOf and removed return the values of a merge patch: null removes a key.
func valuesOf(set map[string]string) map[string]*string {
	values := map[string]*string{}
	for key, value := range set {
		values[key] = &value
	}
	return values
}

func removed(keys []string) map[string]*string {
	values := map[string]*string{}
	for _, key := range keys {
		values[key] = nil
	}
	return values
}

// setMetadata patches labels or annotations to the wanted values; nil removes a key.
func setMetadata[T kube.Object](
	ctx context.Context, c *Client, obj T, action, name string, wanted map[string]*string, invalid error,
	options []WriteOption,
) (T, bool, error) {
	var none T
	t, err := begin(ctx, c, action, obj, options)
	if err != nil {
		return none, false, err
	}
	if invalid != nil {
		return none, false, fmt.Errorf("%s: %s: %w", action, t, invalid)
	}
	present := obj.GetLabels()
	if name == "annotations" {
		present = obj.GetAnnotations()
	}
	for key, value := range wanted {
		if now, exists := present[key]; exists == (value != nil) && (!exists || now == *value) {
			delete(wanted, key)
		}
	}
	if len(wanted) == 0 {
		return obj, false, nil
	}
	metadata := map[string]any{name: wanted}
	if obj.GetUID() != "" {
		metadata["uid"] = obj.GetUID()
	}
	patched, err := sendPatch(ctx, t, mergeBody(map[string]any{"metadata": metadata}), obj)
	if err != nil {
		return none, false, fmt.Errorf("%s: %s: %w", action, t, t.asReplaced(err, obj.GetUID()))
	}
	return patched, true, nil
}
