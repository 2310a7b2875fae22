package webhooks

import (
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// patched returns the object of the call with a patch. It is decoded as in the real server, so that it has the same
// errors.
func (c *invocation) patched(patch jsonpatch.Patch, kinds []*apiserver.Kind) (apiserver.Object, error) {
	content, err := contentOf(c.obj, c.kind)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, err
	}
	into := reflect.New(reflect.TypeOf(c.obj).Elem()).Interface().(runtime.Object)
	types := patchTypes{c.kind, kinds}
	decoded, _, err := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, types, types,
		serializer.SerializerOptions{}).Decode(after, nil, into)
	if err != nil {
		return nil, err
	}
	if reflect.TypeOf(decoded) != reflect.TypeOf(c.obj) {
		return nil, fmt.Errorf("converting (%T) to (%T): unknown conversion", decoded, c.obj)
	}
	obj := decoded.(apiserver.Object)
	if _, ok := obj.(runtime.Unstructured); !ok {
		obj.GetObjectKind().SetGroupVersionKind(c.obj.GetObjectKind().GroupVersionKind())
	}
	return obj, nil
}

// patchTypes are the types of objects for the decoder of a patched object of a kind.
type patchTypes struct {
	kind  schema.GroupVersionKind
	kinds []*apiserver.Kind
}

// ObjectKinds implements runtime.ObjectTyper.
func (t patchTypes) ObjectKinds(runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	return []schema.GroupVersionKind{t.kind}, false, nil
}

// Recognizes implements runtime.ObjectTyper.
func (t patchTypes) Recognizes(gvk schema.GroupVersionKind) bool { return gvk == t.kind }

// New implements runtime.ObjectCreater.
func (t patchTypes) New(gvk schema.GroupVersionKind) (runtime.Object, error) {
	for _, kind := range t.kinds {
		if kind.GroupVersionKind == gvk {
			return kind.NewObject(), nil
		}
	}
	return nil, runtime.NewNotRegisteredErrForKind("pkg/runtime/scheme.go:111", gvk) // as the scheme of the real server
}
