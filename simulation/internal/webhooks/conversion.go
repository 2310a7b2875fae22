package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/crds"
)

// conversionTimeout is the time that a call may take. Definitions cannot change it.
const conversionTimeout = 30 * time.Second

// Converter returns the Converter of a definition with the strategy Webhook, and nil for others. The calls are handled
// by the handler of the server's Admission. Their errors have the texts of the real server.
func Converter(s *apiserver.Server, crd *apiextensionsv1.CustomResourceDefinition) crds.Converter {
	if crd.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter {
		return nil
	}
	webhook := crd.Spec.Conversion.Webhook
	return func(obj *unstructured.Unstructured, to schema.GroupVersion) (*unstructured.Unstructured, error) {
		if !slices.Contains(webhook.ConversionReviewVersions, "v1") {
			return nil, errors.New("no supported conversion review versions")
		}
		a, _ := s.Admission().(*Admission)
		if a == nil {
			a = New(s) // objects are created before the test has a cluster: without a handler
		}
		return a.convert(webhook.ClientConfig, obj, to)
	}
}

var conversionCodec = sync.OnceValue(func() runtime.Codec { //nolint:gochecknoglobals // immutable
	scheme := runtime.NewScheme()
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	// without it, the error of such a response would be another one
	utilruntime.Must(apiextensionsv1beta1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).LegacyCodec(apiextensionsv1.SchemeGroupVersion,
		apiextensionsv1beta1.SchemeGroupVersion)
})

// convert calls a conversion webhook. As the real server, it sends one object in each review.
func (a *Admission) convert(
	config *apiextensionsv1.WebhookClientConfig, obj *unstructured.Unstructured, to schema.GroupVersion,
) (*unstructured.Unstructured, error) {
	from := obj.GroupVersionKind()
	converted, err := a.callConversion(config, obj, to)
	switch {
	case err != nil:
		//nolint:errorlint // its status is not that of the request
		return nil, fmt.Errorf("conversion webhook for %v failed: %v", from, err)
	case len(converted) != 1:
		return nil, fmt.Errorf("conversion webhook for %v returned %d objects, expected 1", from, len(converted))
	}
	result := &unstructured.Unstructured{}
	if err := result.UnmarshalJSON(converted[0].Raw); err != nil {
		return nil, err
	}
	actual := result.GroupVersionKind()
	switch {
	case actual.GroupVersion() != to:
		return nil, fmt.Errorf("conversion webhook for %v returned invalid object at index 0: invalid groupVersion "+
			"(expected %v, received %v)", from, to, actual.GroupVersion())
	case actual.Kind != from.Kind:
		return nil, fmt.Errorf("conversion webhook for %v returned invalid object at index 0: invalid kind (expected "+
			"%v, received %v)", from, from.Kind, actual.Kind)
	}
	if err := checkIdentity(obj, result); err != nil {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid object: %w", from, err)
	}
	if err := restoreMetadata(obj, result); err != nil {
		return nil, fmt.Errorf("conversion webhook for %v returned invalid metadata: %w", from, err)
	}
	return result, nil
}

// callConversion returns the objects of the response.
func (a *Admission) callConversion(
	config *apiextensionsv1.WebhookClientConfig, obj *unstructured.Unstructured, to schema.GroupVersion,
) ([]runtime.RawExtension, error) {
	client, err := a.client(&admissionregistrationv1.WebhookClientConfig{
		URL: config.URL, Service: (*admissionregistrationv1.ServiceReference)(config.Service),
	}, conversionCodec(), conversionTimeout)
	if err != nil {
		return nil, err
	}
	request := &apiextensionsv1.ConversionRequest{
		UID: a.newUID(), DesiredAPIVersion: to.String(),
		Objects: []runtime.RawExtension{{Object: obj}},
	}
	review := &apiextensionsv1.ConversionReview{}
	// as the real server sends it
	sent := &apiextensionsv1.ConversionReview{Request: request, Response: &apiextensionsv1.ConversionResponse{}}
	//nolint:forbidigo // as in the real server: the timeout limits the call, not the request
	if err := client.Post().Body(sent).Do(context.TODO()).Into(review); err != nil {
		return nil, err
	}
	return convertedObjects(review, request.UID)
}

func convertedObjects(review *apiextensionsv1.ConversionReview, uid types.UID) ([]runtime.RawExtension, error) {
	expected := apiextensionsv1.SchemeGroupVersion.WithKind("ConversionReview")
	r := review.Response
	switch {
	case review.GroupVersionKind() != expected:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", expected, review.GroupVersionKind())
	case r == nil:
		return nil, errors.New("no response provided")
	case r.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	case r.Result.Status == metav1.StatusSuccess:
		return r.ConvertedObjects, nil
	case r.Result.Message != "":
		return nil, errors.New(r.Result.Message)
	}
	return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", r.Result.Status)
}

// checkIdentity returns an error if a conversion changed what identifies the object.
func checkIdentity(before, after *unstructured.Unstructured) error {
	for _, part := range []struct{ name, before, after string }{
		{"name", before.GetName(), after.GetName()},
		{"namespace", before.GetNamespace(), after.GetNamespace()},
		{"UID", string(before.GetUID()), string(after.GetUID())},
	} {
		if part.before != part.after {
			return fmt.Errorf("must have the same %s: %s != %s", part.name, part.before, part.after)
		}
	}
	return nil
}

// restoreMetadata gives a converted object the metadata that it had, except labels and annotations. It may change
// before.
func restoreMetadata(before, after *unstructured.Unstructured) error {
	content, exists := after.Object["metadata"]
	if !exists {
		return errors.New("missing metadata in converted object")
	}
	returned, ok := content.(map[string]any)
	if !ok {
		return fmt.Errorf("invalid metadata of type %T in converted object", content)
	}
	metadata, _ := before.Object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	for _, name := range []string{"labels", "annotations"} {
		if returned[name] == nil {
			delete(metadata, name)
			continue
		}
		texts, ok := returned[name].(map[string]any)
		if !ok {
			return fmt.Errorf("invalid metadata.%s of type %T in converted object", name, returned[name])
		}
		if err := checkTexts(name, texts); err != nil {
			return err
		}
		metadata[name] = texts
	}
	after.Object["metadata"] = metadata
	return nil
}

// checkTexts returns an error if labels or annotations are invalid.
func checkTexts(name string, values map[string]any) error {
	texts := map[string]string{}
	for key, value := range values {
		text, ok := value.(string)
		if !ok {
			return fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, value)
		}
		texts[key] = text
	}
	if name == "labels" {
		return metav1validation.ValidateLabels(texts, field.NewPath("metadata", "labels")).ToAggregate()
	}
	return validation.ValidateAnnotations(texts, field.NewPath("metadata", "annotation")).ToAggregate()
}
