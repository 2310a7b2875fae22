package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/manifests"
	"github.com/evenkeel-go/evenkeel/kube"
)

// definitionGroup is the group of CustomResourceDefinitions. The Go types of the group are large, and only programs
// that install definitions need them.
const definitionGroup = "apiextensions.k8s.io"

// Conversions returns for each conversion of the server the part of its CustomResourceDefinition that depends on it:
// its name, spec.conversion, and, if it has Go types, its kind and versions. url and caBundle are as for
// Configurations. crd.SetConversions sets it in whole definitions.
//
// Errors: an invalid URL.
func (s *Server) Conversions(url string, caBundle []byte) ([]*unstructured.Unstructured, error) {
	at, err := parseAddress(url)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, c := range s.conversions() {
		definition := c.definition()
		definition.Object["spec"] = map[string]any{"conversion": c.stanza(at, caBundle)}
		if c.versions != nil {
			var versions []any
			for _, name := range c.names() {
				versions = append(versions, map[string]any{"name": name})
			}
			_ = unstructured.SetNestedField(definition.Object, c.kind, "spec", "names", "kind")
			_ = unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
		}
		all = append(all, definition)
	}
	return all, nil
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

// definition returns a CustomResourceDefinition with its name only.
func (c conversion) definition() *unstructured.Unstructured {
	definition := &unstructured.Unstructured{Object: map[string]any{}}
	definition.SetAPIVersion(definitionGroup + "/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName(c.name)
	return definition
}

// stanza returns the conversion of a definition. A field of the client that is not set is null, so that a patch removes
// it.
func (c conversion) stanza(at address, caBundle []byte) map[string]any {
	config := map[string]any{"url": nil, "service": nil, "caBundle": nil}
	maps.Copy(config, at.clientConfig(c.name, caBundle))
	return map[string]any{
		"strategy": "Webhook",
		"webhook":  map[string]any{"clientConfig": config, "conversionReviewVersions": []any{"v1"}},
	}
}

// patch sets the conversion of the installed definition, or only its bundle. It is a patch, and not an apply, because
// crd.Ensure applies the other fields of the definition, maybe with the same field owner. A definition that is missing
// is an error.
func (c conversion) patch(
	ctx context.Context, cl *client.Client, at address, caBundle []byte, bundleOnly bool,
) error {
	conversion := c.stanza(at, caBundle)
	if bundleOnly {
		bundle := map[string]any{"caBundle": caBundle}
		conversion = map[string]any{"webhook": map[string]any{"clientConfig": bundle}}
	}
	body, err := json.Marshal(map[string]any{"spec": map[string]any{"conversion": conversion}})
	if err != nil {
		return err
	}
	definition := c.definition()
	_, err = client.Patch(ctx, cl, definition, client.RawPatch(types.MergePatchType, body))
	return err
}

// permissions are those that the keeper needs.
func (k *keeper) permissions() []apiobject.Permission {
	var all []apiobject.Permission
	add := func(kind schema.GroupVersionKind, namespace string, names []string, verbs ...string) {
		all = append(all, apiobject.Permission{
			Kind: kind, Verbs: verbs, Names: names, Namespaces: []string{cmp.Or(namespace, kube.AllNamespaces)},
			Standby: true,
		})
	}
	secret, secrets := k.config.Secret, corev1.SchemeGroupVersion.WithKind("Secret")
	add(secrets, secret.Namespace, nil, "create") // the name of a new object is not known when it is authorized
	add(secrets, secret.Namespace, []string{secret.Name}, "get", "update")
	verbs := []string{"create", "get", "patch"} // an apply has the name
	if k.config.BundleOnly {
		verbs = []string{"patch"}
	}
	// Also without hooks: those of an earlier version of the program are removed.
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		if k.config.Register != "" {
			kind := registrationVersion().WithKind(kind)
			add(kind, "", []string{k.config.Register}, verbs...)
		}
	}
	for _, c := range k.server.conversions() {
		add(c.definition().GroupVersionKind(), "", []string{c.name}, "patch")
	}
	return all
}

// Roles returns the permissions that Config.Certificates needs, and no others, as unstructured objects: a ClusterRole,
// if it needs one, and a Role in the namespace of the Secret, both with the name; nil without Certificates. They can be
// printed, or applied by an administrator, and need bindings to the program's service account. The permissions of
// hooks, and those of crd.Ensure, are not in them.
func (s *Server) Roles(name string) []kube.Object {
	if s.keeper == nil {
		return nil
	}
	var all []kube.Object
	for _, permitted := range manifests.RolesOf(s.keeper.permissions()) {
		role := &unstructured.Unstructured{Object: map[string]any{"rules": permitted.JSON()}}
		role.SetAPIVersion(manifests.RBACVersion)
		role.SetKind(permitted.Kind())
		role.SetNamespace(permitted.Namespace)
		role.SetName(name)
		all = append(all, role)
	}
	return all
}
