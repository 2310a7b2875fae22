package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// RESTMapper returns a meta.RESTMapper for libraries that need one; this module uses Resource. It requests the kinds of
// an API group when a method needs them for the first time, and again whenever it finds no match, so that a kind that
// is installed later is found. A kind that was found is kept. A resource without a group is searched in the core group
// and then in all groups. Names of groups must be complete. The mapper is safe for concurrent use.
func (c *Cluster) RESTMapper() meta.RESTMapper {
	return &restMapper{cluster: c, groups: map[string]meta.PriorityRESTMapper{}}
}

type restMapper struct {
	cluster *Cluster // immutable

	mu     sync.Mutex
	names  []string                           // of all groups; guarded by mu
	groups map[string]meta.PriorityRESTMapper // by name; guarded by mu
}

const allGroups = "*"

// find calls do with the mapper of a group or of all groups. If it finds no match, it requests the kinds and calls do
// again.
func find[T any](m *restMapper, group string, do func(meta.RESTMapper) (T, error)) (result T, err error) {
	ctx := context.Background() //nolint:forbidigo // the methods of meta.RESTMapper have no context
	for _, refresh := range []bool{false, true} {
		mapper, requested, requestErr := m.mapper(ctx, group, refresh)
		result, err = do(mapper)
		if !meta.IsNoMatchError(err) {
			break
		}
		if requestErr != nil {
			return result, fmt.Errorf("ask the cluster for its kinds: %w", requestErr)
		}
		if requested {
			break
		}
	}
	return result, err
}

// findInGroupOf is find for a resource that may lack a group.
func findInGroupOf[T any](
	m *restMapper, resource schema.GroupVersionResource, do func(meta.RESTMapper) (T, error),
) (T, error) {
	result, err := find(m, resource.Group, do)
	if resource.Group == "" && meta.IsNoMatchError(err) {
		return find(m, allGroups, do)
	}
	return result, err
}

// groupOf returns the group in which all resources are that match a partial resource.
func groupOf(resource schema.GroupVersionResource) string {
	if resource.Group == "" {
		return allGroups
	}
	return resource.Group
}

// mapper returns the mapper of a group or of all groups. It makes requests if reload is set or kinds were not requested
// before. If a request fails, the mapper is that of the other groups.
func (m *restMapper) mapper(
	ctx context.Context, group string, reload bool,
) (mapper meta.PriorityRESTMapper, requested bool, err error) {
	names := []string{group}
	var errs []error
	if group == allGroups {
		m.mu.Lock()
		names = m.names
		m.mu.Unlock()
		if requested = reload || names == nil; requested {
			latest, err := m.cluster.groupNames(ctx)
			if errs = append(errs, err); err == nil {
				m.mu.Lock()
				m.names, names = latest, latest
				m.mu.Unlock()
			}
		}
	}
	var delegates meta.MultiRESTMapper
	for _, name := range names {
		one, requestedOne, err := m.group(ctx, name, reload)
		requested = requested || requestedOne
		if err != nil {
			errs = append(errs, fmt.Errorf("group %q: %w", name, err))
			continue
		}
		delegates = append(delegates, one.Delegate)
		mapper.ResourcePriority = append(mapper.ResourcePriority, one.ResourcePriority...)
		mapper.KindPriority = append(mapper.KindPriority, one.KindPriority...)
	}
	mapper.Delegate = delegates
	return mapper, requested, errors.Join(errs...)
}

func (m *restMapper) group(
	ctx context.Context, group string, reload bool,
) (mapper meta.PriorityRESTMapper, requested bool, err error) {
	m.mu.Lock()
	mapper, known := m.groups[group]
	m.mu.Unlock()
	if known && !reload {
		return mapper, false, nil
	}
	if mapper, err = m.cluster.mapperOf(ctx, group); err != nil {
		return mapper, true, err
	}
	m.mu.Lock()
	m.groups[group] = mapper
	m.mu.Unlock()
	return mapper, true, nil
}

