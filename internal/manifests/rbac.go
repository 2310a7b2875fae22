package manifests

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// allNamespaces is the entry of Permission.Namespaces for all namespaces.
const allNamespaces = "*"

// Role is a ClusterRole, or with a Namespace a Role.
type Role struct {
	Namespace string
	Rules     []rbacv1.PolicyRule
}

// Kind returns the kind of the role.
func (r Role) Kind() string {
	if r.Namespace == "" {
		return "ClusterRole"
	}
	return "Role"
}

// grant is what a rule is about, and where it applies: an empty namespace means the cluster.
type grant struct{ namespace, group, names, resource, url string }

// grants are the verbs of each grant.
type grants map[grant]map[string]bool

func (g grants) add(to grant, verbs []string) {
	if g[to] == nil {
		g[to] = map[string]bool{}
	}
	for _, verb := range verbs {
		g[to][verb] = true
	}
}

// needed returns the verbs of a grant that no wider grant has.
func (g grants) needed(of grant) []string {
	verbs := maps.Clone(g[of])
	for _, namespace := range []string{"", of.namespace} {
		for _, names := range []string{"", of.names} {
			wider := grant{namespace, of.group, names, of.resource, of.url}
			maps.DeleteFunc(verbs, func(verb string, _ bool) bool {
				return verb != rbacv1.VerbAll && g[wider][rbacv1.VerbAll] || wider != of && g[wider][verb]
			})
		}
	}
	return slices.Sorted(maps.Keys(verbs))
}

// Roles returns the roles with the permissions and the rules, in the order of their namespaces. Equal rules of several
// parts become one, and resources of a group with the same verbs share one.
//
// Errors: invalid rules, and kinds whose resource is not known.
func (p Program) Roles() ([]Role, error) {
	all := grants{}
	var mistakes []error
	unknown := map[schema.GroupVersionKind]error{}
	for _, permission := range p.Permissions {
		resource, clusterScoped, err := p.resourceOf(permission.Kind)
		if unknown[permission.Kind] == nil {
			unknown[permission.Kind] = err
			mistakes = append(mistakes, err)
		}
		namespaces := permission.Namespaces
		if _, ofCluster, _ := p.resourceOf(permission.Of); ofCluster {
			namespaces = permission.OutsideNamespaces
		}
		if clusterScoped {
			namespaces = []string{allNamespaces}
		}
		if permission.Subresource != "" {
			resource.Resource += "/" + permission.Subresource
		}
		verbs := permission.Verbs
		if p.ReadOnly && !writesAlways(resource.Group) {
			verbs = slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool {
				return !slices.Contains([]string{"get", "list", "watch"}, verb)
			})
		}
		for _, namespace := range p.places(namespaces) {
			names := joined(permission.Names)
			all.add(grant{namespace, resource.Group, names, resource.Resource, ""}, verbs)
		}
	}
	for _, rule := range p.Rules {
		mistakes = append(mistakes, p.addRule(all, rule, nil))
	}
	for _, rule := range p.ClusterRules {
		mistakes = append(mistakes, p.addRule(all, rule, []string{allNamespaces}))
	}
	return all.roles(), errors.Join(mistakes...)
}

// writesAlways reports whether kube.Cluster.SetReadOnly does not apply to a group: leases, and reviews.
func writesAlways(group string) bool {
	return slices.Contains([]string{"coordination.k8s.io", "authentication.k8s.io", "authorization.k8s.io"}, group)
}

// addRule adds a rule of the program, or returns what is wrong with it.
func (p Program) addRule(all grants, rule rbacv1.PolicyRule, namespaces []string) error {
	hasResources := len(rule.APIGroups) > 0 && len(rule.Resources) > 0
	hasAny := len(rule.APIGroups)+len(rule.Resources)+len(rule.ResourceNames) > 0
	if len(rule.Verbs) == 0 || hasResources == (len(rule.NonResourceURLs) > 0) || hasAny != hasResources {
		return fmt.Errorf("the permission %+v: it needs Verbs, and either APIGroups and Resources or NonResourceURLs",
			rule)
	}
	if slices.Contains(rule.ResourceNames, "") {
		return fmt.Errorf("the permission %+v: ResourceNames has an empty name, which would permit all", rule)
	}
	for _, url := range rule.NonResourceURLs {
		all.add(grant{url: url}, rule.Verbs)
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			name, _, _ := strings.Cut(resource, "/")
			in := namespaces
			if p.isClusterScoped(schema.GroupResource{Group: group, Resource: name}) {
				in = []string{allNamespaces}
			}
			for _, namespace := range p.places(in) {
				all.add(grant{namespace, group, joined(rule.ResourceNames), resource, ""}, rule.Verbs)
			}
		}
	}
	return nil
}

func (g grants) roles() []Role {
	rules := map[string][]rbacv1.PolicyRule{}
	compare := func(a, b grant) int {
		return slices.Compare([]string{a.namespace, a.group, a.names, a.resource, a.url},
			[]string{b.namespace, b.group, b.names, b.resource, b.url})
	}
	for _, of := range slices.SortedFunc(maps.Keys(g), compare) {
		if verbs := g.needed(of); len(verbs) > 0 {
			rules[of.namespace] = add(rules[of.namespace], of, verbs)
		}
	}
	var roles []Role
	for _, namespace := range slices.Sorted(maps.Keys(rules)) {
		roles = append(roles, Role{namespace, rules[namespace]})
	}
	return roles
}

