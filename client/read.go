package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/evenkeel-go/evenkeel/internal/cache"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Get returns the object with this key: from an informer of the client if one has it or covers its namespace,
// otherwise from the API server. It belongs to the caller.
//
//	web, err := client.Get[*appsv1.Deployment](ctx, c, kube.Key{Namespace: "shop", Name: "web"})
//
// Options: OfKind; FromAPI; NotOlderThan, Subresource, for a subresource of the object's own kind, and SubresourceOf,
// which read from the API server.
//
// Errors: ErrGone, for which apierrors.IsNotFound is true, if the object does not exist; kube.ErrNotServed if
// the cluster does not serve the kind; a missing or superfluous namespace.
func Get[T kube.Object](ctx context.Context, c *Client, key kube.Key, options ...ReadOption) (T, error) {
	s, err := newSettings(options, "FromAPI, NotOlderThan, OfKind, Subresource, SubresourceOf")
	if err != nil {
		var none T
		return none, fmt.Errorf("get %s: %w", key, err)
	}
	if s.parent != nil {
		return getSubresource[T](ctx, c, key, s)
	}
	return getWith[T](ctx, c, key, s)
}

func getWith[T kube.Object](ctx context.Context, c *Client, key kube.Key, s settings) (T, error) {
	var none T
	t, err := targetFor[T](ctx, c, key, s)
	if err != nil {
		return none, fmt.Errorf("get: %w", err)
	}
	t.action = "get"
	if t.key.Name == "" {
		return none, t.failed(errors.New("the key has no name"))
	}
	if err := t.checkBody(); err != nil {
		return none, t.failed(err)
	}
	if !t.fromAPI && t.subresource == "" {
		parts := isMetadata(none)
		seen, answered, err := cachedState(t, none, parts, t.informers(ctx, parts))
		if err == nil && answered && !seen.exists {
			err = t.gone()
		}
		if err != nil || answered {
			return seen.object, t.failed(err)
		}
	}
	obj, err := get(ctx, t, none)
	return obj, t.failed(err)
}

// get reads the object from the API server into a new one of the type of like.
func get[T kube.Object](ctx context.Context, t target, like T) (T, error) {
	return exchange(ctx, t, t.request(VerbGet), like)
}

// exchange sends r and decodes the response as an object of the target's kind.
func exchange[T kube.Object](ctx context.Context, t target, r *Request, like T) (T, error) {
	response := newLike(like)
	r.Response = response
	if err := t.client.send(ctx, r); err != nil {
		var none T
		return none, err
	}
	if r.Subresource == "" || r.Subresource == "status" {
		response.GetObjectKind().SetGroupVersionKind(t.kind) // of the object, not "PartialObjectMetadata"
	}
	return response, nil
}

// Exists reports whether an object with this key exists. It reads metadata only.
//
// Options: OfKind, FromAPI, NotOlderThan.
func Exists[T kube.Object](ctx context.Context, c *Client, key kube.Key, options ...ReadOption) (bool, error) {
	s, err := newSettings(options, "FromAPI, NotOlderThan, OfKind")
	if err == nil {
		s.kind, err = metadataKind[T](c, s.kind)
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", key, err)
	}
	_, err = getWith[*metav1.PartialObjectMetadata](ctx, c, key, s)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	return err == nil, err
}

// metadataKind returns the kind of T, or the given kind, for a call that reads only metadata.
func metadataKind[T kube.Object](c *Client, given schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if err := c.check(); err != nil {
		return given, err
	}
	return kindFor[T](c, given)
}

