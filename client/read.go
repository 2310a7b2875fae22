package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Get returns the object under key: from one of the client's informers, where one has it or
// covers its namespace, otherwise from the API server. It belongs to the caller.
//
//	deployment, err := client.Get[*appsv1.Deployment](ctx, c, kube.Key{Namespace: "shop", Name: "web"})
//
// Options: OfKind, FromAPI, NotOlderThan (which asks the API server), Subresource for a part
// that has the object's own kind.
//
// Errors: ErrGone, of which apierrors.IsNotFound is true too, when there is no such object;
// kube.ErrNotServed when there is no such kind; a key without a namespace for a kind that
// lives in namespaces, and the reverse.
func Get[T kube.Object](ctx context.Context, c *Client, key kube.Key, options ...Option) (T, error) {
	var none T
	s, err := newSettings(options, "OfKind", "FromAPI", "NotOlderThan", "Subresource")
	if err != nil {
		return none, fmt.Errorf("get %s: %w", key, err)
	}
	t, err := targetFor[T](ctx, c, key, s.kind)
	if err != nil {
		return none, fmt.Errorf("get: %w", err)
	}
	if t.key.Name == "" {
		return none, fmt.Errorf("get %s: the key has no name", t)
	}
	if !s.fromAPI && s.notOlderThan == "" && s.subresource == "" {
		obj, answered, err := cached[T](t)
		if err != nil {
			return none, fmt.Errorf("get %s: %w", t, err)
		}
		if answered {
			return obj, nil
		}
	}
	obj, err := get(ctx, t, s, none)
	if err != nil {
		return none, fmt.Errorf("get %s: %w", t, err)
	}
	return obj, nil
}

// get reads the object from the API server into a new one of the type of like.
func get[T kube.Object](ctx context.Context, t target, s settings, like T) (T, error) {
	r := t.request(VerbGet, s)
	return exchange(ctx, t, r, like)
}

// exchange sends r and decodes the answer as an object of the target's kind.
func exchange[T kube.Object](ctx context.Context, t target, r *Request, like T) (T, error) {
	answer := newLike(like)
	r.Answer = answer
	if err := t.client.send(ctx, r); err != nil {
		var none T
		return none, err
	}
	if r.Subresource == "" || r.Subresource == "status" {
		answer.GetObjectKind().SetGroupVersionKind(t.kind) // of the object, not "PartialObjectMetadata"
	}
	return answer, nil
}

// cached asks the client's informers for the object. answered is false when the API server has
// to be asked.
func cached[T kube.Object](t target) (obj T, answered bool, err error) {
	var none T
	_, wantsMetadata := any(newLike(none)).(*metav1.PartialObjectMetadata)
	covered := false
	for informer := range t.client.informersOf(t.kind) {
		if _, whole := informer.Model(); !whole && !wantsMetadata {
			continue
		}
		found, ok, err := informer.Object(t.key)
		if err != nil {
			return none, false, err
		}
		if ok {
			obj, err := convert(found, t.kind, none)
			return obj, err == nil, err
		}
		covered = covered || informer.Covers(t.key.Namespace, nil)
	}
	if covered {
		return none, false, fmt.Errorf("%w: %w", ErrGone, apierrors.NewNotFound(t.resource.GroupResource(), t.key.Name))
	}
	return none, false, nil
}

// Exists reports whether there is an object under key. It reads metadata only. Options: those
// of Get.
func Exists[T kube.Object](ctx context.Context, c *Client, key kube.Key, options ...Option) (bool, error) {
	kind, err := kindFor[T](c, options)
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", key, err)
	}
	_, err = Get[*metav1.PartialObjectMetadata](ctx, c, key, append(options, OfKind(kind))...)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	return err == nil, err
}