// add adds a rule, or its resource to an earlier one with the same verbs and names.
func add(rules []rbacv1.PolicyRule, g grant, verbs []string) []rbacv1.PolicyRule {
	if g.url != "" {
		return append(rules, rbacv1.PolicyRule{NonResourceURLs: []string{g.url}, Verbs: verbs})
	}
	added := rbacv1.PolicyRule{APIGroups: []string{g.group}, Resources: []string{g.resource}, Verbs: verbs}
	if g.names != "" {
		added.ResourceNames = strings.Split(g.names, "\x00")
	}
	for i, rule := range rules {
		if slices.Equal(rule.APIGroups, added.APIGroups) && slices.Equal(rule.ResourceNames, added.ResourceNames) &&
			slices.Equal(rule.Verbs, verbs) {
			rules[i].Resources = append(rule.Resources, g.resource)
			return rules
		}
	}
	return append(rules, added)
}

// joined returns names as the part of a map's key. No name of an object contains a zero byte.
func joined(names []string) string { return strings.Join(names, "\x00") }

// places returns the namespaces of roles for objects in namespaces; "" is the place of a ClusterRole.
func (p Program) places(namespaces []string) []string {
	if namespaces == nil {
		namespaces = p.Namespaces
	}
	if len(namespaces) == 0 || slices.Contains(namespaces, allNamespaces) {
		return []string{""}
	}
	return namespaces
}

// Resource returns the resource of a kind; Roles has the error if it is not known.
func (p Program) Resource(kind schema.GroupVersionKind) schema.GroupResource {
	r, _, _ := p.resourceOf(kind)
	return r
}

// resourceOf returns the name of a kind in rules, and its scope: those in its definition, or those of a built-in kind,
// all of which have the usual plural.
func (p Program) resourceOf(kind schema.GroupVersionKind) (r schema.GroupResource, clusterScoped bool, err error) {
	for _, d := range slices.Concat(p.Definitions, p.OtherDefinitions) {
		if d.field("spec", "group") == kind.Group && d.field("spec", "names", "kind") == kind.Kind {
			r = schema.GroupResource{Group: kind.Group, Resource: d.field("spec", "names", "plural")}
			return r, d.field("spec", "scope") == "Cluster", nil
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	r = plural.GroupResource()
	if !IsBuiltIn(kind.Group) {
		err = fmt.Errorf("the resource and the scope of %s in %s are not known: pass the file with its "+
			"CustomResourceDefinition in --crd, or the definition to Program.Install; for a kind of an aggregated API "+
			"server, write a file with spec.group, spec.scope, spec.names.kind and spec.names.plural",
			kind.Kind, kind.GroupVersion())
	}
	return r, IsClusterScoped(r), err
}

func (p Program) isClusterScoped(resource schema.GroupResource) bool {
	for _, d := range slices.Concat(p.Definitions, p.OtherDefinitions) {
		if d.field("metadata", "name") == resource.String() {
			return d.field("spec", "scope") == "Cluster"
		}
	}
	return IsClusterScoped(resource)
}

// RolesOf returns the roles with permissions for built-in kinds.
func RolesOf(permissions []apiobject.Permission) []Role {
	roles, _ := Program{Permissions: permissions}.Roles() // built-in kinds are known
	return roles
}

// IsBuiltIn reports whether a group is one of Kubernetes.
func IsBuiltIn(group string) bool {
	if name, ok := strings.CutSuffix(group, ".k8s.io"); ok {
		return slices.Contains([]string{
			"admissionregistration", "apiextensions", "apiregistration", "authentication", "authorization",
			"certificates", "coordination", "discovery", "events", "flowcontrol.apiserver", "internal.apiserver",
			"lifecycle", "networking", "node", "rbac.authorization", "resource",
			"scheduling", "storage", "storagemigration",
		}, name)
	}
	return slices.Contains([]string{"", "apps", "autoscaling", "batch", "extensions", "policy"}, group)
}

// IsClusterScoped reports whether the objects of a built-in kind live in no namespace.
func IsClusterScoped(r schema.GroupResource) bool {
	switch r.Group {
	case "admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
		"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "node.k8s.io", "storagemigration.k8s.io":
		return true
	case "authorization.k8s.io":
		return r.Resource != "localsubjectaccessreviews"
	case "storage.k8s.io":
		return r.Resource != "csistoragecapacities"
	}
	return slices.Contains([]string{
		"certificatesigningrequests.certificates.k8s.io", "clustertrustbundles.certificates.k8s.io",
		"clusterrolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io",
		"deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io", "resourceslices.resource.k8s.io",
		"resourcepoolstatusrequests.resource.k8s.io",
		"ingressclasses.networking.k8s.io", "ipaddresses.networking.k8s.io", "servicecidrs.networking.k8s.io",
		"namespaces", "nodes", "persistentvolumes", "componentstatuses", "priorityclasses.scheduling.k8s.io",
	}, r.String())
}
