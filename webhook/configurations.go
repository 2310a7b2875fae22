package webhook

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Configurations returns the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration that register the
// hooks, each only if there are hooks for it. Both have the name. client is how the API server reaches this server; the
// path of each hook is appended to client.URL or client.Service.Path. The objects can be applied or printed.
func (s *Server) Configurations(name string, client admissionregistrationv1.WebhookClientConfig) []kube.Object {
	mutating, validating := emptyConfigurations(name)
	for _, hook := range s.hooks {
		switch a, ok := hook.protocol.(admission); {
		case ok && a.mutating:
			mutating.Webhooks = append(mutating.Webhooks, a.options.mutatingWebhook(client))
		case ok:
			validating.Webhooks = append(validating.Webhooks, a.options.validatingWebhook(client))
		}
	}
	var objects []kube.Object
	if len(mutating.Webhooks) > 0 {
		objects = append(objects, mutating)
	}
	if len(validating.Webhooks) > 0 {
		objects = append(objects, validating)
	}
	return objects
}

func emptyConfigurations(
	name string,
) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	version := admissionregistrationv1.SchemeGroupVersion.String()
	meta := metav1.ObjectMeta{Name: name}
	return &admissionregistrationv1.MutatingWebhookConfiguration{TypeMeta: metav1.TypeMeta{
			APIVersion: version,
			Kind:       "MutatingWebhookConfiguration",
		}, ObjectMeta: meta},
		&admissionregistrationv1.ValidatingWebhookConfiguration{TypeMeta: metav1.TypeMeta{
			APIVersion: version,
			Kind:       "ValidatingWebhookConfiguration",
		}, ObjectMeta: meta}
}

func (o Options) mutatingWebhook(
	client admissionregistrationv1.WebhookClientConfig,
) admissionregistrationv1.MutatingWebhook {
	v := o.validatingWebhook(client)
	reinvocation := admissionregistrationv1.NeverReinvocationPolicy
	if o.Reinvoke {
		reinvocation = admissionregistrationv1.IfNeededReinvocationPolicy
	}
	return admissionregistrationv1.MutatingWebhook{
		Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules, FailurePolicy: v.FailurePolicy,
		MatchPolicy:       v.MatchPolicy,
		NamespaceSelector: v.NamespaceSelector, ObjectSelector: v.ObjectSelector, SideEffects: v.SideEffects,
		TimeoutSeconds: v.TimeoutSeconds, AdmissionReviewVersions: v.AdmissionReviewVersions,
		MatchConditions:    v.MatchConditions,
		ReinvocationPolicy: &reinvocation,
	}
}

// validatingWebhook sets each field, also to its default, so that an applied configuration takes back changes of
// others.
func (o Options) validatingWebhook(
	client admissionregistrationv1.WebhookClientConfig,
) admissionregistrationv1.ValidatingWebhook {
	failure := admissionregistrationv1.Fail
	if o.Ignore {
		failure = admissionregistrationv1.Ignore
	}
	match := admissionregistrationv1.Equivalent
	if o.Exact {
		match = admissionregistrationv1.Exact
	}
	effects := admissionregistrationv1.SideEffectClassNone
	if o.SideEffects {
		effects = admissionregistrationv1.SideEffectClassNoneOnDryRun
	}
	seconds := int32(o.timeout().Seconds())
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: o.Name, ClientConfig: *withPath(client, o.Name), FailurePolicy: &failure, MatchPolicy: &match,
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}, SideEffects: &effects,
		TimeoutSeconds: &seconds, AdmissionReviewVersions: []string{"v1"},
	}
	for _, rule := range o.Rules {
		rule = *rule.DeepCopy()
		if rule.Scope == nil {
			rule.Scope = new(admissionregistrationv1.AllScopes)
		}
		hook.Rules = append(hook.Rules, rule)
	}
	for _, condition := range o.MatchConditions {
		hook.MatchConditions = append(hook.MatchConditions, *condition.DeepCopy())
	}
	if o.NamespaceSelector != nil {
		hook.NamespaceSelector = o.NamespaceSelector.DeepCopy()
	}
	if o.ObjectSelector != nil {
		hook.ObjectSelector = o.ObjectSelector.DeepCopy()
	}
	return hook
}

// withPath returns client with the path of a hook, and with the default port of a service.
func withPath(
	client admissionregistrationv1.WebhookClientConfig, name string,
) *admissionregistrationv1.WebhookClientConfig {
	result := client.DeepCopy()
	if result.URL != nil {
		url := strings.TrimSuffix(*result.URL, "/") + "/" + name
		result.URL = &url
	}
	if result.Service != nil {
		path := "/" + name
		if result.Service.Path != nil {
			path = strings.TrimSuffix(*result.Service.Path, "/") + path
		}
		result.Service.Path = &path
		if result.Service.Port == nil {
			result.Service.Port = new(int32(443))
		}
	}
	return result
}
