package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Func validates or mutates an object. ctx ends at nine tenths of the time that the API server waits; a Func that does
// not return then keeps one of 64 places of the server.
//
// An error rejects the request. Errors of package field reject it like the API server's own validation: status 422,
// with the fields as causes. An error with a Status method, such as those of k8s.io/apimachinery/pkg/api/errors,
// rejects it with that status. Any other error rejects it with status 403.
//
// A panic, an error after the time-out of the request, and an error that Failure has marked are not decisions: the
// server responds with status 500, and the failure policy of the hook decides.
type Func[T kube.Object] func(ctx context.Context, request *Request[T]) error

// HookConfig registers a hook. The zero value of each field is its default; a hook for unstructured.Unstructured needs
// Name and Resources.
type HookConfig struct {
	// Name is a domain name with at least three labels, for example "hosts.webapps.example.com". The path of the hook
	// is "/" and Name. Default: for example "validating.webapps.example.com", from the resource and its group.
	Name string
	// Operations are those that the API server asks about, for all Resources: other operations for other resources, or
	// a limit to namespaced ones, need another hook or MatchConditions. Default: creations and updates.
	Operations []admissionv1.Operation
	// Resources are those that the API server asks about. Without Group and Version, these are those of the hook's Go
	// type; set Version, and Group unless it is the core group, for a subresource of another group, such as
	// deployments/scale. All must have the kind of the Go type, so that wildcards ("*") need unstructured.Unstructured.
	// Default: the resource of the Go type, whose name is the usual plural of the kind in lower case.
	Resources []schema.GroupVersionResource
	// Ignore admits requests without a decision: if the webhook cannot be reached, panics, does not respond in time, or
	// the objects are too large for it. Default: such requests are rejected.
	Ignore bool
	// SideEffects must be true for a hook that changes something other than the request's object, unless the
	// request is a dry run. Such hooks check Request.DryRun. Default: the hook has no side effects.
	SideEffects bool
	// Exact disables requests for other versions of the resources, converted to the version of Resources. Default:
	// they are sent (match policy Equivalent).
	Exact bool
	// Reinvoke calls a mutating hook again if a later one has changed the object. Default: each is called once.
	Reinvoke bool
	// Timeout is how long the API server waits, in whole seconds from 1 s to 30 s. Default: 10 s.
	Timeout time.Duration
	// NamespaceSelector, ObjectSelector and MatchConditions are conditions in addition to Resources. NamespaceSelector
	// defaults to the namespaces of Cluster.SetNamespaces, but for Namespaces to none; an empty one selects all.
	// MatchConditions are CEL expressions by their names; all must be true.
	NamespaceSelector, ObjectSelector *metav1.LabelSelector
	MatchConditions                   map[string]string
}

// Hook is what a Server serves at one path: functions and their registration. Validating, Mutating, Converting,
// ConvertingUnstructured, Authenticating and Authorizing create it.
type Hook struct {
	name     string
	protocol protocol // nil for the zero Hook
}

// protocol is how a Server handles the reviews of a Hook.
type protocol interface {
	// prepare returns the protocol with what the cluster provides, or all mistakes in its arguments.
	prepare(cluster *kube.Cluster) (protocol, []error)
	// limits returns the maximum size of a review, and the time for it if the API server does not send one.
	limits() (bytes int64, timeout time.Duration)
	// shape is a type with the fields of a review, or nil if the review is not decoded as a whole.
	shape() reflect.Type
	// review returns the response to a review with its result for metrics, or an error that is the text of an HTTP
	// error: it is not a decision.
	review(ctx context.Context, s *Server, body []byte, places *places) (response any, result string, err error)
}

// mistakes are the mistakes in arguments.
type mistakes []error

func (m *mistakes) addIf(isMistake bool, format string, args ...any) {
	if isMistake {
		*m = append(*m, fmt.Errorf(format, args...))
	}
}

// encodedReview is a response in JSON.
type encodedReview []byte

// admission is the protocol of Validating and Mutating.
type admission struct {
	options  HookConfig
	mutating bool
	// empty is an object of the Go type, nil if any kind is accepted.
	empty    runtime.Object
	kind     schema.GroupVersionKind // of empty
	errs     mistakes
	decide   reviewFunc
	reviewed reflect.Type
}

