package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Validator decides on a request. It must not change the request's objects. The error is the result; the package's
// documentation lists the kinds of errors. ctx ends at nine tenths of the time that the API server waits;
// a Validator that does not return then keeps one of 64 places of the server.
type Validator[T kube.Object] func(ctx context.Context, request *Request[T]) error

// Mutator changes request.Object. The changes are sent to the API server as a minimal JSON patch: fields that the Go type
// does not have stay unchanged. Errors have the same meaning as those of a Validator. The API server may call a Mutator
// more than once for a request, so that it must have the same result for an object that it has changed before.
type Mutator[T kube.Object] func(ctx context.Context, request *Request[T]) error

// Request is the API server's question whether to admit an operation.
type Request[T kube.Object] struct {
	// Admission is the request as the API server sent it: the operation, the user, the subresource, the options.
	Admission *admissionv1.AdmissionRequest
	// Object is the new object: nil for Delete.
	Object T
	// Old is the stored object: nil for Create and Connect.
	Old T

	warnings []string
}

// DryRun reports whether nothing will be stored. A Validator or Mutator with side effects must have none then.
func (r *Request[T]) DryRun() bool { return r.Admission.DryRun != nil && *r.Admission.DryRun }

// Warn adds a warning, which clients such as kubectl print. The API server cuts warnings of more than 256 characters, and
// those after the first 4,096 characters of a request.
func (r *Request[T]) Warn(format string, args ...any) {
	r.warnings = append(r.warnings, fmt.Sprintf(format, args...))
}

// Options registers a hook. The zero value of each field but Name and Rules is its default.
type Options struct {
	// Name is a domain name with at least three labels, for example "hosts.webapps.example.com". The path of the hook is
	// "/" and Name.
	Name string
	// Rules are the operations and resources that the API server asks about. Their APIGroups and APIVersions default to
	// those of the hook's Go type; set them for a subresource of another group, such as deployments/scale.
	Rules []admissionregistrationv1.RuleWithOperations
	// Ignore admits requests without a decision: if the webhook cannot be reached, panics or does not respond in time.
	// Default: such requests are rejected.
	Ignore bool
	// SideEffects must be true for a hook that changes something other than the request's object, unless the
	// request is a dry run. Such hooks check Request.DryRun. Default: the hook has no side effects.
	SideEffects bool
	// Exact disables requests for other versions of the resources, converted to the version of the rules. Default: they
	// are sent (match policy Equivalent).
	Exact bool
	// Reinvoke calls a mutating hook again if a later one has changed the object. Default: each is called once.
	Reinvoke bool
	// Timeout is how long the API server waits, in whole seconds from 1 s to 30 s. Default: 10 s.
	Timeout time.Duration
	// NamespaceSelector, ObjectSelector and MatchConditions are conditions in addition to Rules.
	NamespaceSelector, ObjectSelector *metav1.LabelSelector
	MatchConditions                   []admissionregistrationv1.MatchCondition
}

// Hook is a chain of Validators or Mutators with its registration. Validating and Mutating create it.
type Hook struct {
	options  Options
	mutating bool
	// empty is an object of the Go type, nil if any kind is accepted.
	empty  runtime.Object
	errs   []error // mistakes in the arguments
	review reviewFunc
}

// reviewFunc returns the response to a request, or an error if there is no decision.
type reviewFunc func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// Validating returns a hook that calls the validators in order until one returns an error.
func Validating[T kube.Object](options Options, validators ...Validator[T]) Hook {
	return newHook(options, false, validators)
}

// Mutating returns a hook that calls the mutators in order until one returns an error. Each of them gets the object with
// the changes of the previous ones.
func Mutating[T kube.Object](options Options, mutators ...Mutator[T]) Hook {
	return newHook(options, true, mutators)
}

func newHook[T kube.Object, F ~func(context.Context, *Request[T]) error](options Options, mutating bool, functions []F) Hook {
	options.Rules = slices.Clone(options.Rules)
	hook := Hook{options: options, mutating: mutating, empty: newObject[T]()}
	if isUnstructured(hook.empty) {
		hook.empty = nil
	}
	chain := make([]func(context.Context, *Request[T]) error, 0, len(functions))
	for i, f := range functions {
		if f == nil {
			hook.errs = append(hook.errs, fmt.Errorf("function %d is nil", i))
		}
		chain = append(chain, f)
	}
	if len(functions) == 0 {
		hook.errs = append(hook.errs, errors.New("no function: pass at least one"))
	}
	hook.review = func(ctx context.Context, admission *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error) {
		return review(ctx, admission, chain, mutating)
	}
	return hook
}

// check returns the mistakes of a hook, and completes its rules.
func (h *Hook) check(cluster *kube.Cluster) []error {
	errs := slices.Clone(h.errs)
	for _, err := range validation.IsFullyQualifiedName(nil, h.options.Name) {
		errs = append(errs, errors.New("Name "+err.ErrorBody()+": use a name such as \"hosts.webapps.example.com\""))
	}
	if t := h.options.Timeout; t != 0 && (t < time.Second || t > 30*time.Second || t%time.Second != 0) {
		errs = append(errs, fmt.Errorf("Timeout is %s: it must be whole seconds from 1s to 30s", t)) //nolint:staticcheck // the name of a field
	}
	if h.options.Reinvoke && !h.mutating {
		errs = append(errs, errors.New("Reinvoke is true for a validating hook: only mutating hooks are called again")) //nolint:staticcheck // the name of a field
	}
	if len(h.options.Rules) == 0 {
		errs = append(errs, errors.New("Rules is empty: the API server would never call the hook")) //nolint:staticcheck // the name of a field
	}
	kind, err := h.kind(cluster)
	if err != nil {
		return append(errs, err)
	}
	for i := range h.options.Rules {
		rule := &h.options.Rules[i]
		if h.empty != nil {
			// The rule of a subresource such as pods/eviction is about another kind than the resource's.
			if len(rule.APIGroups) == 0 {
				rule.APIGroups = []string{kind.Group}
			}
			if len(rule.APIVersions) == 0 {
				rule.APIVersions = []string{kind.Version}
			}
		}
		if len(rule.APIGroups) == 0 || len(rule.APIVersions) == 0 || len(rule.Resources) == 0 || len(rule.Operations) == 0 {
			errs = append(errs, fmt.Errorf("Rules[%d] lacks APIGroups, APIVersions, Resources or Operations", i)) //nolint:staticcheck // the name of a field
		}
	}
	return errs
}

// kind returns the kind of the hook's Go type, or an empty kind if any kind is accepted.
func (h *Hook) kind(cluster *kube.Cluster) (schema.GroupVersionKind, error) {
	if h.empty == nil {
		return schema.GroupVersionKind{}, nil
	}
	return cluster.KindOf(h.empty)
}

// timeout returns how long the API server waits.
func (o *Options) timeout() time.Duration {
	if o.Timeout == 0 {
		return 10 * time.Second
	}
	return o.Timeout
}
