package apiserver

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
)

// maxPatchOperations is the number of operations that a JSON patch may have.
const maxPatchOperations = 10_000

func (r *request) patchType() types.PatchType {
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return types.PatchType(media)
}

// applies reports whether the request is a server-side apply.
func (r *request) applies() bool {
	return r.Method == http.MethodPatch && r.patchType() == types.ApplyYAMLPatchType
}

// checkPatchType returns an error unless the kind supports the type of patch.
func (r *request) checkPatchType() error {
	supported := []string{string(types.JSONPatchType), string(types.MergePatchType), string(types.ApplyYAMLPatchType)}
	switch {
	case slices.Contains(supported, string(r.patchType())):
		return nil
	case r.kind.custom():
		return unsupportedMediaType(supported)
	case r.patchType() == types.StrategicMergePatchType:
		return nil
	}
	const code = http.StatusUnsupportedMediaType
	return apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", "415: Unsupported Media Type",
		0, false)
}

func (r *request) patch() (*response, error) {
	body, err := r.body()
	if err != nil {
		return nil, err
	}
	options, err := r.patchOptions(r.patchType())
	if err != nil {
		return nil, err
	}
	part := r.ofBody()
	return r.replace("", options, func(current Object) (Object, error) {
		return r.changeBody(current, func(current Object) (Object, error) {
			return part.patched(current, body, options)
		})
	})
}

// patched applies the patch in a body to current, which is nil for a new object.
func (r *request) patched(current Object, body []byte, options writeOptions) (Object, error) {
	var obj Object
	var err error
	switch r.patchType() {
	case types.ApplyYAMLPatchType:
		obj, err = r.apply(current, body, options)
	case types.StrategicMergePatchType:
		obj, err = r.strategicPatch(current, body, options)
	default:
		obj, err = r.jsonPatch(current, body, options)
	}
	if err != nil {
		return nil, err
	}
	if !r.applies() {
		obj = r.manage(current, obj, options)
	}
	if uid := obj.GetUID(); current == nil && uid != "" {
		return nil, apierrors.NewConflict(r.kind.groupResource(), r.name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", uid))
	}
	if err := r.setNamespace(obj); err != nil {
		return nil, err
	}
	if err := r.checkName(obj); err != nil {
		return nil, err
	}
	if err := r.mutate(obj, current, options); err != nil {
		return nil, err
	}
	r.removeDuplicateOwners(obj, true)
	return obj, nil
}

// apply merges an applied configuration into current; current is nil for a new object.
func (r *request) apply(current Object, body []byte, options writeOptions) (Object, error) {
	if current == nil {
		current = r.kind.blank()
	}
	content, strictErr, err := decodeApplied(body, options.strict())
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding YAML: %v", err))
	}
	patch := &unstructured.Unstructured{Object: content}
	merged, err := r.serving.managers[scope{r.kind, r.subresource}].Apply(current, patch, options.manager,
		options.force)
	if r.scaled() && r.custom {
		err = r.scaleError(current, patch, merged, err)
	}
	if err != nil {
		return nil, sortCauses(err)
	}
	obj := merged.(Object)
	truncateTimes(obj)
	switch {
	case strictErr == nil:
	case options.validation == metav1.FieldValidationStrict:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error strict decoding YAML: %v", strictErr))
	default:
		r.warnStrict([]error{strictErr})
	}
	return obj, nil
}

// sortCauses sorts the causes of a conflict, which have a random order.
func sortCauses(err error) error {
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) && status.ErrStatus.Details != nil {
		slices.SortFunc(status.ErrStatus.Details.Causes, func(a, b metav1.StatusCause) int {
			return cmp.Or(cmp.Compare(a.Message, b.Message), cmp.Compare(a.Field, b.Field))
		})
	}
	return err
}

// decodeApplied decodes an applied configuration in YAML. With strict it also looks for duplicate keys. JSON, which
// most clients send, is not decoded as YAML, because that takes ten times as long; except for escapes, which YAML reads
// differently.
func decodeApplied(body []byte, strict bool) (content map[string]any, strictErr, err error) {
	content = map[string]any{}
	if len(body) > 0 && body[0] == '{' && !bytes.Contains(body, []byte(`\u`)) {
		duplicates, err := kjson.UnmarshalStrict(body, &content)
		if err == nil && len(duplicates) == 0 {
			integers(content) // as the decoder of YAML, for which 2.0 is 2
			return content, nil, nil
		}
		content = map[string]any{}
	}
	if err := yaml.Unmarshal(body, &content); err != nil {
		return nil, nil, err
	}
	if strict {
		strictErr = yaml.UnmarshalStrict(body, &map[string]any{})
	}
	return content, strictErr, nil
}

// jsonPatch applies a JSON patch or a merge patch.
func (r *request) jsonPatch(current Object, body []byte, options writeOptions) (Object, error) {
	if u, ok := current.(*unstructured.Unstructured); ok && r.patchType() == types.MergePatchType {
		if obj := r.mergeCustom(u, body); obj != nil {
			return obj, nil
		}
	}
	before, err := r.serving.codecs.encode(current, mediaJSON)
	if err != nil {
		return nil, err
	}
	var after []byte
	var strict []error
	if r.patchType() == types.JSONPatchType {
		after, strict, err = applyJSONPatch(before, body, options)
	} else {
		after, strict, err = applyMergePatch(before, body, options)
	}
	if err != nil {
		return nil, err
	}
	obj, _, err := r.serving.codecs.decode(r.kind, after, mediaJSON, options.strict())
	if err != nil && obj == nil {
		return nil, invalidPatch(string(after), err)
	}
	if u, ok := obj.(*unstructured.Unstructured); ok && u.GetAPIVersion() == "" {
		return nil, apierrors.NewInternalError(runtime.NewMissingVersionErr("object has no apiVersion field"))
	}
	return obj, r.checkStrict(append(strict, strictErrors(err)...), string(after), options)
}