// reviewFunc returns the response to a request, or an error if there is no decision.
type reviewFunc func(context.Context, *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, error)

// Validating returns a hook that calls the validators in order until one returns an error. They must not change the
// request's objects. A validator of updates also decides on those that remove finalizers, also this program's: it
// should return nil for an object with a deletionTimestamp, which otherwise cannot be deleted while the object is not
// valid.
func Validating[T kube.Object](config HookConfig, validators ...Func[T]) Hook {
	return newHook(config, false, validators)
}

// Mutating returns a hook that calls the mutators in order until one returns an error. Each of them gets the object
// with the changes of the previous ones.
//
// They change request.Object. The changes are sent to the API server as a minimal JSON patch: fields that the Go type
// does not have stay unchanged. The API server may call a mutator more than once for a request, so that it must have
// the same result for an object that it has changed before.
func Mutating[T kube.Object](config HookConfig, mutators ...Func[T]) Hook {
	return newHook(config, true, mutators)
}

func newHook[T kube.Object](config HookConfig, mutating bool, functions []Func[T]) Hook {
	a := admission{
		options: config, mutating: mutating, empty: apiobject.New[T](), reviewed: reflect.TypeFor[admissionShape[T]](),
	}
	if isUnstructured(a.empty) {
		a.empty = nil
	}
	functions = slices.Clone(functions)
	for i, f := range functions {
		a.errs.addIf(f == nil, "function %d is nil", i)
	}
	a.errs.addIf(len(functions) == 0, "no function: pass at least one")
	a.decide = func(ctx context.Context, request *admissionv1.AdmissionRequest) (
		*admissionv1.AdmissionResponse, error,
	) {
		return review(ctx, request, functions, mutating)
	}
	return Hook{name: config.Name, protocol: a}
}

// prepare implements protocol: it completes the options.
func (a admission) prepare(cluster *kube.Cluster) (protocol, []error) {
	errs := slices.Clone(a.errs)
	if a.empty != nil {
		var err error
		if a.kind, err = cluster.KindOf(a.empty); err != nil {
			return nil, append(errs, err)
		}
		a.setDefaults()
	}
	for _, err := range validation.IsFullyQualifiedName(nil, a.options.Name) {
		errs = append(errs, errors.New("Name "+err.ErrorBody()+": use a name such as \"hosts.webapps.example.com\""))
	}
	t := a.options.Timeout
	errs.addIf(t != 0 && (t < time.Second || t > 30*time.Second || t%time.Second != 0),
		"Timeout is %s: it must be whole seconds from 1s to 30s", t)
	errs.addIf(a.options.Reinvoke && !a.mutating,
		"Reinvoke is true for a validating hook: only mutating hooks are called again")
	errs.addIf(len(a.options.Resources) == 0, "Resources is empty: the API server would never call the hook")
	errs = append(errs, a.checkOperations()...)
	a.options.Operations = slices.Clone(a.options.Operations)
	if len(a.options.Operations) == 0 {
		a.options.Operations = []admissionv1.Operation{admissionv1.Create, admissionv1.Update}
	}
	a.options.MatchConditions = maps.Clone(a.options.MatchConditions)
	a.options.Resources = slices.Clone(a.options.Resources)
	for i := range a.options.Resources {
		resource := &a.options.Resources[i]
		if a.empty != nil && resource.Group == "" && resource.Version == "" {
			// A subresource such as pods/eviction has another kind than its resource.
			resource.Group, resource.Version = a.kind.Group, a.kind.Version
		}
		for _, err := range a.checkResource(*resource) {
			errs = append(errs, fmt.Errorf("Resources[%d] %w", i, err)) //nolint:staticcheck // the name of a field
		}
	}
	if names := cluster.Namespaces(); a.options.NamespaceSelector == nil && len(names) > 0 {
		errs.addIf(!a.selectNamespaces(names), "Resources has namespaces beside others, and the program is "+
			"limited to %q: use a hook for each, because the limit does not apply to Namespaces, or set "+
			"NamespaceSelector", names)
	}
	return a, errs
}

