package kube

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SubresourceKind returns the kind of what is read and written as a subresource of resource: the
// Scale of "scale", the object's own kind for "status". known is false when the last answer to
// Resource did not list it: such objects have none or, where a definition has changed since,
// will show one after Forget. It makes no request.
func (c *Cluster) SubresourceKind(resource Resource, subresource string) (kind schema.GroupVersionKind, known bool) {
	first, _, _ := strings.Cut(subresource, "/") // as in "proxy/metrics"
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.resources[resource.GroupVersion()] {
		if r.Name != resource.Resource+"/"+first {
			continue
		}
		kind = resource.GroupVersion().WithKind(r.Kind)
		if r.Version != "" { // otherwise it is of the group that lists it
			kind.Group, kind.Version = r.Group, r.Version
		}
		return kind, true
	}
	return kind, false
}
