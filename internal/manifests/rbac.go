package manifests

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// RBACVersion is the version of roles. Their Go types would make each program of evenkeel.Main larger, because the
// linker keeps all that a package registers in its init.
const RBACVersion = "rbac.authorization.k8s.io/v1"

const (
	allNamespaces = "*" // kube.AllNamespaces
	wildcard      = "*" // all groups, resources or verbs
)

// Role is a ClusterRole, or with a Namespace a Role.
type Role struct {
	Namespace string
	Rules     []Rule
}

// Rule permits verbs for resources of a group, for the objects with Names, or for all.
type Rule struct {
	Group                   string
	Resources, Names, Verbs []string
}

// JSON returns the rules as values of an unstructured object.
func (r Role) JSON() (rules []any) {
	list := func(texts []string) (values []any) {
		for _, text := range texts {
			values = append(values, text)
		}
		return values
	}
	for _, rule := range r.Rules {
		object := map[string]any{
			"apiGroups": []any{rule.Group}, "resources": list(rule.Resources), "verbs": list(rule.Verbs),
		}
		if len(rule.Names) > 0 {
			object["resourceNames"] = list(rule.Names)
		}
		rules = append(rules, object)
	}
	return rules
}

// Kind returns the kind of the role.
func (r Role) Kind() string {
	if r.Namespace == "" {
		return "ClusterRole"
	}
	return "Role"
}

// grant is what a rule is about, and where it applies: an empty namespace means the cluster.
type grant struct{ namespace, group, names, resource string }

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
			wider := grant{namespace, of.group, names, of.resource}
			maps.DeleteFunc(verbs, func(verb string, _ bool) bool {
				return verb != wildcard && g[wider][wildcard] || wider != of && g[wider][verb]
			})
		}
	}
	return slices.Sorted(maps.Keys(verbs))
}

// Roles returns the roles with the permissions and the requests, in the order of their namespaces. Equal rules of
// several parts become one, and resources of a group with the same verbs share one.
//
// Errors: invalid requests, and kinds whose resource is not known.
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
		verbs := p.permitted(resource.Group, permission.Verbs)
		for _, namespace := range p.places(namespaces) {
			names := joined(permission.Names)
			all.add(grant{namespace, resource.Group, names, resource.Resource}, verbs)
		}
	}
	for _, request := range p.Requests {
		mistakes = append(mistakes, p.addRequest(all, request))
	}
	return all.roles(), errors.Join(mistakes...)
}

// permitted returns those of verbs that a program which may be read-only needs.
func (p Program) permitted(group string, verbs []string) []string {
	reads := []string{"get", "list", "watch"}
	if !p.ReadOnly || writesAlways(group) {
		return verbs
	}
	if slices.Contains(verbs, wildcard) {
		return reads
	}
	return slices.DeleteFunc(slices.Clone(verbs), func(verb string) bool { return !slices.Contains(reads, verb) })
}

// writesAlways reports whether kube.Cluster.SetReadOnly does not apply to a group: leases, and reviews.
func writesAlways(group string) bool {
	return slices.Contains([]string{"coordination.k8s.io", "authentication.k8s.io", "authorization.k8s.io"}, group)
}

