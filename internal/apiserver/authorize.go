package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// access is an impersonated request, as RBAC sees it.
type access struct {
	user                           string
	groups                         []string
	verb                           string
	resource                       schema.GroupResource
	subresource, namespace, object string
}

// checksPermissions reports whether the server has the kinds of RBAC.
func (s *Server) checksPermissions() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[rbacv1.Resource("clusterroles")] != nil
}

// authorize returns the error of a request with this verb that impersonates a user whom no role permits it. Requests
// without impersonation are those of an administrator.
func (s *Server) authorize(req *http.Request, path Path, verb string) error {
	user := req.Header.Get("Impersonate-User")
	groups := req.Header.Values("Impersonate-Group")
	if user == "" || slices.Contains(groups, "system:masters") || !s.checksPermissions() {
		return nil
	}
	account, isAccount := strings.CutPrefix(user, "system:serviceaccount:")
	if namespace, _, _ := strings.Cut(account, ":"); isAccount && len(groups) == 0 {
		groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	}
	subresource, _, _ := strings.Cut(path.Subresource, "/")
	a := access{
		user: user, groups: append(slices.Clip(groups), "system:authenticated"), verb: verb,
		resource: path.Resource.GroupResource(), subresource: subresource, namespace: path.Namespace, object: path.Name,
	}
	if a.resource == (schema.GroupResource{Resource: "namespaces"}) {
		a.namespace = path.Name
	}
	if slices.Contains([]string{"list", "watch"}, verb) {
		if selector, err := fields.ParseSelector(req.URL.Query().Get("fieldSelector")); err == nil {
			if name, ok := selector.RequiresExactMatch("metadata.name"); ok {
				a.object = name
			}
		}
	}
	permitted, problems := s.permits(a)
	if permitted {
		return nil
	}
	return a.forbidden(problems)
}

// forbidden returns the error of kube-apiserver: k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
func (a access) forbidden(problems []error) error {
	resource, place := a.resource.Resource, "at the cluster scope"
	if a.subresource != "" {
		resource += "/" + a.subresource
	}
	if a.namespace != "" {
		place = fmt.Sprintf("in the namespace %q", a.namespace)
	}
	err := fmt.Errorf("User %q cannot %s resource %q in API group %q %s", //nolint:staticcheck // as the real server
		a.user, a.verb, resource, a.resource.Group, place)
	if len(problems) > 0 {
		err = fmt.Errorf("%w: RBAC: %w", err, utilerrors.NewAggregate(problems))
	}
	return apierrors.NewForbidden(a.resource, a.object, err)
}

// permits reports whether a role of the user has a rule for a. The errors are the roles that bindings lack.
func (s *Server) permits(a access) (permitted bool, problems []error) {
	check := func(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespace string) {
		isUser := func(subject rbacv1.Subject) bool { return a.is(subject, namespace) }
		if permitted || !slices.ContainsFunc(subjects, isUser) {
			return
		}
		rules, err := s.rulesOf(ref, namespace)
		if err != nil {
			problems = append(problems, err)
		}
		permitted = slices.ContainsFunc(rules, a.matches)
	}
	for _, object := range s.Objects(rbacv1.Resource("clusterrolebindings")) {
		if binding, ok := object.(*rbacv1.ClusterRoleBinding); ok {
			check(binding.RoleRef, binding.Subjects, "")
		}
	}
	for _, object := range s.Objects(rbacv1.Resource("rolebindings")) {
		if binding, ok := object.(*rbacv1.RoleBinding); ok && a.namespace != "" && binding.Namespace == a.namespace {
			check(binding.RoleRef, binding.Subjects, binding.Namespace)
		}
	}
	return permitted, problems
}

// rulesOf returns the rules of the role of a binding.
func (s *Server) rulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	table, key := rbacv1.Resource("clusterroles"), ref.Name
	if ref.Kind == "Role" {
		table, key = rbacv1.Resource("roles"), namespace+"/"+ref.Name
	}
	if found := s.find(table, key); found != nil {
		switch role := found.obj.(type) {
		case *rbacv1.ClusterRole:
			return append(s.aggregated(role), role.Rules...), nil
		case *rbacv1.Role:
			return role.Rules, nil
		}
	}
	return nil, apierrors.NewNotFound(rbacv1.Resource(strings.ToLower(ref.Kind)), ref.Name)
}

// aggregated returns the rules of the roles that a role aggregates. In a cluster, a controller copies them.
func (s *Server) aggregated(role *rbacv1.ClusterRole) (rules []rbacv1.PolicyRule) {
	if role.AggregationRule == nil {
		return nil
	}
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			continue // the validation rejects it
		}
		for _, object := range s.Objects(rbacv1.Resource("clusterroles")) {
			other, ok := object.(*rbacv1.ClusterRole)
			if ok && other.Name != role.Name && selector.Matches(labels.Set(other.Labels)) {
				rules = append(rules, other.Rules...)
			}
		}
	}
	return rules
}

// is reports whether the user is a subject of a binding in a namespace.
func (a access) is(subject rbacv1.Subject, namespace string) bool {
	switch subject.Kind {
	case rbacv1.UserKind:
		return subject.Name == a.user
	case rbacv1.GroupKind:
		return slices.Contains(a.groups, subject.Name)
	}
	if subject.Namespace != "" {
		namespace = subject.Namespace
	}
	return a.user == "system:serviceaccount:"+namespace+":"+subject.Name
}

// matches reports whether the rule permits a.
func (a access) matches(rule rbacv1.PolicyRule) bool {
	resource, wildcard := a.resource.Resource, rbacv1.ResourceAll
	if a.subresource != "" {
		resource, wildcard = resource+"/"+a.subresource, wildcard+"/"+a.subresource
	}
	has := func(values []string, wanted ...string) bool {
		return slices.ContainsFunc(wanted, func(value string) bool { return slices.Contains(values, value) })
	}
	return has(rule.Verbs, a.verb, rbacv1.VerbAll) && has(rule.APIGroups, a.resource.Group, rbacv1.APIGroupAll) &&
		has(rule.Resources, resource, wildcard, rbacv1.ResourceAll) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.object))
}
