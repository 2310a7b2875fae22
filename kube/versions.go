package kube

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ResourceInAnyVersion is Resource for who has to find all objects of a kind, whatever version it
// was known in when they were made: when the API server does not serve the version of kind (any
// longer), it is asked for those that it does serve, the one that it prefers first. The Resource
// names the version. At rest there is no request for a kind that is served in its own version.
//
// Errors: ErrNotServed when the kind is served in no version; otherwise what the requests met.
func (c *Cluster) ResourceInAnyVersion(ctx context.Context, kind schema.GroupVersionKind) (Resource, error) {
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
		if errOther == nil || !errors.Is(errOther, ErrNotServed) {
			return other, errOther
		}
	}
	return Resource{}, err
}

// versionsOf asks for the versions of the kind's group, the preferred one first; none when there
// is no such group.
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