// addRequest adds a request of the program, or returns what is wrong with it.
func (p Program) addRequest(all grants, r Request) error {
	name, _, _ := strings.Cut(r.Resource.Resource, "/")
	if name == "" || len(r.Verbs) == 0 || slices.Contains(r.Verbs, "") {
		return fmt.Errorf("Program.Permit: the resource is %q and the verbs are %q: both are needed, such as "+
			"corev1.Resource(\"secrets\") and \"get\"", r.Resource, r.Verbs)
	}
	clusterScoped, isKnown := p.isClusterScoped(schema.GroupResource{Group: r.Resource.Group, Resource: name})
	names := map[string][]string{} // by namespace
	for _, object := range r.Objects {
		if err := checkObject(object, clusterScoped); err != nil {
			return fmt.Errorf("Program.Permit of %s for %s: %w", r.Resource, object, err)
		}
		names[object.Namespace] = append(names[object.Namespace], object.Name)
	}
	if len(r.Objects) == 0 {
		names[""] = nil
	}
	if _, inDefault := names[""]; inDefault && !isKnown && len(p.Namespaces) > 0 {
		return fmt.Errorf("Program.Permit of %s: its scope is not known: pass the file with its "+
			"CustomResourceDefinition in --crd, or keys with a namespace, or with kube.AllNamespaces", r.Resource)
	}
	for namespace, names := range names {
		var in []string
		if clusterScoped {
			namespace = allNamespaces
		}
		if namespace != "" {
			in = []string{namespace}
		}
		if slices.Sort(names); slices.Contains(names, "") { // all in this namespace
			names = nil
		}
		for _, namespace := range p.places(in) {
			all.add(grant{namespace, r.Resource.Group, joined(slices.Compact(names)), r.Resource.Resource},
				p.permitted(r.Resource.Group, r.Verbs))
		}
	}
	return nil
}

// checkObject checks a key of a request.
func checkObject(object types.NamespacedName, clusterScoped bool) error {
	switch hasNamespace := object.Namespace != "" && object.Namespace != allNamespaces; {
	case object == types.NamespacedName{}:
		return errors.New("the key is empty, which would permit all objects: pass none for all")
	case hasNamespace && clusterScoped:
		return errors.New("these objects are cluster-scoped: leave the namespace empty")
	case hasNamespace && len(validation.IsDNS1123Label(object.Namespace)) > 0:
		return errors.New("no namespace has this name")
	case strings.ContainsAny(object.Name, "*/\x00"):
		return errors.New("no object has this name: leave it empty for all")
	}
	return nil
}

// Permits reports whether the program's own requests have a verb for all objects of a resource in some namespace. If
// resource is empty, one of any resource is enough.
func (p Program) Permits(verb string, resource schema.GroupResource) bool {
	covers := func(permitted, needed string) bool { return permitted == needed || permitted == wildcard }
	return slices.ContainsFunc(p.Requests, func(r Request) bool {
		isNamed := func(object types.NamespacedName) bool { return object.Name != "" }
		return !slices.ContainsFunc(r.Objects, isNamed) &&
			(slices.Contains(r.Verbs, verb) || slices.Contains(r.Verbs, wildcard)) && (resource.Empty() ||
			covers(r.Resource.Group, resource.Group) && covers(r.Resource.Resource, resource.Resource))
	})
}

func (g grants) roles() []Role {
	rules := map[string][]Rule{}
	inOrder := map[string]grant{} // a sort of structs would make each program larger
	for of := range g {
		inOrder[joined([]string{of.namespace, of.group, of.names, of.resource})] = of
	}
	for _, key := range slices.Sorted(maps.Keys(inOrder)) {
		of := inOrder[key]
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
func add(rules []Rule, g grant, verbs []string) []Rule {
	var names []string
	if g.names != "" {
		names = strings.Split(g.names, "\x00")
	}
	for i, rule := range rules {
		if rule.Group == g.group && slices.Equal(rule.Names, names) && slices.Equal(rule.Verbs, verbs) {
			rules[i].Resources = append(rule.Resources, g.resource)
			return rules
		}
	}
	return append(rules, Rule{Group: g.group, Resources: []string{g.resource}, Names: names, Verbs: verbs})
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

// isClusterScoped reports whether the objects of a resource live in no namespace, and whether that is known.
func (p Program) isClusterScoped(resource schema.GroupResource) (clusterScoped, isKnown bool) {
	for _, d := range slices.Concat(p.Definitions, p.OtherDefinitions) {
		if d.field("spec", "group") == resource.Group && d.field("spec", "names", "plural") == resource.Resource {
			return d.field("spec", "scope") == "Cluster", true
		}
	}
	return IsClusterScoped(resource), IsBuiltIn(resource.Group) || resource.Group == wildcard
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
