package client

import (
	"github.com/evenkeel-go/evenkeel/internal/difference"
	"github.com/evenkeel-go/evenkeel/kube"
)

// contentOf returns the fields of an object as in JSON, in new maps that the caller may change. It omits the
// unset fields of typed objects.
func contentOf(obj kube.Object) (map[string]any, error) { return (&difference.Shapes{}).Content(obj) }

// contents caches the fields of objects, without managedFields, during one call, so that an object is encoded once for
// several comparisons. It must be used by one goroutine. Callers must not change its results.
type contents struct {
	shapes *difference.Shapes
	known  map[kube.Object]map[string]any
}

func newContents(s *difference.Shapes) *contents { return &contents{shapes: s} }

// content returns the fields of an object without managedFields, which objects of informers do not have.
func (c *contents) content(obj kube.Object) (map[string]any, error) {
	if len(obj.GetManagedFields()) == 0 {
		return c.shapes.Content(obj)
	}
	return c.shapes.ContentExcept(obj, isManagedFields)
}

func isManagedFields(field, inner string) bool {
	return field == "metadata" && inner == "managedFields"
}

// of returns the fields of an object without managedFields. The object must not change while c is used.
func (c *contents) of(obj kube.Object) (map[string]any, error) {
	if content, ok := c.known[obj]; ok {
		return content, nil
	}
	content, err := c.content(obj)
	if err != nil {
		return nil, err
	}
	if c.known == nil {
		c.known = map[kube.Object]map[string]any{}
	}
	c.known[obj] = content
	return content, nil
}
