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
	objects, _ := s.configurations(name, client)
	return objects
}

// configurations returns the configurations with hooks, and those without.
func (s *Server) configurations(
	name string, client admissionregistrationv1.WebhookClientConfig,
) (objects, empty []kube.Object) {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, hook := range s.hooks {
		switch a, ok := hook.protocol.(admission); {
		case ok && a.mutating:
			mutating.Webhooks = append(mutating.Webhooks, a.options.mutatingWebhook(client))
		case ok:
			validating.Webhooks = append(validating.Webhooks, a.options.validatingWebhook(client))
		}
	}
	for _, c := range []struct {
		obj   kube.Object
		kind  string
		hooks int
	}{
		{mutating, "MutatingWebhookConfiguration", len(mutating.Webhooks)},
		{validating, "ValidatingWebhookConfiguration", len(validating.Webhooks)},
	} {
		c.obj.GetObjectKind().SetGroupVersionKind(admissionregistrationv1.SchemeGroupVersion.WithKind(c.kind))
		if c.hooks > 0 {
			objects = append(objects, c.obj)
		} else {
			empty = append(empty, c.obj)
		}
	}
	return objects, empty
}

// oneOf returns a pointer to yes or no.
func oneOf[T any](condition bool, yes, no T) *T {
	if condition {
		return &yes
	}
	return &no
}

func (o HookConfig) mutatingWebhook(
	client admissionregistrationv1.WebhookClientConfig,
) admissionregistrationv1.MutatingWebhook {
	var hook admissionregistrationv1.MutatingWebhook
	_ = throughJSON(o.validatingWebhook(client), &hook) // both have the same fields
	hook.ReinvocationPolicy = oneOf(o.Reinvoke, admissionregistrationv1.IfNeededReinvocationPolicy,
		admissionregistrationv1.NeverReinvocationPolicy)
	return hook
}

// validatingWebhook sets each field, also to its default, so that an applied configuration takes back changes of
// others.
func (o HookConfig) validatingWebhook(
	client admissionregistrationv1.WebhookClientConfig,
) admissionregistrationv1.ValidatingWebhook {
	hook := admissionregistrationv1.ValidatingWebhook{
		Name: o.Name, ClientConfig: *withPath(client, o.Name),
		FailurePolicy: oneOf(o.Ignore, admissionregistrationv1.Ignore, admissionregistrationv1.Fail),
		MatchPolicy:   oneOf(o.Exact, admissionregistrationv1.Exact, admissionregistrationv1.Equivalent),
		SideEffects: oneOf(o.SideEffects, admissionregistrationv1.SideEffectClassNoneOnDryRun,
			admissionregistrationv1.SideEffectClassNone),
		NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{},
		TimeoutSeconds: new(int32(o.timeout().Seconds())), AdmissionReviewVersions: []string{"v1"},
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
