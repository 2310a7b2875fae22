package webhook

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// checkOperations returns the operations that do not exist.
func (a admission) checkOperations() (errs mistakes) {
	known := []admissionv1.Operation{"CREATE", "UPDATE", "DELETE", "CONNECT", "*"}
	connected := []string{"exec", "attach", "portforward", "proxy"}
	for i, operation := range a.options.Operations {
		errs.addIf(!slices.Contains(known, operation), "Operations[%d] is %q: want one of %q", i, operation, known)
	}
	errs.addIf(len(a.options.Operations) > 1 && slices.Contains(a.options.Operations, "*"),
		"Operations has \"*\" beside others")
	for i, r := range a.options.Resources {
		_, subresource, _ := strings.Cut(r.Resource, "/")
		errs.addIf(len(a.options.Operations) == 0 && slices.Contains(connected, subresource), "Resources[%d] is %q, "+
			"which has CONNECT requests only: set Operations", i, r.Resource)
	}
	return errs
}

// checkResource returns the mistakes in a resource that the Go type of the hook shows.
func (a admission) checkResource(r schema.GroupVersionResource) []error {
	var errs mistakes
	errs.addIf(r.Version == "", "lacks a Version")
	errs.addIf(r.Resource == "", "lacks a Resource")
	if len(errs) > 0 {
		return errs
	}
	if a.empty == nil {
		return nil
	}
	errs.addIf(r.Resource == "*" || strings.HasSuffix(r.Resource, "/*"), "is %q: requests for kinds other than %s "+
		"would fail: name the resources and subresources, or use unstructured.Unstructured", r.Resource, a.kind.Kind)
	errs.addIf(!strings.Contains(r.Resource, "/") && r.GroupVersion() != a.kind.GroupVersion(),
		"has the version %q: the Go type of the hook is for %s: omit group and version, because the API server "+
			"converts objects of other versions", r.GroupVersion(), a.kind.GroupVersion())
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

// checkResources compares the resources of the hooks with those of the cluster, once. The error lists those whose
// requests would fail, or that name a kind in place of its resource. Resources that the cluster lacks are logged: they
// may be installed later.
func (k *keeper) checkResources(ctx context.Context) error {
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
		missing, others := map[string]string{}, map[string]bool{}
		for i, r := range a.options.Resources {
			if strings.Contains(r.Group+r.Version+r.Resource, "*") {
				continue
			}
			gv := r.GroupVersion()
			found, err := a.compareResource(gv, known.resources(ctx, k.config.Client.Cluster(), gv), r.Resource)
			if err != nil {
				errs = append(errs, fmt.Errorf("hook %s: Resources[%d] %w", hook.name, i, err))
			} else if found {
				others[r.Resource] = true
			} else {
				missing[r.Resource] = strings.TrimSuffix(r.Resource+"."+r.Version+"."+r.Group, ".")
			}
		}
		// A hook may name several versions and groups, of which a cluster has one.
		maps.DeleteFunc(missing, func(name, _ string) bool { return others[name] })
		if len(missing) > 0 && known.err == nil && !k.warned[hook.name] {
			k.warned[hook.name] = true
			k.logger.WarnContext(ctx, "webhook names resources that the cluster lacks", "webhook", hook.name,
				"resources", slices.Sorted(maps.Values(missing)))
		}
	}
	// A request that fails must not keep the hooks from their certificates: it is repeated at the next registration.
	k.checked = len(errs) == 0 && known.err == nil
	return errors.Join(errs...)
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
			return true, fmt.Errorf("is %q, whose objects are of %s, and the Go type of the hook is for "+
				"%s: use another type, or a hook of its own", name, kind, a.kind)
		}
		return true, nil
	}
	for _, r := range resources {
		if !strings.Contains(r.Name, "/") && (strings.EqualFold(r.Kind, name) || strings.EqualFold(r.Name, name)) {
			return false, fmt.Errorf("is %q: the name of the resource is %s", name, r.Name)
		}
		if a.empty != nil && !strings.Contains(r.Name+name, "/") && kindOf(r) == a.kind {
			return false, fmt.Errorf("is %q: that of %s is %s", name, a.kind.Kind, r.Name)
		}
	}
	return false, nil
}
