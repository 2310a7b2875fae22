package webhooks

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// callError is a call that failed: the webhook neither allowed nor denied the request.
type callError struct {
	webhook string
	reason  error
}

func (e *callError) Error() string {
	return fmt.Sprintf("failed calling webhook %q: %v", e.webhook, e.reason)
}
func (e *callError) Unwrap() error { return e.reason }

var reviewKind = admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") //nolint:gochecknoglobals // a constant

// call calls a webhook and returns its patch. Errors: a callError, and the status of a denial.
func (a *Admission) call(ctx context.Context, c *invocation) (jsonpatch.Patch, error) {
	fail := func(format string, args ...any) (jsonpatch.Patch, error) {
		return nil, &callError{c.hook.Name, fmt.Errorf(format, args...)}
	}
	if !slices.Contains(c.hook.AdmissionReviewVersions, "v1") {
		return fail("the simulated cluster has only version v1 of AdmissionReview, and the webhook has %v", c.hook.AdmissionReviewVersions)
	}
	request, err := c.request(a.newUID())
	if err != nil {
		return fail("could not create admission objects: %w", err)
	}
	client, err := a.client(&c.hook.ClientConfig, admissionCodec(), 0)
	if err != nil {
		return fail("could not get REST client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	review := &admissionv1.AdmissionReview{}
	if err := client.Post().Body(request).Timeout(c.timeout()).Do(ctx).Into(review); err != nil {
		return fail("failed to call webhook: %w", err)
	}
	patch, err := checkResponse(review, request.Request.UID, c.hook.mutating)
	if err != nil {
		return fail("received invalid webhook response: %w", err)
	}
	for _, text := range review.Response.Warnings {
		c.review.Warn(text)
	}
	if !review.Response.Allowed {
		return nil, denial(c.hook.Name, review.Response.Result)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return fail("received undecodable patch in webhook response: %w", err)
	}
	return decoded, nil
}

// newUID returns the uid of the next call, which is the same in each run of a test.
func (a *Admission) newUID() types.UID {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	tail := binary.BigEndian.AppendUint64(nil, a.calls)
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%x", tail[2:]))
}

// request returns the review that is sent.
func (c *invocation) request(uid types.UID) (*admissionv1.AdmissionReview, error) {
	r, by := c.review, requester()
	namespace := r.Namespace
	if r.Resource.Group == "" && r.Resource.Resource == "namespaces" {
		namespace = r.Name // as in the real server
	}
	request := &admissionv1.AdmissionRequest{
		UID: uid, Kind: metav1.GroupVersionKind(c.kind), Resource: metav1.GroupVersionResource(c.resource), SubResource: r.Subresource,
		RequestKind: (*metav1.GroupVersionKind)(&r.Kind), RequestResource: (*metav1.GroupVersionResource)(&r.Resource),
		RequestSubResource: r.Subresource, Name: r.Name, Namespace: namespace, Operation: admissionv1.Operation(r.Operation),
		UserInfo: authenticationv1.UserInfo{Username: by.GetName(), Groups: by.GetGroups()}, DryRun: &r.DryRun,
	}
	for _, part := range []struct {
		obj apiserver.Object
		to  *runtime.RawExtension
	}{{c.obj, &request.Object}, {c.old, &request.OldObject}} {
		if part.obj == nil {
			continue
		}
		content, err := contentOf(part.obj, c.kind)
		if err != nil {
			return nil, err
		}
		if part.to.Raw, err = json.Marshal(content); err != nil {
			return nil, err
		}
	}
	return &admissionv1.AdmissionReview{Request: request}, nil
}

// contentOf returns the content of an object with its kind, which stored objects of Go types lack.
func contentOf(obj apiserver.Object, kind schema.GroupVersionKind) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = kind.GroupVersion().String(), kind.Kind
	return content, nil
}

// patched returns the object of the call with a patch.
func (c *invocation) patched(patch jsonpatch.Patch) (apiserver.Object, error) {
	content, err := contentOf(c.obj, c.kind)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, err
	}
	obj := reflect.New(reflect.TypeOf(c.obj).Elem()).Interface().(apiserver.Object)
	if u, ok := obj.(runtime.Unstructured); ok {
		var content map[string]any
		if err := utiljson.Unmarshal(after, &content); err != nil {
			return nil, err
		}
		u.SetUnstructuredContent(content)
		return obj, nil
	}
	if err := utiljson.Unmarshal(after, obj); err != nil {
		return nil, err
	}
	obj.GetObjectKind().SetGroupVersionKind(c.obj.GetObjectKind().GroupVersionKind())
	return obj, nil
}

