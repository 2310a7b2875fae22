package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Failure marks an error as the lack of a decision, for example because a read failed: the failure policy of the hook
// decides on the request. It returns nil for nil.
func Failure(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// review calls the functions of a hook.
func review[T kube.Object](
	ctx context.Context, admission *admissionv1.AdmissionRequest, chain []Func[T],
	mutating bool,
) (*admissionv1.AdmissionResponse, error) {
	request := &Request[T]{Admission: admission}
	var err error
	if request.Object, err = decode[T](admission.Object.Raw); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	if request.Old, err = decode[T](admission.OldObject.Raw); err != nil {
		return nil, fmt.Errorf("decode the old object: %w", err)
	}
	switch {
	case !mutating:
		request.fixed = "the hook is validating: use Mutating"
	case usercode.IsNil(request.Object):
		request.fixed = "the request has no new object"
	default:
		// A function may change admission.
		if err := request.begin(admission.Object.Raw); err != nil {
			return nil, err
		}
	}
	response := &admissionv1.AdmissionResponse{Allowed: true}
	for _, f := range chain {
		if err := f(ctx, request); err != nil {
			if response.Result, err = rejection(ctx, admission, usercode.Error(err)); err != nil {
				return nil, err
			}
			response.Allowed = false
			break
		}
	}
	response.Warnings, response.AuditAnnotations = request.warnings, request.annotations
	if !response.Allowed || request.fixed != "" {
		return response, nil
	}
	if response.Patch, err = request.patch(); response.Patch != nil {
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	return response, err
}

// rejection returns the status for an error of a Func, or an error if it is not a decision.
func rejection(ctx context.Context, admission *admissionv1.AdmissionRequest, err error) (*metav1.Status, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	if marked := (*failure)(nil); errors.As(err, &marked) {
		return nil, err
	}
	return rejectionStatus(admission, err), nil
}

// rejectionStatus returns the status of a rejected request.
func rejectionStatus(admission *admissionv1.AdmissionRequest, err error) *metav1.Status {
	if fields, only := fieldErrors(err); only {
		kind := schema.GroupKind{Group: admission.Kind.Group, Kind: admission.Kind.Kind}
		status := apierrors.NewInvalid(kind, admission.Name, fields).Status()
		return &status
	}
	if withStatus := apierrors.APIStatus(nil); errors.As(err, &withStatus) && !usercode.IsNil(withStatus) {
		status := withStatus.Status()
		// A rejection must not look like a success, and the API server panics for codes of four digits.
		if status.Code < http.StatusBadRequest || status.Code > 599 {
			status.Code = http.StatusForbidden
		}
		status.Status = metav1.StatusFailure
		return &status
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden,
		Reason: metav1.StatusReasonForbidden, Message: err.Error(),
	}
}

// fieldErrors returns the field errors in err; only is true if err consists of nothing else.
func fieldErrors(err error) (list field.ErrorList, only bool) {
	var inner []error
	switch e := err.(type) { //nolint:errorlint // this walks the tree itself
	case *field.Error:
		return field.ErrorList{e}, e != nil
	case utilerrors.Aggregate: // of field.ErrorList.ToAggregate
		inner = e.Errors()
	case interface{ Unwrap() []error }:
		inner = e.Unwrap()
	case interface{ Unwrap() error }:
		inner = []error{e.Unwrap()}
	}
	for _, err := range inner {
		found, only := fieldErrors(err)
		if !only {
			return nil, false
		}
		list = append(list, found...)
	}
	return list, len(list) > 0
}

// decode returns the object in raw, or nil for an empty raw. Names of fields are case-sensitive, as in the API server.
func decode[T kube.Object](raw []byte) (T, error) {
	var none T
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return none, nil
	}
	obj := apiobject.New[T]()
	if u, ok := runtime.Object(obj).(runtime.Unstructured); ok {
		var content map[string]any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &content); err != nil {
			return none, err
		}
		u.SetUnstructuredContent(content)
		return obj, nil
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, obj); err != nil {
		return none, err
	}
	return obj, nil
}

func isUnstructured(obj runtime.Object) bool {
	_, ok := obj.(runtime.Unstructured)
	return ok
}
