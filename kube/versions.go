package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ResourceInAnyVersion is like Resource for callers that must find all objects of a kind, also those that were created
// in other versions. If the API server does not serve the version of kind, it requests the served versions
// and uses the preferred one. The Resource contains the version. The result is cached, as by Resource. That another
// version is used is cached until that version is not served, or the kind's own version is served again.
//
// Errors: ErrNotServed if no version of the kind is served; otherwise the errors of the requests.
func (c *Cluster) ResourceInAnyVersion(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
	c.mu.Lock()
	_, own := findResource(c.resources[kind.GroupVersion()], kind)
	elsewhere := c.elsewhere[kind]
	c.mu.Unlock()
	if !own && elsewhere != "" {
		other, err := c.Resource(ctx, kind.GroupKind().WithVersion(elsewhere))
		if !errors.Is(err, ErrNotServed) {
			return other, err
		}
	}
	resource, err := c.Resource(ctx, kind)
	if kind.Group == "" || !errors.Is(err, ErrNotServed) { // the core group has one version
		return resource, err
	}
	versions, errGroup := c.versionsOf(ctx, kind)
	if errGroup != nil {
		return Resource{}, fmt.Errorf("ask the cluster for the versions of %s: %w", kind.Group, errGroup)
	}
	for _, version := range versions {
		if version == kind.Version {
			continue
		}
		other, errOther := c.Resource(ctx, kind.GroupKind().WithVersion(version))
		if errors.Is(errOther, ErrNotServed) {
			continue
		}
		if errOther == nil {
			c.mu.Lock()
			c.elsewhere[kind] = version
			c.mu.Unlock()
		}
		return other, errOther
	}
	return Resource{}, err
}

// versionsOf requests the versions of the kind's group, with the preferred one first. It returns none if the group does
// not exist.
func (c *Cluster) versionsOf(ctx context.Context, kind schema.GroupVersionKind) ([]string, error) {
	client, err := c.RESTClient(kind.GroupVersion())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	group := &metav1.APIGroup{}
	err = client.Get().AbsPath("/apis", kind.Group).Do(ctx).Into(group)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	versions := []string{group.PreferredVersion.Version}
	for _, version := range group.Versions {
		if version.Version != group.PreferredVersion.Version {
			versions = append(versions, version.Version)
		}
	}
	return versions, nil
}
