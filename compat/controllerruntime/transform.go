package controllerruntime

import (
	"fmt"
	"reflect"
	"runtime"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// stripsManagedFields reports whether f is the function of cache.TransformStripManagedFields, which the informer
// replaces: it does not keep managedFields. Function pointers differ if the compiler inlines that function, so the
// places of both in the source are compared.
func stripsManagedFields(f toolscache.TransformFunc) bool {
	return f != nil && placeOf(f) == placeOf(cache.TransformStripManagedFields())
}

// place is the place of a function in the source.
type place struct {
	file string
	line int
}

func placeOf(f toolscache.TransformFunc) place {
	pc := reflect.ValueOf(f).Pointer()
	file, line := runtime.FuncForPC(pc).FileLine(pc)
	return place{file, line}
}

// transform changes obj as f does. f may also return another object.
func (s *engineInformerOf[T]) transform(obj T, f toolscache.TransformFunc) error {
	decoded, err := s.decoded(s.decoder, obj)
	if err != nil {
		return err
	}
	result, err := f(decoded)
	if err != nil {
		return err
	}
	changed, ok := result.(client.Object)
	if !ok || reflect.TypeOf(changed) != reflect.TypeOf(decoded) {
		return fmt.Errorf("the transform returned a %T for a %T", result, decoded)
	}
	if encoded, ok := any(obj).(*wire.EncodedObject); ok {
		encoded.Encoded, err = wire.FromObject(changed, nil)
		return err
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(changed).Elem())
	return nil
}