// groupNames requests the names of all groups, with the core group first.
func (c *Cluster) groupNames(ctx context.Context) ([]string, error) {
	client, err := c.RESTClient(schema.GroupVersion{Version: "v1"})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	list := &metav1.APIGroupList{}
	if err := client.Get().AbsPath("/apis").Do(ctx).Into(list); err != nil {
		return nil, err
	}
	names := []string{""}
	for _, group := range list.Groups {
		names = append(names, group.Name)
	}
	return names, nil
}

// mapperOf requests the kinds of all versions of a group. The mapper prefers versions in the order of the API server.
func (c *Cluster) mapperOf(ctx context.Context, group string) (meta.PriorityRESTMapper, error) {
	var mapper meta.PriorityRESTMapper
	versions := []string{"v1"}
	if group != "" {
		var err error
		if versions, err = c.versionsOf(ctx, schema.GroupVersionKind{Group: group, Version: "v1"}); err != nil {
			return mapper, err
		}
	}
	var delegates meta.MultiRESTMapper
	for _, version := range versions {
		gv := schema.GroupVersion{Group: group, Version: version}
		list, err := c.resourcesOf(ctx, gv)
		if apierrors.IsNotFound(err) {
			continue // removed in the meantime
		}
		if err != nil {
			return mapper, err
		}
		delegate := meta.NewDefaultRESTMapper([]schema.GroupVersion{gv})
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") {
				continue // a subresource
			}
			scope := meta.RESTScopeRoot
			if r.Namespaced {
				scope = meta.RESTScopeNamespace
			}
			singular := r.SingularName
			if singular == "" {
				singular = strings.ToLower(r.Kind)
			}
			delegate.AddSpecific(gv.WithKind(r.Kind), gv.WithResource(r.Name), gv.WithResource(singular), scope)
		}
		delegates = append(delegates, delegate)
		mapper.ResourcePriority = append(mapper.ResourcePriority, gv.WithResource(meta.AnyResource))
		mapper.KindPriority = append(mapper.KindPriority, gv.WithKind(meta.AnyKind))
	}
	mapper.Delegate = delegates
	return mapper, nil
}

// KindFor implements meta.RESTMapper.
func (m *restMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return findInGroupOf(m, resource, func(mapper meta.RESTMapper) (schema.GroupVersionKind, error) {
		return mapper.KindFor(resource)
	})
}

// KindsFor implements meta.RESTMapper.
func (m *restMapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return find(m, groupOf(resource), func(mapper meta.RESTMapper) ([]schema.GroupVersionKind, error) {
		return mapper.KindsFor(resource)
	})
}

// ResourceFor implements meta.RESTMapper.
func (m *restMapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return findInGroupOf(m, input, func(mapper meta.RESTMapper) (schema.GroupVersionResource, error) {
		return mapper.ResourceFor(input)
	})
}

// ResourcesFor implements meta.RESTMapper.
func (m *restMapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return find(m, groupOf(input), func(mapper meta.RESTMapper) ([]schema.GroupVersionResource, error) {
		return mapper.ResourcesFor(input)
	})
}

// RESTMapping implements meta.RESTMapper.
func (m *restMapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return find(m, kind.Group, func(mapper meta.RESTMapper) (*meta.RESTMapping, error) {
		return mapper.RESTMapping(kind, versions...)
	})
}

// RESTMappings implements meta.RESTMapper.
func (m *restMapper) RESTMappings(kind schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return find(m, kind.Group, func(mapper meta.RESTMapper) ([]*meta.RESTMapping, error) {
		return mapper.RESTMappings(kind, versions...)
	})
}

// ResourceSingularizer implements meta.RESTMapper.
func (m *restMapper) ResourceSingularizer(resource string) (string, error) {
	return find(m, allGroups, func(mapper meta.RESTMapper) (string, error) {
		return mapper.ResourceSingularizer(resource)
	})
}