// checkResponse returns the patch of a review that a webhook returned.
func checkResponse(review *admissionv1.AdmissionReview, uid types.UID, mutating bool) ([]byte, error) {
	r := review.Response
	switch {
	case r == nil:
		return nil, errors.New("webhook response was absent")
	case r.UID != uid:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	case review.GroupVersionKind() != reviewKind:
		return nil, fmt.Errorf("expected webhook response of %v, got %v", reviewKind, review.GroupVersionKind())
	case !mutating && len(r.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType != admissionv1.PatchTypeJSONPatch:
		return nil, fmt.Errorf("unsupported patch type %q", *r.PatchType)
	}
	return r.Patch, nil
}

// denial returns the error of a denied request.
func denial(webhook string, result *metav1.Status) error {
	if result == nil {
		result = &metav1.Status{}
	}
	result.Code = max(result.Code, http.StatusBadRequest)
	if result.Status == "" || result.Status == metav1.StatusSuccess {
		result.Status = metav1.StatusFailure
	}
	text := fmt.Sprintf("admission webhook %q denied the request", webhook)
	switch {
	case result.Message != "":
		result.Message = text + ": " + result.Message
	case result.Reason != "":
		result.Message = text + ": " + string(result.Reason)
	default:
		result.Message = text + " without explanation"
	}
	return &apierrors.StatusError{ErrStatus: *result}
}

var admissionCodec = sync.OnceValue(func() runtime.Codec { //nolint:gochecknoglobals // immutable
	scheme := runtime.NewScheme()
	utilruntime.Must(admissionv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme).LegacyCodec(admissionv1.SchemeGroupVersion) // keeps the kind of a response
})

// client returns the client for a webhook: that of the real server, so that it returns the same errors. A timeout of 0 is
// none.
func (a *Admission) client(c *admissionregistrationv1.WebhookClientConfig, codec runtime.Codec, timeout time.Duration) (rest.Interface, error) {
	config := &rest.Config{QPS: -1, Transport: transport{a}, Timeout: timeout}
	config.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	config.ContentType = runtime.ContentTypeJSON
	if service := c.Service; service != nil {
		config.Host = "https://" + net.JoinHostPort(service.Name+"."+service.Namespace+".svc", strconv.Itoa(int(*service.Port)))
		if service.Path != nil {
			config.APIPath = *service.Path
		}
	} else {
		u, err := url.Parse(*c.URL)
		if err != nil {
			return nil, err
		}
		config.Host, config.APIPath = u.Scheme+"://"+u.Host, u.Path
	}
	return rest.UnversionedRESTClientFor(config)
}

// transport calls the handler in the goroutine of the request.
type transport struct{ admission *Admission }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (res *http.Response, err error) {
	t.admission.mu.Lock()
	handler := t.admission.handler
	t.admission.mu.Unlock()
	if handler == nil {
		return nil, errors.New("no endpoints available: the test has not called HandleWebhooks")
	}
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	body := &bytes.Buffer{}
	if _, err := body.ReadFrom(req.Body); err != nil {
		return nil, err
	}
	_ = req.Body.Close()
	served := httptest.NewRequestWithContext(req.Context(), req.Method, req.URL.String(), body)
	served.Header = req.Header.Clone()
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, served)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	res = recorder.Result()
	res.Request = req
	return res, nil
}
