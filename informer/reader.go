package informer

import (
	"errors"
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Object is Get for code that does not know T: package client's, for one. While nobody runs the
// informer, it finds nothing and returns no error: Covers is false then, and a client asks the API
// server.
func (i *Informer[T]) Object(key kube.Key) (obj kube.Object, found bool, err error) {
	typed, found, err := i.Get(key)
	if errors.Is(err, ErrNotRunning) {
		return nil, false, nil
	}
	if err != nil || !found {
		return nil, false, err
	}
	return typed, true, nil
}

// ObjectAndApplied is Object, and returns also what Config.KeepAppliedBy has applied to the object in
// that state; nil when it has applied nothing, or nothing is kept.
func (i *Informer[T]) ObjectAndApplied(key kube.Key) (obj kube.Object, applied *metav1.ManagedFieldsEntry, found bool, err error) {
	parts, err := i.core.readable()
	if err != nil {
		return nil, nil, false, nil // as with Object
	}
	for _, p := range parts {
		ref, found := p.objects().Get(key)
		if !found {
			continue
		}
		err = ref.Read(func(o *wire.Object) error {
			if entry, kept := o.AppliedFields(); kept {
				applied = &entry
			}
			obj, err = i.decode(o)
			return err
		})
		if err != nil {
			return nil, nil, false, err
		}
		return obj, applied, true, nil
	}
	return nil, nil, false, nil
}

// Objects is List for code that does not know T: of one namespace ("": of all), those that
// selector matches (nil: all). While nobody runs the informer, there are none, as with Object.
func (i *Informer[T]) Objects(namespace string, selector labels.Selector) iter.Seq2[kube.Object, error] {
	return func(yield func(kube.Object, error) bool) {
		for obj, err := range i.List(Query{Namespace: namespace, Labels: selector}) {
			if errors.Is(err, ErrNotRunning) {
				return
			}
			if err != nil {
				if !yield(nil, err) {
					return
				}
			} else if !yield(obj, nil) {
				return
			}
		}
	}
}

// Covers reports whether the informer shows every object that its kind has in namespace (""
// asks for all namespaces, and for kinds that live in none) and that selector matches (nil: all),
// so that what it does not show does not exist, or is too new. An informer that retrieves by
// labels covers selectors that ask for the same and more.
//
// It is false until the informer has listed, when it retrieves by fields, and with a Retriever of
// one's own. An optional informer that the API server refused covers nothing until it has listed
// again, whatever error follows.
func (i *Informer[T]) Covers(namespace string, selector labels.Selector) bool {
	return i.core.covers(namespace, selector)
}

func (c *core) covers(namespace string, selector labels.Selector) bool {
	c.mu.Lock()
	running, parts := c.session != nil, c.parts
	c.mu.Unlock()
	return running && slices.ContainsFunc(parts, func(p *part) bool {
		return p.selects.covers(namespace, selector) && p.isComplete()
	})
}
