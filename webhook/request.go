package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Request is the API server's question whether to admit an operation.
type Request[T kube.Object] struct {
	// Admission is the request as the API server sent it: the operation, the user, the subresource, the options.
	Admission *admissionv1.AdmissionRequest
	// Object is the new object: nil for Delete.
	Object T
	// Old is the stored object: nil for Create and Connect.
	Old T

	warnings    []string
	annotations map[string]string // of the audit event
	fixed       string            // why the object cannot be changed, or ""
	// raw is the JSON from which Object was decoded, and before the encoding of Object at that time.
	raw, before []byte
	patches     [][]byte // the JSON patches that led to raw
}

// DryRun reports whether nothing will be stored. A Func with side effects must have none then.
func (r *Request[T]) DryRun() bool { return r.Admission.DryRun != nil && *r.Admission.DryRun }

// Warn adds a warning, which clients such as kubectl print, also if the request is admitted. The API server cuts
// warnings of more than 256 characters, and those after the first 4,096 characters of a request.
func (r *Request[T]) Warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// AddAuditAnnotation adds an annotation to the audit event of the request, whether it is admitted or not. The API
// server puts the name of the hook and "/" before key, and keeps the first value if it calls the hook again. In a
// response, a later value replaces an earlier one.
//
// The API server would drop an annotation with an invalid key: then the error is a Failure. A key has at most 63
// letters, digits, '-', '_' and '.', and begins and ends with a letter or digit.
func (r *Request[T]) AddAuditAnnotation(key, value string) error {
	if problems := validation.IsQualifiedName("hook/" + key); len(problems) > 0 {
		return Failure(fmt.Errorf("add an audit annotation: the key %q is invalid: %s", usercode.Shorten(key),
			strings.Join(problems, "; ")))
	}
	if r.annotations == nil {
		r.annotations = map[string]string{}
	}
	r.annotations[key] = value
	return nil
}

// Patch changes Object by the operations of a JSON patch, which may be about fields that its Go type lacks. The
// response has the operations as they are, after the changes of Object before the call, and before later ones. It sets
// the fields of Object again: pointers to what was in them are stale.
//
// The error is a Failure, and nothing has changed then: the hook is validating, the request has no new object, or the
// API server could not apply the operations, or decode the result.
func (r *Request[T]) Patch(operations ...client.Operation) error {
	if err := r.apply(operations); err != nil {
		return Failure(fmt.Errorf("patch the object of a request: %w", err))
	}
	return nil
}

func (r *Request[T]) apply(operations []client.Operation) error {
	if r.fixed != "" {
		return errors.New(r.fixed)
	}
	if len(operations) == 0 {
		return nil
	}
	if r.before == nil { // a test has made the Request
		if err := r.begin(nil); err != nil {
			return err
		}
	}
	changes, err := r.changes()
	if err != nil {
		return err
	}
	own, err := json.Marshal(operations)
	if err != nil {
		return fmt.Errorf("encode the operations: %w", err)
	}
	next := Request[T]{raw: r.raw, patches: r.patches}
	for _, patch := range append(changes, own) {
		decoded, err := jsonpatch.DecodePatch(patch)
		if err == nil {
			next.raw, err = decoded.Apply(next.raw)
		}
		if err != nil {
			return err
		}
		next.patches = append(next.patches, patch)
	}
	if next.Object, err = decode[T](next.raw); err == nil && usercode.IsNil(next.Object) {
		err = errors.New("it is null")
	}
	if err == nil {
		err = next.begin(next.raw)
	}
	if err != nil {
		return fmt.Errorf("decode the result: %w", err)
	}
	reflect.ValueOf(r.Object).Elem().Set(reflect.ValueOf(next.Object).Elem())
	r.raw, r.before, r.patches = next.raw, next.before, next.patches
	return nil
}

// begin records Object, which was decoded from raw, before its changes.
func (r *Request[T]) begin(raw []byte) (err error) {
	// A copy could share memory with the object, and would hide changes from the patch.
	if r.before, err = json.Marshal(r.Object); err != nil {
		return fmt.Errorf("encode the object: %w", err)
	}
	r.raw = raw
	if raw == nil {
		r.raw = r.before
	}
	return nil
}

// changes returns the JSON patch with the changes of Object since begin, if there are any.
func (r *Request[T]) changes() ([][]byte, error) {
	if usercode.IsNil(r.Object) {
		return nil, errors.New("the mutator removed the object: it must change the object, or return an error")
	}
	after, err := json.Marshal(r.Object)
	if err != nil {
		return nil, fmt.Errorf("encode the changed object: %w", err)
	}
	patch, err := difference.JSONPatch(r.raw, r.before, after)
	if err != nil {
		return nil, fmt.Errorf("compute the patch: %w", err)
	}
	if patch == nil {
		return nil, nil
	}
	return [][]byte{patch}, nil
}

// patch returns all changes of Object as one JSON patch, or nil without changes.
func (r *Request[T]) patch() ([]byte, error) {
	changes, err := r.changes()
	patches := slices.Concat(r.patches, changes)
	if err != nil || len(patches) == 0 {
		return nil, err
	}
	for i, patch := range patches {
		patches[i] = patch[1 : len(patch)-1] // without the brackets of the list
	}
	return slices.Concat([]byte("["), bytes.Join(patches, []byte(",")), []byte("]")), nil
}
