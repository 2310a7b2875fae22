package owned

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refusal returns an error of the API server with these causes.
func refusal(causes ...metav1.StatusCause) error {
	return fmt.Errorf("apply: %w", &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Details: &metav1.StatusDetails{Causes: causes},
	}})
}

func TestImmutableFields(t *testing.T) {
	t.Parallel()
	invalid := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
	}
	forbidden := func(field, message string) metav1.StatusCause {
		return metav1.StatusCause{Type: metav1.CauseTypeForbidden, Field: field, Message: message}
	}
	template := invalid("spec.template", `Invalid value: core.PodTemplateSpec{Name: "x"}: field is immutable`)
	for name, test := range map[string]struct {
		err  error
		want []string // nil: not an immutable field
	}{
		"a Job's template":     {refusal(template), []string{"spec.template"}},
		"a Deployment's":       {refusal(invalid("spec.selector", `Invalid value: {"a":"b"}: field is immutable`)), []string{"spec.selector"}},
		"a Service's address":  {refusal(invalid("spec.clusterIPs[0]", `Invalid value: ["10.0.0.1"]: may not change once set`)), []string{"spec.clusterIPs[0]"}},
		"a StatefulSet's":      {refusal(forbidden("spec", "Forbidden: updates to statefulset spec for fields other than 'replicas' are forbidden")), []string{"spec"}},
		"an immutable Secret":  {refusal(forbidden("data", "Forbidden: field is immutable when `immutable` is set")), []string{"data"}},
		"a RoleBinding's role": {refusal(invalid("roleRef", `Invalid value: rbac.RoleRef{}: cannot change roleRef`)), []string{"roleRef"}},
		"a text without value": {refusal(invalid("spec.size", "field is immutable")), []string{"spec.size"}},
		"a rule of a CRD":      {refusal(invalid("spec.size", `Invalid value: "integer": size is immutable`)), []string{"spec.size"}},
		"two of one field":     {refusal(template, template), []string{"spec.template"}},
		"another fault":        {refusal(invalid("spec.replicas", "Invalid value: -1: must be greater than or equal to 0")), nil},
		"a fault besides":      {refusal(template, invalid("spec.replicas", "Invalid value: -1: must be at least 0")), nil},
		"a value with the word": {refusal(invalid("spec.text",
			`Invalid value: "field is immutable": must be shorter`)), nil},
		"a value that ends with it": {refusal(invalid("spec.text",
			`Invalid value: "a: field is immutable": must be shorter`)), nil},
		"a difference with the word": {refusal(forbidden("spec", "Forbidden: may not be set\n- immutable")), nil},
		"forbidden otherwise":        {refusal(forbidden("spec.x", "Forbidden: may not be set when y is")), nil},
		"no causes":                  {refusal(), nil},
		"a conflict":                 {apierrors.NewConflict(schema.GroupResource{}, "x", errors.New("field is immutable")), nil},
		"no answer":                  {errors.New("field is immutable"), nil},
	} {
		fields, ok := immutableFields(test.err)
		if ok != (test.want != nil) || ok && !slices.Equal(fields, test.want) {
			t.Errorf("%s: %q, %t", name, fields, ok)
		}
	}
}