// selectNamespaces sets the default of NamespaceSelector. It does not limit Namespaces, with whose own labels the API
// server compares the selector. It returns false if Resources has Namespaces and others.
func (a *admission) selectNamespaces(names []string) bool {
	var ofNamespaces, ofOthers bool
	for _, resource := range a.options.Resources {
		// The API server does so in every group: namespaces.servicebus.azure.com.
		name, _, _ := strings.Cut(resource.Resource, "/")
		ofNamespaces = ofNamespaces || name == "namespaces"
		ofOthers = ofOthers || name != "namespaces"
	}
	if !ofNamespaces {
		a.options.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
			Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names,
		}}}
	}
	return !ofNamespaces || !ofOthers
}

// setDefaults sets the defaults of Name and Resources for the kind. The name of the resource is the usual plural of the
// kind's name; checkResources compares it with the one that the API server has.
func (a *admission) setDefaults() {
	plural, _ := meta.UnsafeGuessKindToResource(a.kind)
	if a.options.Name == "" {
		verb := "validating"
		if a.mutating {
			verb = "mutating"
		}
		a.options.Name = verb + "." + plural.Resource + "." + cmp.Or(a.kind.Group, "core")
	}
	if len(a.options.Resources) == 0 {
		a.options.Resources = []schema.GroupVersionResource{{Resource: plural.Resource}}
	}
}

func (a admission) limits() (int64, time.Duration) { return maxBodyBytes, a.options.timeout() }

func (a admission) shape() reflect.Type { return a.reviewed }

// review implements protocol. Any error is not a decision: the API server applies the failure policy.
func (a admission) review(ctx context.Context, s *Server, body []byte, _ *places) (any, string, error) {
	review := &admissionv1.AdmissionReview{}
	if err := decodeReview(body, review, reviewKind()); err != nil {
		return nil, "", err
	}
	request := review.Request
	if request == nil || request.UID == "" {
		return nil, "", badRequest("the review has no request with a uid")
	}
	uid := request.UID // a function may change the request
	response, err := a.call(ctx, s, request)
	if err != nil {
		s.log(ctx, slog.LevelError, a.options.Name, "webhook failed", a.attrs(request, err)...)
		return nil, "", err
	}
	result := resultSuccess
	if !response.Allowed {
		result = resultRejected
		s.logger.DebugContext(ctx, "webhook rejected a request",
			a.attrs(request, errors.New(response.Result.Message))...)
	}
	response.UID = uid
	answer := &admissionv1.AdmissionReview{Response: response}
	answer.SetGroupVersionKind(reviewKind())
	return answer, result, nil
}

// call calls the functions of a hook.
func (a admission) call(
	ctx context.Context, s *Server, request *admissionv1.AdmissionRequest,
) (response *admissionv1.AdmissionResponse, err error) {
	if got := schema.GroupVersionKind(request.Kind); a.empty != nil && got != a.kind {
		return nil, fmt.Errorf("webhook %s got an object of %s, and its Go type is for %s: change its Resources",
			a.options.Name, got, a.kind)
	}
	panicked := s.guard.Call("webhook "+a.options.Name, func() {
		response, err = a.decide(ctx, request)
	}, func() []any {
		return []any{
			"operation", short(request.Operation), "namespace", short(request.Namespace), "name", short(request.Name),
		}
	})
	if panicked != nil {
		return nil, panicked
	}
	return response, err
}

func (a admission) attrs(request *admissionv1.AdmissionRequest, err error) []any {
	return []any{
		"webhook", a.options.Name, "operation", short(request.Operation), "kind", short(request.Kind.Kind),
		"namespace", short(request.Namespace), "name", short(request.Name), "user", short(request.UserInfo.Username),
		"error", usercode.Error(err),
	}
}

func reviewKind() schema.GroupVersionKind {
	return admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
}

// timeout returns how long the API server waits.
func (o *HookConfig) timeout() time.Duration {
	if o.Timeout == 0 {
		return 10 * time.Second
	}
	return o.Timeout
}