// List iterates over the selected objects of type T: from an informer that covers the selection,
// otherwise from the API server. It requests a page when the iteration reaches it. The objects belong to the
// caller.
//
//	web := kube.Selection{Namespaces: []string{"shop"}, LabelSelector: "app=web"}
//	for pod, err := range client.List[*corev1.Pod](ctx, c, web) {
//
// An error ends the iteration, in place of the remaining objects. All pages are of the same state, unless the
// API server drops that state before the last page (410 Expired: it keeps states for some minutes). List then
// continues after the last object in the current state: no object is repeated, but an object that was created
// or changed since may be missing or newer than the previous ones. All starts again instead. ListPage returns
// single pages and their tokens.
//
// Several namespaces are read one after another, in the order of the selection, each in its own state.
//
// List evaluates a FieldSelector on an informer that covers the selection if it can evaluate every requirement: those
// on metadata.name and metadata.namespace, and one that another field has a value which is not empty, if the informer
// stores whole objects and one of its Config.Indexes has the name of the field. So a field that only an index has,
// such as a reference in the spec of a custom resource, can be selected as soon as the informer has listed; until then
// the API server rejects it.
//
// Options: FromAPI, NotOlderThan, PageSize.
func List[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, options ...ReadOption,
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		targets, err := beginRead[T](ctx, c, "list", selection, options, optionsOfList)
		more := true
		for i := 0; i < len(targets) && err == nil && more; i++ {
			targets[i].resume = true
			err = list(ctx, targets[i], func(obj T, err error) bool {
				more = yield(obj, err)
				return more
			})
		}
		if err != nil {
			var none T
			yield(none, err)
		}
	}
}

// list yields the selected objects until yield returns false. It never yields an error.
func list[T kube.Object](ctx context.Context, t target, yield func(T, error) bool) (err error) {
	t.action = "list"
	defer func() { err = t.failed(err) }()
	informer := listedBy[T](ctx, t)
	if informer == nil {
		_, err := pages(ctx, t, yield)
		return err
	}
	var none T
	yielded := false
	for obj, err := range t.objectsOf(readerFor(informer, none)) {
		if err != nil {
			return err
		}
		as, err := convert(obj, t.kind, none)
		if err != nil {
			return err
		}
		if !yield(as, nil) {
			return nil
		}
		yielded = true
	}
	switch {
	case t.coveredBy(informer):
		return nil
	case !yielded:
		_, err := pages(ctx, t, yield)
		return err
	}
	return fmt.Errorf("informer %q was stopped or lost its objects while they were read", informer.Name())
}

// pages yields the objects of all pages, and returns the resourceVersion of the last page.
func pages[T kube.Object](ctx context.Context, t target, yield func(T, error) bool) (version string, err error) {
	var none T
	options := t.listOptions()
	resumed := false // since the last page: otherwise a server that always returns 410 causes an endless loop
	for {
		response, err := t.page(ctx, options)
		if err != nil {
			next := continueAfter(err)
			if !t.resume || resumed || next == "" || next == options.Continue {
				return "", t.withoutIndex(err)
			}
			options.Continue, resumed = next, true
			continue
		}
		resumed = false
		for _, raw := range response.Items {
			obj, err := decodeOneOf(raw, t.kind, none)
			if err != nil {
				return "", err
			}
			if !yield(obj, nil) {
				return "", nil
			}
		}
		if response.Continue == "" {
			return response.ResourceVersion, nil
		}
		options.Continue = response.Continue
		// The token contains the state.
		options.ResourceVersion, options.ResourceVersionMatch = "", ""
	}
}

// withoutIndex adds to the API server's rejection of a field selector that no informer could answer it.
func (t target) withoutIndex(err error) error {
	if t.fields == nil || t.fromAPI || !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "field") {
		return err
	}
	for _, informer := range t.client.informers[t.kind] {
		return fmt.Errorf("%w; informer %q does not answer %q: that needs an Index with the name of the field, one "+
			"such field with a value, and an informer of the whole selection that has listed and, with "+
			"ReadOwnWrites, shows the client's writes", err, informer.Name(), t.fields)
	}
	return err
}

// continueAfter returns the token that the API server sends with a 410, to continue in the current state.
func continueAfter(err error) string {
	if !apierrors.IsResourceExpired(err) {
		return ""
	}
	return statusOf(err).Continue
}