// mergeCustom applies a merge patch to a copy of a custom resource, which takes less time than to encode, merge and
// decode it. It returns nil for patches that have errors or warnings, because those contain the encoded object.
func (r *request) mergeCustom(current *unstructured.Unstructured, body []byte) Object {
	var patch map[string]any
	if strict, err := kjson.UnmarshalStrict(body, &patch); err != nil || len(strict) > 0 || patch == nil {
		return nil
	}
	for _, key := range []string{"apiVersion", "kind"} {
		if _, exists := patch[key]; exists {
			return nil
		}
	}
	obj := current.DeepCopy()
	mergeObjects(obj.Object, patch)
	if unknown, err := r.kind.coerce(obj, true); err != nil || len(unknown) > 0 {
		return nil
	}
	if r.kind.Rules.Default != nil {
		r.kind.Rules.Default(obj)
	}
	return obj
}

// mergeObjects merges patch into object, which then shares values with it.
func mergeObjects(object, patch map[string]any) {
	for key, value := range patch {
		current := object[key]
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			if into, ok := current.(map[string]any); ok {
				mergeObjects(into, value)
				continue
			}
			object[key] = removeNulls(value)
		default:
			if _, ok := current.(map[string]any); !ok { // as the JSON library does
				value = removeNulls(value)
			}
			object[key] = value
		}
	}
}

// removeNulls removes the members of objects that are null.
func removeNulls(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			if element == nil {
				delete(v, key)
				continue
			}
			removeNulls(element)
		}
	case []any:
		for _, element := range v {
			removeNulls(element)
		}
	}
	return value
}

// checkStrict turns strict errors of a patch into warnings or into an error, as the options demand.
func (r *request) checkStrict(strict []error, patched string, options writeOptions) error {
	if len(strict) == 0 {
		return nil
	}
	if options.validation != metav1.FieldValidationWarn {
		return invalidPatch(patched, runtime.NewStrictDecodingError(strict))
	}
	r.warnStrict(strict)
	return nil
}

func invalidPatch(patched string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "",
		field.ErrorList{field.Invalid(field.NewPath("patch"), patched, err.Error())})
}

// patchOperation is the form of an operation of a JSON patch, for strict decoding.
type patchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func applyJSONPatch(before, body []byte, options writeOptions) (after []byte, strict []error, err error) {
	if options.strict() {
		var operations []patchOperation
		if strict, err = kjson.UnmarshalStrict(body, &operations); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
		for i, e := range strict {
			strict[i] = fmt.Errorf("json patch %w", e)
		}
	}
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if len(patch) > maxPatchOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxPatchOperations, len(patch)))
	}
	if after, err = patch.Apply(before); err != nil {
		return nil, nil, unprocessable(err)
	}
	return after, strict, nil
}

func applyMergePatch(before, body []byte, options writeOptions) (after []byte, strict []error, err error) {
	if options.strict() {
		if strict, err = kjson.UnmarshalStrict(body, &map[string]any{}); err != nil {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
		}
	}
	after, err = jsonpatch.MergePatch(before, body)
	if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
		err = apierrors.NewBadRequest(err.Error())
	}
	return after, strict, err
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "",
		err.Error(), 0, false)
}

// strategicPatch applies a strategic merge patch to an object of a Go type.
func (r *request) strategicPatch(current Object, body []byte, options writeOptions) (Object, error) {
	before, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return nil, fmt.Errorf("convert a %s for a patch: %w", r.kind.Kind, err)
	}
	patch := map[string]any{}
	var strict []error
	if options.strict() {
		strict, err = kjson.UnmarshalStrict(body, &patch)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &patch)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	after, err := strategicpatch.StrategicMergeMapPatch(before, patch, r.kind.NewObject())
	switch {
	case errors.Is(err, mergepatch.ErrBadJSONDoc), errors.Is(err, mergepatch.ErrBadPatchFormatForPrimitiveList),
		errors.Is(err, mergepatch.ErrBadPatchFormatForRetainKeys),
		errors.Is(err, mergepatch.ErrBadPatchFormatForSetElementOrderList),
		errors.Is(err, mergepatch.ErrUnsupportedStrategicMergePatchFormat):
		return nil, apierrors.NewBadRequest(err.Error())
	case errors.Is(err, mergepatch.ErrNoListOfLists), errors.Is(err, mergepatch.ErrPatchContentNotMatchRetainKeys):
		return nil, unprocessable(err)
	case err != nil:
		return nil, err
	}
	obj := r.kind.NewObject()
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(after, obj, options.strict())
	shown := fmt.Sprintf("%+v", patch)
	if err != nil && !runtime.IsStrictDecodingError(err) {
		return nil, invalidPatch(shown, err)
	}
	if err := r.checkStrict(append(strict, strictErrors(err)...), shown, options); err != nil {
		return nil, err
	}
	if r.kind.Rules.Default != nil {
		r.kind.Rules.Default(obj)
	}
	return obj, nil
}
