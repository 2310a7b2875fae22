package webhooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	admissioncel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/ptr"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
	"github.com/evenkeel-go/evenkeel/simulation/internal/clientconfig"
)

// AddRules gives the kinds of webhook configurations their defaults and their validation.
func AddRules(kinds []*apiserver.Kind) {
	for _, kind := range kinds {
		switch kind.NewObject().(type) {
		case *admissionregistrationv1.MutatingWebhookConfiguration,
			*admissionregistrationv1.ValidatingWebhookConfiguration:
			kind.Rules.Default = setDefaults
			metadata := kind.Rules.Validate
			kind.Rules.Validate = func(obj, old apiserver.Object) field.ErrorList {
				return append(metadata(obj, old), validate(obj)...)
			}
		}
	}
}

// hook is a webhook of either kind of configuration.
type hook struct {
	admissionregistrationv1.MutatingWebhook
	mutating bool
}

// hooksOf returns the webhooks of a configuration. Those of a MutatingWebhookConfiguration are copies.
func hooksOf(obj apiserver.Object) []hook {
	var hooks []hook
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			hooks = append(hooks, hook{w, true})
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for _, w := range c.Webhooks {
			hooks = append(hooks, hook{MutatingWebhook: admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
				MatchPolicy:       w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions,
				MatchConditions: w.MatchConditions,
			}})
		}
	}
	return hooks
}

func setDefaults(obj apiserver.Object) {
	switch c := obj.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			w.ReinvocationPolicy = cmp.Or(w.ReinvocationPolicy, ptr.To(admissionregistrationv1.NeverReinvocationPolicy))
			setHookDefaults(&w.ClientConfig, w.Rules, &w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector,
				&w.ObjectSelector, &w.TimeoutSeconds)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			setHookDefaults(&w.ClientConfig, w.Rules, &w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector,
				&w.ObjectSelector, &w.TimeoutSeconds)
		}
	}
}

func setHookDefaults(
	client *admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations,
	failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType,
	namespaces, objects **metav1.LabelSelector, timeout **int32,
) {
	*failure = cmp.Or(*failure, ptr.To(admissionregistrationv1.Fail))
	*match = cmp.Or(*match, ptr.To(admissionregistrationv1.Equivalent))
	*namespaces = cmp.Or(*namespaces, &metav1.LabelSelector{})
	*objects = cmp.Or(*objects, &metav1.LabelSelector{})
	*timeout = cmp.Or(*timeout, ptr.To[int32](10))
	for i := range rules {
		rules[i].Scope = cmp.Or(rules[i].Scope, ptr.To(admissionregistrationv1.AllScopes))
	}
	if client.Service != nil {
		client.Service.Port = cmp.Or(client.Service.Port, ptr.To[int32](443))
	}
}

// validate returns what is wrong with a configuration.
func validate(obj apiserver.Object) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, h := range hooksOf(obj) {
		path := field.NewPath("webhooks").Index(i)
		errs = append(errs, validateHook(&h, path)...)
		if h.Name != "" && names[h.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), h.Name))
		}
		names[h.Name] = true
	}
	return errs
}

