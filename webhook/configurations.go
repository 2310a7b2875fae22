package webhook

import (
	"encoding/base64"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// registrationVersion is that of the configurations. Their Go types are large, and would be in each program that uses
// this package.
func registrationVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
}

// Configurations returns the MutatingWebhookConfiguration and the ValidatingWebhookConfiguration that register the
// hooks, each only if there are hooks for it. Both have the name. url is as for Certificates. The API server trusts the
// authorities in caBundle, in PEM, or, without caBundle, those of its host. The objects are unstructured, and can be
// applied or printed.
//
// Errors: an invalid URL.
func (s *Server) Configurations(name, url string, caBundle []byte) ([]kube.Object, error) {
	at, err := parseAddress(url)
	if err != nil {
		return nil, err
	}
	configurations, _ := s.configurations(name, at, caBundle)
	var objects []kube.Object
	for _, obj := range configurations {
		objects = append(objects, obj)
	}
	return objects, nil
}

// configurations returns the configurations with hooks, and those without.
func (s *Server) configurations(
	name string, at address, caBundle []byte,
) (objects, empty []*unstructured.Unstructured) {
	for _, mutating := range []bool{true, false} {
		obj := &unstructured.Unstructured{Object: map[string]any{}}
		obj.SetGroupVersionKind(registrationVersion().WithKind("ValidatingWebhookConfiguration"))
		if mutating {
			obj.SetGroupVersionKind(registrationVersion().WithKind("MutatingWebhookConfiguration"))
		}
		obj.SetName(name)
		var hooks []any
		for _, hook := range s.hooks {
			if a, ok := hook.protocol.(admission); ok && a.mutating == mutating {
				hooks = append(hooks, a.registration(at, caBundle))
			}
		}
		if len(hooks) > 0 {
			obj.Object["webhooks"] = hooks
			objects = append(objects, obj)
		} else {
			empty = append(empty, obj)
		}
	}
	return objects, empty
}

// registration returns the hook as the API server knows it. It sets each field, also to its default, so that an applied
// configuration takes back changes of others.
func (a admission) registration(at address, caBundle []byte) map[string]any {
	o := a.options
	oneOf := func(condition bool, yes, no string) string {
		if condition {
			return yes
		}
		return no
	}
	hook := map[string]any{
		"name": o.Name, "clientConfig": at.clientConfig(o.Name, caBundle),
		"failurePolicy":     oneOf(o.Ignore, "Ignore", "Fail"),
		"matchPolicy":       oneOf(o.Exact, "Exact", "Equivalent"),
		"sideEffects":       oneOf(o.SideEffects, "NoneOnDryRun", "None"),
		"namespaceSelector": selector(o.NamespaceSelector), "objectSelector": selector(o.ObjectSelector),
		"timeoutSeconds": int64(o.timeout().Seconds()), "admissionReviewVersions": []any{"v1"},
	}
	if a.mutating {
		hook["reinvocationPolicy"] = oneOf(o.Reinvoke, "IfNeeded", "Never")
	}
	var operations, rules, conditions []any
	for _, operation := range o.Operations {
		operations = append(operations, string(operation))
	}
	for _, r := range o.Resources {
		// A rule for each, because not all can be in one: "*" beside a name.
		rules = append(rules, map[string]any{
			"apiGroups": []any{r.Group}, "apiVersions": []any{r.Version}, "resources": []any{r.Resource},
			"operations": slices.Clone(operations), "scope": "*",
		})
	}
	hook["rules"] = rules
	for _, name := range slices.Sorted(maps.Keys(o.MatchConditions)) {
		conditions = append(conditions, map[string]any{"name": name, "expression": o.MatchConditions[name]})
	}
	if len(conditions) > 0 {
		hook["matchConditions"] = conditions
	}
	return hook
}

// selector returns a selector as JSON; nil selects all.
func selector(s *metav1.LabelSelector) map[string]any {
	if s == nil {
		return map[string]any{}
	}
	object, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(s) // it has only strings
	return object
}

// clientConfig is how the API server calls a hook.
func (a address) clientConfig(hook string, caBundle []byte) map[string]any {
	config := map[string]any{}
	path := a.path + "/" + hook
	if a.service.Name != "" {
		config["service"] = map[string]any{
			"namespace": a.service.Namespace, "name": a.service.Name, "path": path, "port": a.port,
		}
	} else {
		config["url"] = "https://" + a.host + path
	}
	if len(caBundle) > 0 {
		config["caBundle"] = base64.StdEncoding.EncodeToString(caBundle)
	}
	return config
}
