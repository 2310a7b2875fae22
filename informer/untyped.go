package informer

import (
	"context"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	operators "k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/internal/store"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Any is an informer with objects of any type. *Informer[T] implements it for every T. Types outside of this module
// cannot implement it. Controllers, sources and clients take informers as Any, or as a part of it.
type Any interface {
	// Name returns the informer's name.
	Name() string
	// Kind returns the kind of the objects. It is empty if the Retriever does not specify it.
	Kind() schema.GroupVersionKind
	// Join runs the informer until leave is called. See Informer.Join.
	Join(ctx context.Context) (leave func())
	// WaitSynced waits until the informer has listed all objects, or ctx ends.
	WaitSynced(ctx context.Context) error
	// Ready returns the reason why the informer is not ready, or nil.
	Ready() error
	// Health returns the informer's state.
	Health() Health
	// Subscribe calls notify for every change. See Informer.Subscribe.
	Subscribe(notify func(Change)) (unsubscribe func())
	// Walk iterates over one of shares equal parts of the objects. See Informer.Walk.
	Walk(share, shares int) iter.Seq[Change]
	sealed
}

// sealed is implemented by the informers of this package.
type sealed = cache.Untyped

// handle holds the methods of an Informer for the other packages of this module.
type handle = cache.Holder[cache.Informer]

// newInformer returns a view of an informer.
func newInformer[T kube.Object](c *core, decoder wire.Decoder[T], cut *wire.Cut) *Informer[T] {
	i := &Informer[T]{core: c, decoder: decoder, object: decoder.Type(), cut: cut}
	if i.object != reflect.TypeFor[*wire.EncodedObject]() {
		i.decoded = c.decoded
	}
	i.handle = cache.Hold[cache.Informer](untyped[T]{i})
	i.metadata = sync.OnceValue(func() cache.Reader {
		// T has the same kind, so that there is no error. Other views of this type share the objects that are kept
		// decoded.
		decoder, _ := wire.NewDecoder[*metav1.PartialObjectMetadata](c.kind)
		return untyped[*metav1.PartialObjectMetadata]{newInformer(c, decoder, cut)}
	})
	return i
}

// untyped implements cache.Informer, where its methods are documented.
type untyped[T kube.Object] struct{ informer *Informer[T] }

func (u untyped[T]) Name() string                  { return u.informer.Name() }
func (u untyped[T]) Kind() schema.GroupVersionKind { return u.informer.Kind() }
func (u untyped[T]) Staleness() time.Duration      { return u.informer.core.staleness() }

func (u untyped[T]) Subscribe(notify any) (unsubscribe func()) {
	return u.informer.core.subscribe(notify.(func(Change)))
}

func (u untyped[T]) Metadata() cache.Reader { return u.informer.metadata() }

func (u untyped[T]) ReadsFrom(server string) bool {
	return !slices.ContainsFunc(u.informer.core.allParts(), func(p *part) bool { return !p.readsFrom(server) })
}

func (u untyped[T]) Namespaces() []string { return u.informer.namespaces }

func (u untyped[T]) Cluster() *kube.Cluster { return u.informer.core.cluster }
func (u untyped[T]) Logger() *slog.Logger   { return u.informer.core.logger }

func (u untyped[T]) NewObject() (obj kube.Object, whole bool) {
	obj = apiobject.New[T]()
	_, metadataOnly := obj.(*metav1.PartialObjectMetadata)
	return obj, u.informer.core.whole && !metadataOnly
}

func (u untyped[T]) Covers(namespace string, selector labels.Selector) bool {
	return u.informer.core.covers(namespace, selector)
}

func (u untyped[T]) Object(key kube.Key) (obj kube.Object, applied *metav1.ManagedFieldsEntry, found bool, err error) {
	if u.informer.core.transform != nil {
		return nil, nil, false, nil // it has other objects than the API server
	}
	for _, p := range u.readable(key) {
		ref, found := p.objects().Get(key)
		if !found {
			continue
		}
		if !u.informer.core.keepsApplied {
			obj, err = u.informer.read(ref)
		} else {
			obj, applied, err = u.informer.readApplied(ref)
		}
		if err != nil {
			return nil, nil, false, err
		}
		return obj, applied, true, nil
	}
	return nil, nil, false, nil
}

func (u untyped[T]) Objects(namespace string, selector labels.Selector) iter.Seq2[kube.Object, error] {
	return u.ObjectsByFields(namespace, selector, nil)
}

// indexedBy separates the requirements on the key from the one that an index must answer. ok is false if more than one
// index would be necessary, or if no index can answer.
func indexedBy(required fields.Requirements) (onKey fields.Requirements, index, value string, ok bool) {
	for _, r := range required {
		switch {
		case r.Field == fieldName || r.Field == fieldNamespace:
			onKey = append(onKey, r)
		case index != "" || r.Operator == operators.NotEquals || r.Value == "":
			// For objects without a value, many functions return no values.
			return nil, "", "", false
		default:
			index, value = r.Field, r.Value
		}
	}
	return onKey, index, value, true
}

func (u untyped[T]) HasFields(required fields.Requirements) bool {
	_, index, _, ok := indexedBy(required)
	if !ok || index == "" {
		return ok
	}
	parts, _, err := u.informer.core.readable()
	return err == nil && u.informer.core.whole && !slices.ContainsFunc(parts, func(p *part) bool {
		return !p.objects().HasIndex(index)
	})
}

func (u untyped[T]) ObjectsByFields(
	namespace string, selector labels.Selector, required fields.Requirements,
) iter.Seq2[kube.Object, error] {
	return func(yield func(kube.Object, error) bool) {
		onKey, index, value, ok := indexedBy(required)
		if !ok {
			return
		}
		query := store.Query{Namespace: namespace, Labels: selector, Index: index, Value: value}
		skip := func(key kube.Key) bool {
			return slices.ContainsFunc(onKey, func(r fields.Requirement) bool { return !meets(key, r) })
		}
		for _, p := range u.readable(kube.Key{Namespace: namespace}) {
			for obj, err := range u.informer.list(p.objects(), query, skip) {
				var found kube.Object // not a typed nil pointer
				if err == nil {
					found = obj
				}
				if !yield(found, err) {
					return
				}
			}
		}
	}
}

// readable returns the parts to read key from, as gaps.of describes it; none if a read of it fails.
func (u untyped[T]) readable(key kube.Key) []*part {
	parts, gaps, err := u.informer.core.readable()
	if _, hidden := gaps.of(key); err != nil || hidden != nil {
		return nil
	}
	return parts
}

func (u untyped[T]) Has(key kube.Key) bool {
	return u.informer.core.keptBy(u.informer.core.allParts(), key)
}

func (u untyped[T]) Absent(key kube.Key) bool {
	found, err := u.informer.has(key)
	// Reads of an optional kind that is forbidden return no error.
	return !found && err == nil && !slices.ContainsFunc(u.informer.core.allParts(), func(p *part) bool {
		now := p.status.condition()
		return !now.complete && !isNotServed(now.err) && !p.selects.excludes(key)
	})
}

func (u untyped[T]) Exists(ctx context.Context, key kube.Key, uid types.UID) (bool, error) {
	for _, p := range u.informer.core.allParts() {
		if p.exists != nil {
			return p.exists(ctx, key, uid)
		}
	}
	return false, nil
}

func (u untyped[T]) Encoded(key kube.Key) (*wire.Object, bool) {
	ref, found := u.informer.core.keptBeside(nil, key)
	if !found {
		return nil, false
	}
	var encoded wire.Object
	_, err := readInto(&encoded, &ref)
	return &encoded, err == nil
}

func (u untyped[T]) Decode(o *wire.Object) (kube.Object, error) { return u.informer.decode(o) }

func (u untyped[T]) As(decoder wire.Decoder[kube.Object]) any {
	return newInformer(u.informer.core, decoder, u.informer.cut)
}

func (u untyped[T]) Await(w cache.Write, seen func()) (cancel func()) {
	return u.informer.core.await(w, u.contentOf(w.Object), seen)
}

func (u untyped[T]) Unseen(writes []cache.Write) (unseen []cache.Write) {
	c := u.informer.core
	if !c.events.TryLock() {
		return writes // the caller may be a subscriber
	}
	defer c.events.Unlock()
	if running, _ := c.showing(); !running {
		return writes
	}
	for _, w := range writes {
		write := c.awaited(w, u.contentOf(w.Object))
		defer write.cancel() // an unseen write determines whether later ones to its object are seen
		if len(write.awaited) > 0 {
			unseen = append(unseen, w)
		}
	}
	return unseen
}

func (u untyped[T]) ReadyFor(w cache.Write) error {
	return u.informer.core.readyFor(w, u.contentOf(w.Object))
}

// contentOf returns a function that returns the fields of an object, or nil if they are not known.
func (u untyped[T]) contentOf(o *wire.Object) func() map[string]any {
	return sync.OnceValue(func() map[string]any {
		model, whole := u.NewObject()
		content, err := wire.Content(o, func() kube.Object { return model })
		if err != nil || !whole && o.Format == wire.Protobuf {
			return nil // T does not define the fields
		}
		return content
	})
}

func (c *core) covers(namespace string, selector labels.Selector) bool {
	c.mu.Lock()
	running, parts := c.session != nil, c.parts
	c.mu.Unlock()
	if selector != nil && c.cutsLabels {
		return false // the cached objects do not show whether it matches them
	}
	return running && c.transform == nil && slices.ContainsFunc(parts, func(p *part) bool {
		return p.selects.covers(namespace, selector) && p.status.condition().complete
	})
}