// List iterates over the objects of type T that options select, from an informer that covers
// what is asked for, otherwise from the API server, which is asked for a page when its first
// object's turn comes. The objects belong to the caller.
//
//	for pod, err := range client.List[*corev1.Pod](ctx, c, client.InNamespace("shop"), client.LabelSelector("app=web")) {
//		if err != nil {
//			return err
//		}
//		...
//	}
//
// An error is the last thing that comes, in place of the objects that are missing. When the API
// server has forgotten the state that the first page showed (410, after some minutes), List
// goes on with the present one: then an object that was changed meanwhile may come twice or,
// when it was deleted and created again, not at all. All has none of this.
//
// Options: OfKind, FromAPI, InNamespace, WithLabels, LabelSelector, FieldSelector, PageSize,
// NotOlderThan.
func List[T kube.Object](ctx context.Context, c *Client, options ...Option) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		s, t, err := prepareList[T](ctx, c, options)
		if err != nil {
			yield(none, fmt.Errorf("list: %w", err))
			return
		}
		if informer := listedBy[T](t, s); informer != nil {
			for obj, err := range informer.Objects(t.key.Namespace, s.labels) {
				var as T
				if err == nil {
					as, err = convert(obj, t.kind, none)
				}
				if err != nil {
					yield(none, fmt.Errorf("list %s: %w", t, err))
					return
				}
				if !yield(as, nil) {
					return
				}
			}
			return
		}
		if err := pages(ctx, t, s, yield); err != nil {
			yield(none, fmt.Errorf("list %s: %w", t, err))
		}
	}
}

// pages yields the objects of all pages.
func pages[T kube.Object](ctx context.Context, t target, s settings, yield func(T, error) bool) error {
	var none T
	r := t.request(VerbList, s)
	r.List = s.listOptions()
	for {
		answer := &page{}
		r.Answer = answer
		if err := t.client.send(ctx, r); err != nil {
			return err
		}
		for _, raw := range answer.Items {
			obj, err := decode(raw, t.kind, none)
			if err != nil {
				return fmt.Errorf("decode an object of the answer: %w", err)
			}
			if !yield(obj, nil) {
				return nil
			}
		}
		if answer.Continue == "" {
			return nil
		}
		r.List.Continue = answer.Continue
		r.List.ResourceVersion, r.List.ResourceVersionMatch = "", ""
	}
}

// All returns the objects of List, of one moment, in the API server's order (by namespace and
// name) or, from an informer, in none. Options: those of List.
func All[T kube.Object](ctx context.Context, c *Client, options ...Option) ([]T, error) {
	var all []T
	for obj, err := range List[T](ctx, c, options...) {
		if err != nil {
			return nil, err
		}
		all = append(all, obj)
	}
	return all, nil
}

// Names returns the keys of the objects of List. It reads metadata only. Options: those of List.
func Names[T kube.Object](ctx context.Context, c *Client, options ...Option) (sets.Set[kube.Key], error) {
	kind, err := kindFor[T](c, options)
	if err != nil {
		return nil, fmt.Errorf("list names: %w", err)
	}
	names := sets.New[kube.Key]()
	for obj, err := range List[*metav1.PartialObjectMetadata](ctx, c, append(options, OfKind(kind))...) {
		if err != nil {
			return nil, err
		}
		names.Insert(kube.KeyOf(obj))
	}
	return names, nil
}

// listOptionNames are the options that select objects.
func listOptionNames(more ...string) []string {
	return append(more, "OfKind", "InNamespace", "WithLabels", "LabelSelector", "FieldSelector")
}

func prepareList[T kube.Object](ctx context.Context, c *Client, options []Option) (settings, target, error) {
	s, err := newSettings(options, listOptionNames("FromAPI", "PageSize", "NotOlderThan")...)
	if err != nil {
		return s, target{}, err
	}
	t, err := targetFor[T](ctx, c, kube.Key{Namespace: s.namespace}, s.kind)
	return s, t, err
}

// listedBy returns the informer that can answer, or nil.
func listedBy[T kube.Object](t target, s settings) Informer {
	if s.fromAPI || s.fields != nil || s.notOlderThan != "" {
		return nil
	}
	var none T
	_, wantsMetadata := any(newLike(none)).(*metav1.PartialObjectMetadata)
	for informer := range t.client.informersOf(t.kind) {
		if _, whole := informer.Model(); (whole || wantsMetadata) && informer.Covers(t.key.Namespace, s.labels) {
			return informer
		}
	}
	return nil
}

// listOptions are the settings as the API has them.
func (s settings) listOptions() metav1.ListOptions {
	o := metav1.ListOptions{Limit: s.pageSize}
	if s.labels != nil {
		o.LabelSelector = s.labels.String()
	}
	if s.fields != nil {
		o.FieldSelector = s.fields.String()
	}
	if s.notOlderThan != "" {
		o.ResourceVersion, o.ResourceVersionMatch = s.notOlderThan, metav1.ResourceVersionMatchNotOlderThan
	}
	return o
}