// All returns the objects of List in one state (of each namespace, if the selection has several). From the API server
// they are ordered by namespace and name, from an informer unordered; several namespaces have the order of the
// selection. If the API server drops the state of the first page before the last page, All requests all objects again,
// in one page.
//
// Options: those of List.
func All[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, options ...ReadOption,
) ([]T, error) {
	targets, err := beginRead[T](ctx, c, "list", selection, options, optionsOfList)
	if err != nil {
		return nil, err
	}
	var all []T
	gather := func(obj T, _ error) bool {
		all = append(all, obj)
		return true
	}
	for _, t := range targets {
		before := len(all)
		err := list(ctx, t, gather)
		if apierrors.IsResourceExpired(err) && t.pageSize > 0 {
			t.pageSize, all = 0, all[:before]
			err = list(ctx, t, gather)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Keys returns the keys of the objects of All. It reads metadata only. Options: those of List.
func Keys[T kube.Object](
	ctx context.Context, c *Client, selection kube.Selection, options ...ReadOption,
) (sets.Set[kube.Key], error) {
	var err error
	if selection.Kind, err = metadataKind[T](c, selection.Kind); err != nil {
		return nil, fmt.Errorf("list names: %w", err)
	}
	all, err := All[*metav1.PartialObjectMetadata](ctx, c, selection, options...)
	if err != nil {
		return nil, err
	}
	names := sets.New[kube.Key]()
	for _, obj := range all {
		names.Insert(kube.KeyOf(obj))
	}
	return names, nil
}

// The fields by which objects of all kinds can be selected.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// listedBy returns an informer that covers the selection and shows the client's own writes, or nil.
func listedBy[T kube.Object](ctx context.Context, t target) cache.Informer {
	if t.fromAPI {
		return nil
	}
	var none T
	for _, informer := range t.informers(ctx, isMetadata(none)) {
		if t.mayAnswer(informer, isMetadata(none)) {
			return informer
		}
	}
	return nil
}

// readerFor returns what reads objects of the type of like from an informer.
func readerFor[T kube.Object](informer cache.Informer, like T) cache.Reader {
	if isMetadata(like) {
		return informer.Metadata()
	}
	return informer
}

// coveredBy reports whether the informer shows all selected objects.
func (t target) coveredBy(informer cache.Informer) bool {
	return informer.Covers(t.selectedNamespace(), t.labels) &&
		(t.fields == nil || informer.HasFields(t.fields.Requirements()) && t.evaluates())
}

// evaluates reports whether the fields are known to be selectable: the API server rejects metadata.namespace for most
// kinds without namespaces.
func (t target) evaluates() bool {
	return t.resource.Namespaced || !slices.ContainsFunc(t.fields.Requirements(), func(r fields.Requirement) bool {
		return r.Field == fieldNamespace
	})
}

// selectedNamespace returns the namespace that has all selected objects; empty: they may be in any.
func (t target) selectedNamespace() string {
	if t.key.Namespace == "" && t.fields != nil {
		namespace, _ := t.fields.RequiresExactMatch(fieldNamespace)
		return namespace
	}
	return t.key.Namespace
}

// objectsOf iterates over the selected objects of an informer that covers the selection.
func (t target) objectsOf(informer cache.Reader) iter.Seq2[kube.Object, error] {
	namespace := t.selectedNamespace()
	if t.fields == nil {
		return informer.Objects(namespace, t.labels)
	}
	required := t.fields.Requirements()
	name, named := t.fields.RequiresExactMatch(fieldName)
	if named && len(required) == 1 && (namespace != "" || !t.resource.Namespaced) {
		return objectNamed(informer, kube.Key{Namespace: namespace, Name: name}, t.labels)
	}
	return informer.ObjectsByFields(namespace, t.labels, required)
}

// objectNamed yields the object under key if selector (nil: any) matches it.
func objectNamed(informer cache.Reader, key kube.Key, selector labels.Selector) iter.Seq2[kube.Object, error] {
	return func(yield func(kube.Object, error) bool) {
		obj, _, found, err := informer.Object(key)
		switch {
		case err != nil:
			yield(nil, err)
		case found && (selector == nil || selector.Matches(labels.Set(obj.GetLabels()))):
			yield(obj, nil)
		}
	}
}

// listOptions returns the settings as options of the API.
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
