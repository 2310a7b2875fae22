package informer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/gotype"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Kept returns the bytes of the object under key, which belong to the caller. It is for code
// that looks at objects without knowing their type; Get decodes.
func (i *Informer[T]) Kept(key kube.Key) (*wire.Object, bool) {
	for _, p := range i.core.allParts() {
		if ref, found := p.objects().Get(key); found {
			var kept wire.Object
			if _, err := readInto(&kept, ref); err != nil {
				return nil, false
			}
			return &kept, true
		}
	}
	return nil, false
}

// Model returns a new, empty object of the informer's type. whole is false when the informer
// keeps parts of objects only: their metadata, or what Config.Cut leaves.
func (i *Informer[T]) Model() (model kube.Object, whole bool) {
	_, metadata := any(gotype.New[T]()).(*metav1.PartialObjectMetadata)
	return gotype.New[T](), i.core.whole && !metadata
}

// OldVersion returns the resource version of the state before the change, without reading it.
// Empty: there is none.
func (c Change) OldVersion() string {
	switch s := c.states; {
	case s == nil:
		return ""
	case !s.oldRead:
		return s.oldRef.ResourceVersion()
	case s.old == nil:
		return ""
	default:
		return s.old.ResourceVersion
	}
}
