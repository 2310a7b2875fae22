package apiserver

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// access is a request of a user, as RBAC sees it.
type access struct {
	user                           string
	groups                         []string
	verb                           string
	resource                       schema.GroupResource
	subresource, namespace, object string
	path                           *string // of a request that is not for a resource
}

// checksPermissions reports whether the server has the kinds of RBAC.
func (s *Server) checksPermissions() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tables[rbacv1.Resource("clusterroles")] != nil
}

const (
	mastersGroup       = "system:masters" // has all permissions
	authenticatedGroup = "system:authenticated"
)

// requester returns the user of a request: the one that it impersonates, the account of its token, or an administrator.
// A token that this server has not issued has no effect. Error: the token is not valid any more, or its account may not
// impersonate the user or one of the groups.
func (s *Server) requester(req *http.Request) (user authenticationv1.UserInfo, err error) {
	user = authenticationv1.UserInfo{Username: "system:admin", Groups: []string{mastersGroup, authenticatedGroup}}
	scheme, token, _ := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if claims, issued := parseToken(token); issued && strings.EqualFold(scheme, "bearer") {
		if user, _, err = s.userOf(claims, []string{tokenIssuer}); err != nil {
			return user, apierrors.NewUnauthorized("Unauthorized")
		}
	}
	name := req.Header.Get(authenticationv1.ImpersonateUserHeader)
	if name == "" {
		return user, nil
	}
	a := access{user: user.Username, groups: user.Groups, verb: "impersonate", object: name}
	a.resource.Resource = "users"
	if account, isAccount := strings.CutPrefix(name, accountPrefix); isAccount {
		a.resource.Resource = "serviceaccounts"
		a.namespace, a.object, _ = strings.Cut(account, ":")
	}
	if permitted, reason := s.permits(a); !permitted {
		return user, a.forbidden(reason)
	}
	a.resource.Resource, a.namespace = "groups", ""
	for _, a.object = range req.Header.Values(authenticationv1.ImpersonateGroupHeader) {
		if permitted, reason := s.permits(a); !permitted {
			return user, a.forbidden(reason)
		}
	}
	return impersonated(name, req.Header), nil
}

// impersonated returns the user that the headers of a request describe.
func impersonated(name string, header http.Header) authenticationv1.UserInfo {
	user := authenticationv1.UserInfo{
		Username: name, UID: header.Get(authenticationv1.ImpersonateUIDHeader),
		Groups: slices.Clone(header.Values(authenticationv1.ImpersonateGroupHeader)),
	}
	account, isAccount := strings.CutPrefix(name, accountPrefix)
	if parts := strings.Split(account, ":"); isAccount && len(parts) == 2 && len(user.Groups) == 0 {
		user.Groups = accountGroups(parts[0])
	}
	const anonymous = "system:unauthenticated"
	group := authenticatedGroup
	if name == "system:anonymous" || slices.Contains(user.Groups, anonymous) {
		group = anonymous
	}
	if !slices.Contains(user.Groups, group) {
		user.Groups = append(user.Groups, group)
	}
	for name, values := range header {
		key, isExtra := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if key = strings.ToLower(key); !isExtra {
			continue
		}
		if unescaped, err := url.PathUnescape(key); err == nil {
			key = unescaped
		}
		if user.Extra == nil {
			user.Extra = map[string]authenticationv1.ExtraValue{}
		}
		user.Extra[key] = append(user.Extra[key], values...)
	}
	return user
}

