package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// SetConversions sets spec.conversion in the definitions with the names of the server's conversions, and no other
// field. Other definitions stay unchanged. client is as for Configurations. The definitions can be installed with
// crd.Ensure or printed; with Config.Certificates the server sets the CA bundle of the installed ones.
//
// Errors: a conversion has no definition, another kind than its definition, or other versions. Then no definition is
// changed.
func (s *Server) SetConversions(
	client admissionregistrationv1.WebhookClientConfig, definitions ...*apiextensionsv1.CustomResourceDefinition,
) error {
	var errs []error
	stanzas := map[*apiextensionsv1.CustomResourceDefinition]*apiextensionsv1.CustomResourceConversion{}
	for _, c := range s.conversions() {
		i := slices.IndexFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool {
			return d != nil && d.Name == c.name
		})
		if i < 0 {
			errs = append(errs, fmt.Errorf("no definition has the name %s", c.name))
			continue
		}
		for _, err := range c.mismatches(definitions[i]) {
			errs = append(errs, fmt.Errorf("CustomResourceDefinition %s: %w", c.name, err))
		}
		stanzas[definitions[i]] = c.stanza(client)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set the conversions of definitions: %w", err)
	}
	for definition, stanza := range stanzas {
		definition.Spec.Conversion = stanza
	}
	return nil
}

// conversions returns the server's conversions.
func (s *Server) conversions() []conversion {
	var all []conversion
	for _, hook := range s.hooks {
		if c, ok := hook.protocol.(conversion); ok {
			all = append(all, c)
		}
	}
	return all
}

// mismatches returns the differences between Go types and a definition.
func (c conversion) mismatches(definition *apiextensionsv1.CustomResourceDefinition) []error {
	if c.versions == nil {
		return nil
	}
	var errs mistakes
	got := definition.Spec.Names.Kind
	errs.addIf(got != c.kind, "its kind is %s, and the conversion is of %s", got, c.kind)
	var defined []string
	for _, v := range definition.Spec.Versions {
		defined = append(defined, v.Name)
		errs.addIf(c.version(v.Name) == nil, "the conversion lacks version %s: pass a Spoke for it", v.Name)
	}
	for _, name := range c.names() {
		errs.addIf(!slices.Contains(defined, name), "version %s of the conversion is not defined: it has %s", name,
			strings.Join(defined, ", "))
	}
	return errs
}

// stanza returns the conversion of a definition.
func (c conversion) stanza(
	client admissionregistrationv1.WebhookClientConfig,
) *apiextensionsv1.CustomResourceConversion {
	config := &apiextensionsv1.WebhookClientConfig{}
	_ = throughJSON(withPath(client, c.name), config) // both have the same fields
	return &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: config, ConversionReviewVersions: []string{"v1"}},
	}
}

// patch sets the conversion of the installed definition, or only its bundle. It is a patch, and not an apply, because
// crd.Ensure applies the other fields of the definition, maybe with the same field owner. A definition that is missing
// is an error.
func (c conversion) patch(
	ctx context.Context, cl *client.Client, config admissionregistrationv1.WebhookClientConfig, bundleOnly bool,
) error {
	stanza := c.stanza(config)
	clientConfig := map[string]any{
		"url":     stanza.Webhook.ClientConfig.URL,
		"service": stanza.Webhook.ClientConfig.Service, "caBundle": stanza.Webhook.ClientConfig.CABundle,
	}
	conversion := map[string]any{
		"strategy": stanza.Strategy,
		"webhook": map[string]any{
			"clientConfig":             clientConfig,
			"conversionReviewVersions": stanza.Webhook.ConversionReviewVersions,
		},
	}
	if bundleOnly {
		bundle := map[string]any{"caBundle": config.CABundle}
		conversion = map[string]any{"webhook": map[string]any{"clientConfig": bundle}}
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": conversion}})
	if err != nil {
		return err
	}
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion(apiextensionsv1.SchemeGroupVersion.String())
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(c.name)
	_, err = client.Patch(ctx, cl, definition, client.RawPatch(types.MergePatchType, body))
	return err
}

// Roles returns a Role and a ClusterRole with the permissions that Config.Certificates needs, and no others; nil
// without Certificates. The ClusterRole has the name, and the Role too, in the namespace of the Secret. They can be
// printed, or applied by an administrator, and need bindings to the program's service account. The permissions of
// hooks, and those of crd.Ensure, are not in them.
func (s *Server) Roles(name string) []kube.Object {
	if s.keeper == nil {
		return nil
	}
	secret, register := s.keeper.config.Secret, s.keeper.config.Register
	version := rbacv1.SchemeGroupVersion.String()
	role := &rbacv1.Role{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "Role"},
		ObjectMeta: metav1.ObjectMeta{Namespace: secret.Namespace, Name: name},
		Rules: []rbacv1.PolicyRule{
			// the name is not known to the authorizer
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
			{
				APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret.Name},
				Verbs: []string{"get", "update"},
			},
		},
	}
	clusterRole := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: version, Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	verbs := []string{"create", "get", "patch"}
	if s.keeper.config.BundleOnly {
		verbs = []string{"patch"}
	}
	if register != "" {
		clusterRole.Rules = append(clusterRole.Rules, rbacv1.PolicyRule{
			APIGroups:     []string{admissionregistrationv1.GroupName},
			Resources:     []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"},
			ResourceNames: []string{register}, Verbs: verbs,
		})
	}
	var definitions []string
	for _, c := range s.conversions() {
		definitions = append(definitions, c.name)
	}
	if len(definitions) > 0 {
		clusterRole.Rules = append(clusterRole.Rules, rbacv1.PolicyRule{
			APIGroups: []string{apiextensionsv1.GroupName}, Resources: []string{"customresourcedefinitions"},
			ResourceNames: definitions, Verbs: []string{"patch"},
		})
	}
	return []kube.Object{role, clusterRole}
}
