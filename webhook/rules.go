package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// checkRule returns the mistakes in a rule that the Go type of the hook shows.
func (a admission) checkRule(rule admissionregistrationv1.RuleWithOperations) []error {
	if len(rule.APIGroups) == 0 || len(rule.APIVersions) == 0 || len(rule.Resources) == 0 ||
		len(rule.Operations) == 0 {
		return []error{errors.New("lacks APIGroups, APIVersions, Resources or Operations")}
	}
	if a.empty == nil {
		return nil
	}
	var errs mistakes
	ofKind := false
	for _, name := range rule.Resources {
		errs.addIf(name == "*" || strings.HasSuffix(name, "/*"), "has the resource %q: requests for kinds other than "+
			"%s would fail: name the resources and subresources, or use unstructured.Unstructured", name, a.kind.Kind)
		ofKind = ofKind || !strings.Contains(name, "/")
	}
	other := func(names []string, want string) bool { return len(names) != 1 || names[0] != want }
	errs.addIf(ofKind && (other(rule.APIGroups, a.kind.Group) || other(rule.APIVersions, a.kind.Version)),
		"has the groups %q and the versions %q: the Go type of the hook is for %s: omit both, because the API server "+
			"converts objects of other versions", rule.APIGroups, rule.APIVersions, a.kind.GroupVersion())
	return errs
}

// served has the resources of API versions that were requested.
type served struct {
	lists map[schema.GroupVersion][]metav1.APIResource // nil for a version that is not served
	err   error                                        // of the last request that failed
}

func (s *served) resources(ctx context.Context, cluster *kube.Cluster, gv schema.GroupVersion) []metav1.APIResource {
	if known, ok := s.lists[gv]; ok {
		return known
	}
	list, root := &metav1.APIResourceList{}, "/apis"
	if gv.Group == "" {
		root = "/api"
	}
	client, err := cluster.RESTClient(gv)
	if err == nil {
		err = client.Get().AbsPath(root, gv.Group, gv.Version).Do(ctx).Into(list)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		s.err = err
	}
	s.lists[gv] = list.APIResources
	return list.APIResources
}

// checkRules compares the rules of the hooks with the resources of the cluster, once. The error lists rules whose
// requests would fail, or that name a kind in place of its resource. Resources that the cluster lacks are logged: they
// may be installed later.
func (k *keeper) checkRules(ctx context.Context) error {
	if k.checked {
		return nil
	}
	known := &served{lists: map[schema.GroupVersion][]metav1.APIResource{}}
	var errs []error
	for _, hook := range k.server.hooks {
		a, ok := hook.protocol.(admission)
		if !ok {
			continue
		}
		for i, rule := range a.options.Rules {
			missing, err := a.compareRule(rule.Rule, func(gv schema.GroupVersion) []metav1.APIResource {
				return known.resources(ctx, k.config.Client.Cluster(), gv)
			})
			if err != nil {
				errs = append(errs, fmt.Errorf("hook %s: Rules[%d] %w", hook.name, i, err))
			}
			if len(missing) > 0 && err == nil && known.err == nil && !k.warned[hook.name] {
				k.warned[hook.name] = true
				k.logger.WarnContext(ctx, "rule of a webhook names resources that the cluster lacks", "webhook",
					hook.name, "resources", missing)
			}
		}
	}
	// A request that fails must not keep the hooks from their certificates: it is repeated at the next registration.
	k.checked = len(errs) == 0 && known.err == nil
	return errors.Join(errs...)
}

// compareRule returns the resources of a rule that the cluster lacks, or an error if one is not of the hook's kind.
func (a admission) compareRule(
	rule admissionregistrationv1.Rule, served func(schema.GroupVersion) []metav1.APIResource,
) (missing []string, err error) {
	for _, name := range rule.Resources {
		found, wildcard, mistake := false, strings.Contains(name, "*"), error(nil)
		for _, group := range rule.APIGroups {
			for _, version := range rule.APIVersions {
				if wildcard = wildcard || group == "*" || version == "*"; wildcard {
					continue
				}
				gv := schema.GroupVersion{Group: group, Version: version}
				isServed, err := a.compareResource(gv, served(gv), name)
				if isServed && err != nil {
					return nil, err
				}
				found, mistake = found || isServed, cmp.Or(mistake, err)
			}
		}
		if found || wildcard {
			continue
		}
		if mistake != nil { // no other group has the name
			return nil, mistake
		}
		missing = append(missing, name)
	}
	return missing, nil
}

// compareResource reports whether a resource is served, with an error if the hook's Go type is for another one.
func (a admission) compareResource(
	gv schema.GroupVersion, resources []metav1.APIResource, name string,
) (isServed bool, err error) {
	kindOf := func(r metav1.APIResource) schema.GroupVersionKind {
		if r.Version != "" { // of a subresource, such as pods/eviction
			return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		}
		return gv.WithKind(r.Kind)
	}
	i := slices.IndexFunc(resources, func(r metav1.APIResource) bool { return r.Name == name })
	if i >= 0 {
		if kind := kindOf(resources[i]); a.empty != nil && kind != a.kind {
			return true, fmt.Errorf("has the resource %q, whose objects are of %s, and the Go type of the hook is for "+
				"%s: use another type, or a hook of its own", name, kind, a.kind)
		}
		return true, nil
	}
	for _, r := range resources {
		if !strings.Contains(r.Name, "/") && (strings.EqualFold(r.Kind, name) || strings.EqualFold(r.Name, name)) {
			return false, fmt.Errorf("has the resource %q: the name of the resource is %s", name, r.Name)
		}
		if a.empty != nil && !strings.Contains(r.Name+name, "/") && kindOf(r) == a.kind {
			return false, fmt.Errorf("has the resource %q: that of %s is %s", name, a.kind.Kind, r.Name)
		}
	}
	return false, nil
}
