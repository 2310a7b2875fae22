package webhooks

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
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

// call calls a webhook and returns its patch. Errors: a callError, and the status of a denial.
func (a *Admission) call(ctx context.Context, c *invocation) (jsonpatch.Patch, error) {
	fail := func(format string, args ...any) (jsonpatch.Patch, error) {
		return nil, &callError{c.hook.Name, fmt.Errorf(format, args...)}
	}
	review, err := c.newReview()
	if err != nil {
		return fail("could not create admission objects: %w", err)
	}
	uid := a.newUID()
	request, err := c.request(uid)
	if err != nil {
		return fail("could not create admission objects: %w", err)
	}
	client, err := a.client(&c.hook.ClientConfig, admissionCodec(), 0)
	if err != nil {
		return fail("could not get REST client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	if err := client.Post().Body(review.of(request)).Timeout(c.timeout()).Do(ctx).Into(review.response()); err != nil {
		return fail("failed to call webhook: %w", err)
	}
	response, err := review.checked(uid, c.hook.mutating)
	if err != nil {
		return fail("received invalid webhook response: %w", err)
	}
	for _, text := range response.Warnings {
		c.review.Warn(text)
	}
	if !response.Allowed {
		return nil, denial(c.hook.Name, response.Result)
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	switch {
	case len(response.Patch) == 0:
		return nil, nil
	case err != nil:
		return fail("received undecodable patch in webhook response: %w", err)
	case c.obj != nil && len(patch) > 0 && *response.PatchType != admissionv1.PatchTypeJSONPatch:
		return fail("unsupported patch type %q", *response.PatchType)
	}
	return patch, nil
}

// newReview returns an empty review in the first version of the webhook that the server has.
func (c *invocation) newReview() (review, error) {
	for _, version := range c.hook.AdmissionReviewVersions {
		switch version {
		case "v1":
			return &reviewV1{}, nil
		case "v1beta1":
			return &reviewV1beta1{}, nil
		}
	}
	return nil, errors.New("webhook does not accept known AdmissionReview versions (v1, v1beta1)")
}

// newUID returns the uid of the next call.
func (a *Admission) newUID() types.UID {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	tail := binary.BigEndian.AppendUint64(nil, a.calls)
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%x", tail[2:]))
}

// request returns the request that is reviewed.
func (c *invocation) request(uid types.UID) (*admissionv1.AdmissionRequest, error) {
	r, by := c.review, requester()
	request := &admissionv1.AdmissionRequest{
		UID: uid, Kind: metav1.GroupVersionKind(c.kind), Resource: metav1.GroupVersionResource(c.resource),
		SubResource: r.Subresource,
		RequestKind: (*metav1.GroupVersionKind)(&r.Kind), RequestResource: (*metav1.GroupVersionResource)(&r.Resource),
		RequestSubResource: r.Subresource, Name: r.Name, Namespace: r.Namespace,
		Operation: admissionv1.Operation(r.Operation),
		UserInfo:  authenticationv1.UserInfo{Username: by.GetName(), Groups: by.GetGroups()}, DryRun: &r.DryRun,
		Options: runtime.RawExtension{Object: r.Options},
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
	return request, nil
}

// contentOf returns the content of an object with its kind, which stored objects of Go types lack. It may share maps
// and lists with the object: callers must not change them.
func contentOf(obj apiserver.Object, kind schema.GroupVersionKind) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	content = maps.Clone(content) // an unstructured object returns its own map, and other requests read a stored object
	content["apiVersion"], content["kind"] = kind.GroupVersion().String(), kind.Kind
	return content, nil
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

// client returns the client for a webhook: that of the real server, so that it returns the same errors. A timeout of 0
// is none.
func (a *Admission) client(
	c *admissionregistrationv1.WebhookClientConfig, codec runtime.Codec, timeout time.Duration,
) (rest.Interface, error) {
	config := &rest.Config{QPS: -1, Transport: transport{a}, Timeout: timeout}
	config.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	config.ContentType = runtime.ContentTypeJSON
	if service := c.Service; service != nil {
		config.Host = "https://" + net.JoinHostPort(service.Name+"."+service.Namespace+".svc",
			strconv.Itoa(int(*service.Port)))
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
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			res, err = nil, io.EOF
		default:
			res, err = nil, fmt.Errorf("the handler panicked: %v", p)
		}
	}()
	body := &bytes.Buffer{}
	if req.Body != nil { // a redirect can have none
		if _, err := body.ReadFrom(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	served := httptest.NewRequestWithContext(req.Context(), req.Method, req.URL.RequestURI(), body)
	served.Header, served.Host = req.Header.Clone(), req.URL.Host
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, served)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	res = recorder.Result()
	res.Request = req
	return res, nil
}
