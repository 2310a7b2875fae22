package webhooks

import (
	"errors"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// admissionCodec decodes and encodes reviews of both versions, and keeps the kind of a response.
var admissionCodec = sync.OnceValue(func() runtime.Codec { //nolint:gochecknoglobals // immutable
	scheme := runtime.NewScheme()
	utilruntime.Must(admissionv1beta1.AddToScheme(scheme))
	utilruntime.Must(admissionv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1beta1.SchemeGroupVersion,
		admissionv1.SchemeGroupVersion)
})

// review is a review in one version.
type review interface {
	of(request *admissionv1.AdmissionRequest) runtime.Object
	// response returns the object into which the response is decoded.
	response() runtime.Object
	// checked returns the decoded response, or an error if a webhook must not return it.
	checked(uid types.UID, mutating bool) (*admissionv1.AdmissionResponse, error)
}

type reviewV1 struct{ admissionv1.AdmissionReview }

func (v *reviewV1) of(request *admissionv1.AdmissionRequest) runtime.Object {
	return &admissionv1.AdmissionReview{Request: request}
}

func (v *reviewV1) response() runtime.Object { return &v.AdmissionReview }

func (v *reviewV1) checked(uid types.UID, mutating bool) (*admissionv1.AdmissionResponse, error) {
	expected := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	r := v.Response
	switch {
	case r == nil:
		return nil, errors.New("webhook response was absent")
	case r.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	case v.GroupVersionKind() != expected:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", expected, v.GroupVersionKind())
	case !mutating && len(r.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return nil, fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return r, nil
}

// reviewV1beta1 is a review of the former version. The server does not check the uid, the version and the type of the
// patch of its response.
type reviewV1beta1 struct {
	admissionv1beta1.AdmissionReview
}

func (v *reviewV1beta1) of(r *admissionv1.AdmissionRequest) runtime.Object {
	return &admissionv1beta1.AdmissionReview{Request: &admissionv1beta1.AdmissionRequest{
		UID: r.UID, Kind: r.Kind, Resource: r.Resource, SubResource: r.SubResource, RequestKind: r.RequestKind,
		RequestResource: r.RequestResource, RequestSubResource: r.RequestSubResource, Name: r.Name,
		Namespace: r.Namespace,
		Operation: admissionv1beta1.Operation(r.Operation), UserInfo: r.UserInfo, Object: r.Object,
		OldObject: r.OldObject,
		DryRun:    r.DryRun, Options: r.Options,
	}}
}

func (v *reviewV1beta1) response() runtime.Object { return &v.AdmissionReview }

func (v *reviewV1beta1) checked(_ types.UID, mutating bool) (*admissionv1.AdmissionResponse, error) {
	r := v.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	response := &admissionv1.AdmissionResponse{Allowed: r.Allowed, Result: r.Result, Warnings: r.Warnings}
	if mutating && len(r.Patch) > 0 {
		response.Patch, response.PatchType = r.Patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return response, nil
}
