package kube

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SubresourceKind returns the kind that a subresource of resource is read and written with: Scale for "scale", the
// object's own kind for "status". known is false if the last response to Resource did not list the subresource: such
// objects do not have it, or the definition has changed since, which Forget makes visible. It makes no request.
func (c *Cluster) SubresourceKind(resource Resource, subresource string) (kind schema.GroupVersionKind, known bool) {
	first, _, _ := strings.Cut(subresource, "/") // as in "proxy/metrics"
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.resources[resource.GroupVersion()] {
		if r.Name != resource.Resource+"/"+first {
			continue
		}
		kind = resource.GroupVersion().WithKind(r.Kind)
		if r.Version != "" { // otherwise it has the group of its list
			kind.Group, kind.Version = r.Group, r.Version
		}
		return kind, true
	}
	return kind, false
}
