package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// Admission is the admission of a server by its webhook configurations.
type Admission struct {
	server *apiserver.Server

	mu      sync.Mutex
	handler http.Handler // guarded by mu
	calls   uint64       // number of calls, from which uids are made; guarded by mu
}

// New returns the admission of a server. Without a handler all calls fail.
func New(server *apiserver.Server) *Admission { return &Admission{server: server} }

// SetHandler sets the handler of all calls, or removes it if it is nil.
func (a *Admission) SetHandler(h http.Handler) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.handler = h
}

// requester is the user of all requests in reviews, also if another user makes a request.
func requester() user.Info {
	return &user.DefaultInfo{Name: "system:admin", Groups: []string{"system:masters", "system:authenticated"}}
}

// invocation is a call of a webhook with the objects in the version that its rule names.
type invocation struct {
	hook     *hook
	review   *apiserver.Review
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	obj, old apiserver.Object
	target   *apiserver.Kind // nil: the version of the request
}

// Mutate implements apiserver.Admission.
func (a *Admission) Mutate(ctx context.Context, r *apiserver.Review) error {
	hooks := a.hooks(r, "mutatingwebhookconfigurations")
	changedBy := make([]int, len(hooks)) // number of changes when the webhook was last called
	called := make([]bool, len(hooks))
	changes := 0
	for round := range 2 {
		for i := range hooks {
			h := &hooks[i]
			reinvoked := called[i] && *h.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy &&
				changes > changedBy[i]
			if round > 0 && !reinvoked {
				continue
			}
			call, err := a.invocation(ctx, h, r)
			if err != nil {
				return err
			}
			if call == nil {
				continue
			}
			called[i] = true
			changed, err := a.callMutating(ctx, call)
			if err = failure(h, err); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
			}
			if changed {
				changes++
			}
			changedBy[i] = changes // a webhook is not called again for its own change
		}
	}
	return nil
}

