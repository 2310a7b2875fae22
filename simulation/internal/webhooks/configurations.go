package webhooks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// AddRules gives the kinds of webhook configurations their defaults and their validation.
func AddRules(kinds []*apiserver.Kind) {
	for _, kind := range kinds {
		switch kind.NewObject().(type) {
		case *admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration:
			kind.Rules.Default = setDefaults
			kind.Rules.Validate = func(obj, _ apiserver.Object) field.ErrorList { return validate(obj) }
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
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects,
				TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
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
			setHookDefaults(&w.ClientConfig, w.Rules, &w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			w := &c.Webhooks[i]
			setHookDefaults(&w.ClientConfig, w.Rules, &w.FailurePolicy, &w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, &w.TimeoutSeconds)
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

// validate returns what is wrong with a configuration. Lists of resources, URLs and expressions are not checked.
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
	errs = append(errs, supported(path.Child("failurePolicy"), *h.FailurePolicy, admissionregistrationv1.Fail, admissionregistrationv1.Ignore)...)
	errs = append(errs, supported(path.Child("matchPolicy"), *h.MatchPolicy, admissionregistrationv1.Equivalent, admissionregistrationv1.Exact)...)
	if h.SideEffects == nil {
		errs = append(errs, field.Required(path.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, supported(path.Child("sideEffects"), *h.SideEffects, admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.SideEffectClassNoneOnDryRun)...)
	}
	if *h.TimeoutSeconds < 1 || *h.TimeoutSeconds > 30 {
		errs = append(errs, field.Invalid(path.Child("timeoutSeconds"), *h.TimeoutSeconds, "the timeout value must be between 1 and 30 seconds"))
	}
	options := metav1validation.LabelSelectorValidationOptions{}
	errs = append(errs, metav1validation.ValidateLabelSelector(h.NamespaceSelector, options, path.Child("namespaceSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(h.ObjectSelector, options, path.Child("objectSelector"))...)
	if h.mutating {
		errs = append(errs, supported(path.Child("reinvocationPolicy"), *h.ReinvocationPolicy, admissionregistrationv1.IfNeededReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)...)
	}
	if (h.ClientConfig.URL == nil) == (h.ClientConfig.Service == nil) {
		errs = append(errs, field.Required(path.Child("clientConfig"), "exactly one of url or service is required"))
	}
	versions := path.Child("admissionReviewVersions")
	switch {
	case len(h.AdmissionReviewVersions) == 0:
		errs = append(errs, field.Required(versions, "must specify one of v1, v1beta1"))
	case !slices.Contains(h.AdmissionReviewVersions, "v1"):
		errs = append(errs, field.Invalid(versions, h.AdmissionReviewVersions, "must include v1: the simulated cluster has no other version"))
	}
	return errs
}

func validateRule(rule *admissionregistrationv1.RuleWithOperations, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(rule.Operations) == 0 {
		errs = append(errs, field.Required(path.Child("operations"), ""))
	}
	if len(rule.Operations) > 1 && slices.Contains(rule.Operations, admissionregistrationv1.OperationAll) {
		errs = append(errs, field.Invalid(path.Child("operations"), rule.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, operation := range rule.Operations {
		errs = append(errs, supported(path.Child("operations").Index(i), operation, admissionregistrationv1.OperationAll, admissionregistrationv1.Connect,
			admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update)...)
	}
	for _, list := range []struct {
		name, what string
		values     []string
	}{{"apiGroups", "API groups", rule.APIGroups}, {"apiVersions", "API versions", rule.APIVersions}, {"resources", "", rule.Resources}} {
		if len(list.values) == 0 {
			errs = append(errs, field.Required(path.Child(list.name), ""))
		}
		if list.what != "" && len(list.values) > 1 && slices.Contains(list.values, "*") {
			errs = append(errs, field.Invalid(path.Child(list.name), list.values, fmt.Sprintf("if '*' is present, must not specify other %s", list.what)))
		}
	}
	return append(errs, supported(path.Child("scope"), *rule.Scope, admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope)...)
}

func supported[T ~string](path *field.Path, value T, choices ...T) field.ErrorList {
	if slices.Contains(choices, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, choices)}
}

// sorted returns configurations in the order in which their webhooks are called.
func sorted(configurations []apiserver.Object) []apiserver.Object {
	return slices.SortedFunc(slices.Values(configurations), func(a, b apiserver.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
}