// authorize returns the error of a request with this verb that no role permits its user.
func (s *Server) authorize(user authenticationv1.UserInfo, req *http.Request, path Path, verb string) error {
	subresource, _, _ := strings.Cut(path.Subresource, "/")
	a := access{
		user: user.Username, groups: user.Groups, verb: verb,
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
	permitted, reason := s.permits(a)
	if permitted {
		return nil
	}
	return a.forbidden(reason)
}

// forbidden returns the error of kube-apiserver: k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
func (a access) forbidden(reason string) error {
	resource, place := a.resource.Resource, "at the cluster scope"
	if a.subresource != "" {
		resource += "/" + a.subresource
	}
	if a.namespace != "" {
		place = fmt.Sprintf("in the namespace %q", a.namespace)
	}
	err := fmt.Errorf("User %q cannot %s resource %q in API group %q %s", //nolint:staticcheck // as the real server
		a.user, a.verb, resource, a.resource.Group, place)
	if reason != "" {
		err = fmt.Errorf("%w: %s", err, reason)
	}
	return apierrors.NewForbidden(a.resource, a.object, err)
}

// permits reports whether a role of the user has a rule for a. The reason has the text of kube-apiserver.
func (s *Server) permits(a access) (permitted bool, reason string) {
	if slices.Contains(a.groups, mastersGroup) {
		return true, ""
	}
	grants, problems := s.grants(a)
	if i := slices.IndexFunc(grants, func(g grant) bool { return a.matches(g.PolicyRule) }); i >= 0 {
		return true, grants[i].reason
	}
	if len(problems) > 0 {
		reason = fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(problems))
	}
	return false, reason
}

// grant is a rule that a binding gives to a user.
type grant struct {
	rbacv1.PolicyRule
	reason string // names the binding as kube-apiserver does
}

// grants returns the rules that the user of a has in its namespace: one that permits everything if the server does not
// check permissions. The errors are the roles that bindings lack.
func (s *Server) grants(a access) (grants []grant, problems []error) {
	if all := []string{"*"}; !s.checksPermissions() {
		rule := rbacv1.PolicyRule{Verbs: all, APIGroups: all, Resources: all, NonResourceURLs: all}
		return []grant{{PolicyRule: rule}}, nil
	}
	add := func(kind, name, namespace string, ref rbacv1.RoleRef, subjects []rbacv1.Subject) {
		i := slices.IndexFunc(subjects, func(subject rbacv1.Subject) bool { return a.is(subject, namespace) })
		if i < 0 {
			return
		}
		subject := subjects[i].Name
		if subjects[i].Kind == rbacv1.ServiceAccountKind {
			subject += "/" + cmp.Or(subjects[i].Namespace, namespace)
		}
		reason := fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, ref.Kind, ref.Name,
			subjects[i].Kind, subject)
		rules, err := s.rulesOf(ref, namespace)
		if err != nil {
			problems = append(problems, err)
		}
		for _, rule := range rules {
			grants = append(grants, grant{rule, reason})
		}
	}
	for _, object := range s.Objects(rbacv1.Resource("clusterrolebindings")) {
		if b, ok := object.(*rbacv1.ClusterRoleBinding); ok {
			add("ClusterRoleBinding", b.Name, "", b.RoleRef, b.Subjects)
		}
	}
	for _, object := range s.Objects(rbacv1.Resource("rolebindings")) {
		if b, ok := object.(*rbacv1.RoleBinding); ok && a.namespace != "" && b.Namespace == a.namespace {
			add("RoleBinding", b.Name+"/"+b.Namespace, b.Namespace, b.RoleRef, b.Subjects)
		}
	}
	return grants, problems
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
	return a.user == accountPrefix+namespace+":"+subject.Name
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
	if a.path != nil {
		isPath := func(url string) bool {
			prefix := strings.TrimRight(url, "*")
			return url == *a.path || prefix != url && strings.HasPrefix(*a.path, prefix)
		}
		return has(rule.Verbs, a.verb, rbacv1.VerbAll) && slices.ContainsFunc(rule.NonResourceURLs, isPath)
	}
	return has(rule.Verbs, a.verb, rbacv1.VerbAll) && has(rule.APIGroups, a.resource.Group, rbacv1.APIGroupAll) &&
		has(rule.Resources, resource, wildcard, rbacv1.ResourceAll) &&
		(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, a.object))
}
