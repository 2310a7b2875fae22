package informer

import (
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/store"
)

// Object is Get for code that does not know T: package client's, for one. While the informer does
// not run it finds nothing: what nobody feeds any longer is not a little old, but older every minute.
func (i *Informer[T]) Object(key kube.Key) (obj kube.Object, found bool, err error) {
	if !i.core.isRunning() {
		return nil, false, nil
	}
	typed, found, err := i.Get(key)
	if err != nil || !found {
		return nil, false, err
	}
	return typed, true, nil
}

// Objects is List for code that does not know T: of one namespace ("": of all), those that
// selector matches (nil: all).
func (i *Informer[T]) Objects(namespace string, selector labels.Selector) iter.Seq2[kube.Object, error] {
	return func(yield func(kube.Object, error) bool) {
		for obj, err := range i.List(store.Query{Namespace: namespace, Labels: selector}) {
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
// It is false until the informer is synced, when it retrieves by fields, while it does without
// its kind (Config.Optional), and with a Retriever of one's own, of which nobody knows.
func (i *Informer[T]) Covers(namespace string, selector labels.Selector) bool {
	return i.core.covers(namespace, selector)
}

func (c *core) isRunning() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil
}

func (c *core) covers(namespace string, selector labels.Selector) bool {
	c.mu.Lock()
	running, parts := c.session != nil, c.parts
	c.mu.Unlock()
	return running && slices.ContainsFunc(parts, func(p *part) bool {
		return p.selects.covers(namespace, selector) && p.isSettled() && !p.isDegraded()
	})
}
