package wire

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/kube"
)

// EncodedObject is an encoded object as a kube.Object. Its metadata is empty. An informer of *EncodedObject is for
// objects whose Go type is known only at run time: NewDecoderInto decodes them. informer.NewChange does not encode it:
// sources of other informers use it, and tests of objects that cannot be decoded.
type EncodedObject struct {
	metav1.PartialObjectMetadata
	Encoded *Object
	// Uncertain is true for the state before a Deleted that may not be the object's last state.
	Uncertain bool
}

// NewDecoderInto returns a Decoder into new objects of the Go type of model, which is a pointer to a struct.
func NewDecoderInto(kind schema.GroupVersionKind, model kube.Object) Decoder[kube.Object] {
	t := reflect.TypeOf(model)
	return Decoder[kube.Object]{
		kind: kind, proto: isMessage(t),
		empty: func() kube.Object { return reflect.New(t.Elem()).Interface().(kube.Object) },
	}
}