// Validate implements apiserver.Admission. It selects all webhooks before it calls the first one. It calls all of them,
// also after a denial, and returns the first error.
func (a *Admission) Validate(ctx context.Context, r *apiserver.Review) error {
	var calls []*invocation
	hooks := a.hooks(r, "validatingwebhookconfigurations")
	for i := range hooks {
		call, err := a.invocation(ctx, &hooks[i], r)
		if err != nil {
			return err
		}
		if call != nil {
			calls = append(calls, call)
		}
	}
	var first error
	for _, call := range calls {
		_, err := a.call(ctx, call)
		if err = failure(call.hook, err); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// failure returns the error of a request whose call of a webhook returned err. Failed calls may be ignored, denials
// not.
func failure(h *hook, err error) error {
	var failed *callError
	switch {
	case !errors.As(err, &failed):
		return err
	case *h.FailurePolicy == admissionregistrationv1.Fail:
		return apierrors.NewInternalError(failed)
	}
	return nil
}

// hooks returns the webhooks of a kind of configuration in the order of their calls: none for a review of a
// configuration of admission, which could otherwise not be repaired.
func (a *Admission) hooks(r *apiserver.Review, configurations string) []hook {
	if rules.IsExemptAdmissionConfigurationResource(attributes(r, r.Resource)) {
		return nil
	}
	objects := a.server.Objects(schema.GroupResource{
		Group:    admissionregistrationv1.GroupName,
		Resource: configurations,
	})
	var hooks []hook
	for _, obj := range sorted(objects) {
		hooks = append(hooks, hooksOf(obj)...)
	}
	return hooks
}

func attributes(r *apiserver.Review, resource schema.GroupVersionResource) admission.Attributes {
	// A nil Object must become a nil interface.
	return admission.NewAttributesRecord(nil, nil, r.Kind, r.Namespace, r.Name, resource, r.Subresource,
		admission.Operation(r.Operation), r.Options, r.DryRun, requester())
}

// invocation returns the call of h for a review, or nil if h does not select it.
func (a *Admission) invocation(ctx context.Context, h *hook, r *apiserver.Review) (*invocation, error) {
	selected, namespaceErr := a.selectsNamespace(h, r)
	if !selected && namespaceErr == nil {
		return nil, nil //nolint:nilnil // not selected
	}
	if selected, err := selectsObject(h, r); err != nil || !selected {
		return nil, err
	}
	call := a.match(h, r)
	if call == nil || namespaceErr != nil {
		return nil, namespaceErr
	}
	for _, part := range []*apiserver.Object{&call.obj, &call.old} {
		if call.target == nil || *part == nil {
			continue
		}
		converted, err := call.target.From(*part)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		*part = converted
	}
	if matches, err := call.meetsConditions(ctx); err != nil || !matches {
		return nil, err
	}
	return call, nil
}

// match returns the call of the first rule that matches the request, or with the policy Equivalent, another version of
// its resource.
func (a *Admission) match(h *hook, r *apiserver.Review) *invocation {
	matches := func(resource schema.GroupVersionResource) func(admissionregistrationv1.RuleWithOperations) bool {
		return func(rule admissionregistrationv1.RuleWithOperations) bool {
			m := rules.Matcher{Rule: rule, Attr: attributes(r, resource)}
			return m.Matches()
		}
	}
	for _, rule := range h.Rules {
		if matches(r.Resource)(rule) {
			return &invocation{hook: h, review: r, resource: r.Resource, kind: r.Kind, obj: r.Object, old: r.Old}
		}
	}
	if *h.MatchPolicy != admissionregistrationv1.Equivalent {
		return nil
	}
	for _, rule := range h.Rules {
		for _, kind := range a.server.Kinds() {
			resource := kind.GroupVersion().WithResource(kind.Resource)
			if resource == r.Resource || resource.GroupResource() != r.Resource.GroupResource() ||
				!matches(resource)(rule) {
				continue
			}
			call := &invocation{hook: h, review: r, resource: resource, kind: r.Kind, obj: r.Object, old: r.Old}
			if r.Kind.GroupVersion() == r.Resource.GroupVersion() { // not the subresource scale, which has one version
				call.kind, call.target = kind.GroupVersionKind, kind
			}
			return call
		}
	}
	return nil
}

func (a *Admission) selectsNamespace(h *hook, r *apiserver.Review) (bool, error) {
	isNamespace := r.Resource.Resource == "namespaces" // in any group, as in kube-apiserver
	if r.Namespace == "" && !isNamespace {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(h.NamespaceSelector)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if selector.Empty() {
		return true, nil
	}
	if isNamespace && r.Subresource == "" && r.Object != nil {
		return selector.Matches(labels.Set(r.Object.GetLabels())), nil
	}
	name := r.Namespace
	if isNamespace && r.Resource.Group == "" {
		name = r.Name
	}
	for _, namespace := range a.server.Objects(schema.GroupResource{Resource: "namespaces"}) {
		if namespace.GetName() == name {
			return selector.Matches(labels.Set(namespace.GetLabels())), nil
		}
	}
	return false, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}

func selectsObject(h *hook, r *apiserver.Review) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(h.ObjectSelector)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	selects := func(obj apiserver.Object) bool { return obj != nil && selector.Matches(labels.Set(obj.GetLabels())) }
	return selector.Empty() || selects(r.Object) || selects(r.Old), nil
}

// conditions compiles match conditions.
//
//nolint:gochecknoglobals // immutable, and expensive
var conditions = sync.OnceValue(func() admissioncel.ConditionCompiler {
	return admissioncel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// allowAll returns the authorizer of match conditions: the simulated cluster allows all requests.
func allowAll() authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
}

// meetsConditions reports whether all match conditions of the webhook are true.
func (c *invocation) meetsConditions(ctx context.Context) (bool, error) {
	h, r := c.hook, c.review
	if len(h.MatchConditions) == 0 {
		return true, nil
	}
	var expressions []admissioncel.ExpressionAccessor
	for _, condition := range h.MatchConditions {
		expressions = append(expressions, (*matchconditions.MatchCondition)(&condition))
	}
	compiled := conditions().CompileCondition(expressions,
		admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
	attrs := &admission.VersionedAttributes{Attributes: attributes(r, r.Resource), VersionedKind: c.kind}
	for _, part := range []struct {
		obj apiserver.Object
		to  *admission.LazyObject
	}{{c.obj, &attrs.VersionedObject}, {c.old, &attrs.VersionedOldObject}} {
		if part.obj != nil {
			content, err := contentOf(part.obj, c.kind)
			if err != nil {
				return false, apierrors.NewInternalError(err)
			}
			part.to.Set(&unstructured.Unstructured{Object: content})
		}
	}
	result := matchconditions.NewMatcher(compiled, h.FailurePolicy, "webhook", "", h.Name).Match(ctx, attrs, nil,
		allowAll())
	if result.Error != nil {
		return false, apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, result.Error)
	}
	return result.Matches, nil
}

// callMutating calls a webhook and applies its patch to the object of the review.
func (a *Admission) callMutating(ctx context.Context, c *invocation) (changed bool, err error) {
	patch, err := a.call(ctx, c)
	if err != nil || len(patch) == 0 {
		return false, err
	}
	if c.obj == nil {
		return false, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, "+
			"which is not supported for this operation", c.hook.Name))
	}
	patched, err := c.patched(patch, a.server.Kinds())
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	changed = !equality.Semantic.DeepEqual(c.obj, patched)
	for _, kind := range a.server.Kinds() {
		if kind.GroupVersionKind == c.kind && kind.Rules.Default != nil {
			kind.Rules.Default(patched)
		}
		if c.target == nil || kind.GroupVersionKind != c.review.Kind {
			continue
		}
		if patched, err = kind.From(patched); err != nil {
			return false, apierrors.NewInternalError(err)
		}
	}
	reflect.ValueOf(c.review.Object).Elem().Set(reflect.ValueOf(patched).Elem())
	return changed, nil
}

// timeout returns the time that a call may take.
func (c *invocation) timeout() time.Duration {
	return time.Duration(*c.hook.TimeoutSeconds) * time.Second
}