func validateHook(h *hook, path *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(path.Child("name"), h.Name)
	for i := range h.Rules {
		errs = append(errs, validateRule(&h.Rules[i], path.Child("rules").Index(i))...)
	}
	errs = append(errs, supported(path.Child("failurePolicy"), *h.FailurePolicy, admissionregistrationv1.Fail,
		admissionregistrationv1.Ignore)...)
	errs = append(errs, supported(path.Child("matchPolicy"), *h.MatchPolicy, admissionregistrationv1.Equivalent,
		admissionregistrationv1.Exact)...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, supported(path.Child("sideEffects"), *h.SideEffects,
			admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	}
	if *h.TimeoutSeconds < 1 || *h.TimeoutSeconds > 30 {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *h.TimeoutSeconds,
			"the timeout value must be between 1 and 30 seconds"))
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	errs = append(errs, metav1validation.ValidateLabelSelector(h.NamespaceSelector, options,
		path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(h.ObjectSelector, options,
		path.Child("objectSelector"))...)
	if h.mutating {
		errs = append(errs, supported(path.Child("reinvocationPolicy"), *h.ReinvocationPolicy,
			admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	}
	var service *clientconfig.Service
	if r := h.ClientConfig.Service; r != nil {
		service = &clientconfig.Service{Namespace: r.Namespace, Name: r.Name, Path: r.Path, Port: *r.Port}
	}
	errs = append(errs, clientconfig.Validate(path.Child("clientConfig"), h.ClientConfig.URL, service)...)
	errs = append(errs, validateConditions(h.MatchConditions, path.Child("matchConditions"))...)
	return append(errs, clientconfig.ValidateReviewVersions(path.Child("admissionReviewVersions"),
		h.AdmissionReviewVersions, "must specify one of v1, v1beta1")...)
}

func validateRule(rule *admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Operations) == 0 {
		errs = append(errs, field.Required(path.Child("operations"), ""))
	}
	if len(rule.Operations) > 1 && slices.Contains(rule.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(path.Child("operations"), rule.Operations,
			"if '*' is present, must not specify other operations"))
	}
	for i, operation := range rule.Operations {
		errs = append(errs, supported(path.Child("operations").Index(i), operation,
			admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)...)
	}
	for _, list := range []struct {
		name, what string
		values     []string
	}{{"apiGroups", "API groups", rule.APIGroups}, {"apiVersions", "API versions", rule.APIVersions}} {
		if len(list.values) == 0 {
			errs = append(errs, field.Required(path.Child(list.name), ""))
		}
		if len(list.values) > 1 && slices.Contains(list.values, "*") {
			errs = append(errs, field.Invalid(path.Child(list.name), list.values,
				fmt.Sprintf("if '*' is present, must not specify other %s", list.what)))
		}
	}
	for i, version := range rule.APIVersions {
		if version == "" {
			errs = append(errs, field.Required(path.Child("apiVersions").Index(i), ""))
		}
	}
	errs = append(errs, validateResources(rule.Resources, path.Child("resources"))...)
	return append(errs, supported(path.Child("scope"), *rule.Scope, admissionregistrationv1.AllScopes,
		admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
}

// validateResources validates resources with their subresources, such as "*", "pods/status", "pods/*" and "*/scale".
func validateResources(resources []string, path *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	allSubresourcesOf, ofAllResources := map[string]bool{}, map[string]bool{}
	withoutSubresource := false
	for i, name := range resources {
		if name == "" {
			errs = append(errs, field.Required(path.Index(i), ""))
			continue
		}
		resource, subresource, ok := strings.Cut(name, "/")
		if !ok {
			withoutSubresource = name != "*" // of the last one, as in the real server
			continue
		}
		if allSubresourcesOf[resource] {
			errs = append(errs, field.Invalid(path.Index(i), name,
				fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name)))
		}
		if ofAllResources[subresource] {
			errs = append(errs, field.Invalid(path.Index(i), name,
				fmt.Sprintf("if '*/%s' is present, must not specify %s", subresource, name)))
		}
		allSubresourcesOf[resource] = allSubresourcesOf[resource] || subresource == "*"
		ofAllResources[subresource] = ofAllResources[subresource] || resource == "*"
	}
	if len(resources) > 1 && slices.Contains(resources, "*/*") {
		errs = append(errs, field.Invalid(path, resources, "if '*/*' is present, must not specify other resources"))
	}
	if withoutSubresource && slices.Contains(resources, "*") {
		errs = append(errs,
			field.Invalid(path, resources, "if '*' is present, must not specify other resources without subresources"))
	}
	return errs
}

// maxConditions is the maximum number of match conditions of a webhook.
const maxConditions = 64

func validateConditions(conditions []admissionregistrationv1.MatchCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxConditions {
		errs = append(errs, field.TooMany(path, len(conditions), maxConditions))
	}
	names := map[string]bool{}
	for i, condition := range conditions {
		path := path.Index(i)
		expression := strings.TrimSpace(condition.Expression)
		if expression == "" {
			errs = append(errs, field.Required(path.Child("expression"), ""))
		} else {
			errs = append(errs, validateExpression(expression, path.Child("expression"))...)
		}
		if condition.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
			continue
		}
		for _, problem := range validation.IsQualifiedName(condition.Name) {
			errs = append(errs, field.Invalid(path.Child("name"), condition.Name, problem))
		}
		if names[condition.Name] {
			errs = append(errs, field.Duplicate(path.Child("name"), condition.Name))
		}
		names[condition.Name] = true
	}
	return errs
}

// validateExpression compiles an expression of a match condition.
func validateExpression(expression string, path *field.Path) field.ErrorList {
	compiled := compiler().CompileCELExpression(&matchconditions.MatchCondition{Expression: expression},
		admissioncel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.NewExpressions)
	if compiled.Error == nil {
		return nil
	}
	switch compiled.Error.Type {
	case apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, compiled.Error.Detail)}
	case apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, expression, compiled.Error.Detail)}
	}
	return field.ErrorList{field.InternalError(path, compiled.Error)}
}

// compiler compiles expressions of match conditions.
var compiler = sync.OnceValue(func() admissioncel.Compiler { //nolint:gochecknoglobals // immutable, and expensive
	return admissioncel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

func supported[T ~string](path *field.Path, value T, choices ...T) field.ErrorList {
	if slices.Contains(choices, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, choices)}
}

// sorted returns configurations in the order in which their webhooks are called.
func sorted(configurations []apiserver.Object) []apiserver.Object {
	return slices.SortedFunc(slices.Values(configurations), func(a, b apiserver.Object) int {
		return strings.Compare(a.GetName(), b.GetName())
	})
}
