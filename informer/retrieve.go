package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/evenkeel-go/evenkeel/kube"
)

// Selection says which objects of a kind a Retriever retrieves. The zero value means
// all objects of the kind that T is registered for.
type Selection struct {
	// Kind is required for *unstructured.Unstructured and *metav1.PartialObjectMetadata,
	// whose Go type does not tell. Default: the kind that T is registered for.
	Kind schema.GroupVersionKind
	// Namespaces limits the objects to these namespaces; each is listed and watched on
	// its own, so a Role in each of them is enough. Default: all namespaces, which needs
	// a ClusterRole.
	Namespaces []string
	// LabelSelector limits the objects by label, as in "app=web,tier!=cache". Default: all.
	LabelSelector string
	// FieldSelector limits the objects by field, as in "spec.nodeName=node-1". Which
	// fields can be selected depends on the kind; the API server refuses the others.
	// Default: all.
	FieldSelector string
}

// Retrieve returns a Retriever of all objects of type T in the cluster.
//
// T may be any registered type (hand its AddToScheme to kube.Connect). For unstructured
// and metadata-only objects use RetrieveSelected, which names the kind. Mistakes, such as
// a type that is not registered, are returned by New of the Informer or Controller that
// the Retriever is given to; whether the cluster has the kind shows when it is listed.
//
// An object that the Go type cannot read fails when it is read, and only then: its handler's
// run fails, and the others go on. A CustomResourceDefinition should refuse what the Go type
// refuses; the format "duration", for one, takes more than time.ParseDuration.
//
// Objects come as protobuf where the server has it and T can be decoded from it (the kinds
// that are built in), otherwise as JSON (custom resources, and *unstructured.Unstructured).
func Retrieve[T kube.Object](cluster *kube.Cluster) Retriever[T] {
	return RetrieveSelected[T](cluster, Selection{})
}

// RetrieveSelected returns a Retriever of the objects of type T that selection selects.
// See Retrieve.
func RetrieveSelected[T kube.Object](cluster *kube.Cluster, selection Selection) Retriever[T] {
	if cluster == nil {
		return &clusterRetriever[T]{problem: errors.New("retrieve: the cluster is nil: make one with kube.Connect")}
	}
	base := clusterRetriever[T]{cluster: cluster, labels: selection.LabelSelector, fields: selection.FieldSelector}
	base.kind, base.newList, base.problem = resolveType[T](cluster, selection.Kind)
	base.unstructured = sync.OnceValues(func() (dynamic.Interface, error) {
		return dynamic.NewForConfigAndClient(cluster.RESTConfig(), cluster.HTTPClient())
	})
	base.metadata = sync.OnceValues(func() (metadata.Interface, error) {
		return metadata.NewForConfigAndClient(metadata.ConfigFor(cluster.RESTConfig()), cluster.HTTPClient())
	})
	if _, err := labels.Parse(selection.LabelSelector); err != nil {
		base.problem = errors.Join(base.problem, fmt.Errorf("label selector %q: %w", selection.LabelSelector, err))
	}
	if _, err := fields.ParseSelector(selection.FieldSelector); err != nil {
		base.problem = errors.Join(base.problem, fmt.Errorf("field selector %q: %w", selection.FieldSelector, err))
	}
	if len(selection.Namespaces) == 0 {
		return &base
	}
	seen := map[string]bool{}
	var parts []Retriever[T]
	for _, namespace := range selection.Namespaces {
		if seen[namespace] {
			continue
		}
		seen[namespace] = true
		part := base
		part.namespace = namespace
		if namespace == "" {
			part.problem = errors.Join(part.problem, errors.New("an empty string is among the namespaces: leave Namespaces empty to mean all"))
		}
		parts = append(parts, &part)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return Join(parts...)
}

// RetrieveMetadata returns a Retriever of the metadata of the objects of type T that selection
// selects: labels, annotations, owners, finalizers. The API server sends nothing else, so it
// suits whoever only needs to know that an object is there and whose it is. T is the objects'
// own type. See Retrieve.
func RetrieveMetadata[T kube.Object](cluster *kube.Cluster, selection Selection) Retriever[*metav1.PartialObjectMetadata] {
	if cluster != nil {
		kind, _, problem := resolveType[T](cluster, selection.Kind)
		if problem != nil {
			return &clusterRetriever[*metav1.PartialObjectMetadata]{problem: problem}
		}
		selection.Kind = kind
	}
	return RetrieveSelected[*metav1.PartialObjectMetadata](cluster, selection)
}

// clusterRetriever retrieves the objects of one kind in one namespace, or in all.
type clusterRetriever[T kube.Object] struct {
	cluster   *kube.Cluster
	kind      schema.GroupVersionKind
	newList   func() (runtime.Object, error) // nil for unstructured and metadata-only objects
	namespace string                         // empty: all
	labels    string
	fields    string
	problem   error

	// Made at first use, and once: a client has the rate limit that the config asks for.
	unstructured func() (dynamic.Interface, error)
	metadata     func() (metadata.Interface, error)
}

// resolveType finds the kind of T and, for typed objects, how to make a list of them.
func resolveType[T kube.Object](cluster *kube.Cluster, kind schema.GroupVersionKind) (schema.GroupVersionKind, func() (runtime.Object, error), error) {
	var zero T
	switch any(zero).(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata:
		if kind.Kind == "" || kind.Version == "" {
			return kind, nil, fmt.Errorf("retrieve %T: the type does not tell the kind: set Selection.Kind", zero)
		}
		return kind, nil, nil
	}
	registered, err := cluster.KindOf(kube.New[T]())
	if err != nil {
		return kind, nil, err
	}
	if !kind.Empty() && kind != registered {
		return kind, nil, fmt.Errorf("retrieve %T: it is registered as %s, but Selection.Kind says %s", zero, registered, kind)
	}
	listKind := registered.GroupVersion().WithKind(registered.Kind + "List")
	if !cluster.Scheme().Recognizes(listKind) {
		return registered, nil, fmt.Errorf("retrieve %T: no type is registered for %s: register the list type beside it", zero, listKind)
	}
	return registered, func() (runtime.Object, error) { return cluster.Scheme().New(listKind) }, nil
}

// Describe implements Retriever.
func (r *clusterRetriever[T]) Describe() Description[T] {
	var selection []string
	if r.namespace != "" {
		selection = append(selection, "namespace "+r.namespace)
	}
	if r.labels != "" {
		selection = append(selection, "labels "+r.labels)
	}
	if r.fields != "" {
		selection = append(selection, "fields "+r.fields)
	}
	return Description[T]{
		Kind:             r.kind.Kind,
		GroupVersionKind: r.kind,
		Selection:        strings.Join(selection, ", "),
		WatchList:        true,
		Problem:          r.problem,
	}
}

// List implements Retriever.
func (r *clusterRetriever[T]) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	client, err := r.client(ctx)
	if err != nil {
		return nil, err
	}
	opts.LabelSelector, opts.FieldSelector = r.labels, r.fields
	list, err := client.list(ctx, opts)
	return list, r.explain("list", err)
}

// Watch implements Retriever.
func (r *clusterRetriever[T]) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	client, err := r.client(ctx)
	if err != nil {
		return nil, err
	}
	opts.LabelSelector, opts.FieldSelector = r.labels, r.fields
	stream, err := client.watch(ctx, opts)
	return stream, r.explain("watch", err)
}

// explain says what was being done, and drops what is known of the kind when the server
// says that it is not there.
func (r *clusterRetriever[T]) explain(verb string, err error) error {
	if err == nil {
		return nil
	}
	if apierrors.IsNotFound(err) {
		r.cluster.Forget(r.kind.GroupVersion())
	}
	return fmt.Errorf("%s %s: %w", verb, r.Describe(), err)
}

// listWatchClient is what typed, unstructured and metadata-only clients have in common.
type listWatchClient struct {
	list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// resource returns the kind's resource. It is asked for at each request, so that one that
// went and came back in another scope is found.
func (r *clusterRetriever[T]) resource(ctx context.Context) (kube.Resource, error) {
	resource, err := r.cluster.Resource(ctx, r.kind)
	if err != nil {
		return kube.Resource{}, fmt.Errorf("retrieve %s: %w", r.Describe(), err)
	}
	if !resource.Namespaced && r.namespace != "" {
		return kube.Resource{}, fmt.Errorf("retrieve %s: the kind is cluster-scoped: leave Selection.Namespaces empty", r.Describe())
	}
	return resource, nil
}

// client returns the client for the kind.
func (r *clusterRetriever[T]) client(ctx context.Context) (listWatchClient, error) {
	if r.problem != nil {
		return listWatchClient{}, r.problem
	}
	resource, err := r.resource(ctx)
	if err != nil {
		return listWatchClient{}, err
	}
	var zero T
	switch any(zero).(type) {
	case *unstructured.Unstructured:
		return r.unstructuredClient(resource)
	case *metav1.PartialObjectMetadata:
		return r.metadataClient(resource)
	default:
		return r.typedClient(resource)
	}
}

func (r *clusterRetriever[T]) unstructuredClient(resource kube.Resource) (listWatchClient, error) {
	client, err := r.unstructured()
	if err != nil {
		return listWatchClient{}, fmt.Errorf("retrieve %s: make a client: %w", r.Describe(), err)
	}
	objects := client.Resource(resource.GroupVersionResource).Namespace(r.namespace)
	return listWatchClient{
		list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, opts)
		},
		watch: objects.Watch,
	}, nil
}

func (r *clusterRetriever[T]) metadataClient(resource kube.Resource) (listWatchClient, error) {
	client, err := r.metadata()
	if err != nil {
		return listWatchClient{}, fmt.Errorf("retrieve %s: make a client: %w", r.Describe(), err)
	}
	objects := client.Resource(resource.GroupVersionResource).Namespace(r.namespace)
	return listWatchClient{
		list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return objects.List(ctx, opts)
		},
		watch: objects.Watch,
	}, nil
}

func (r *clusterRetriever[T]) typedClient(resource kube.Resource) (listWatchClient, error) {
	client, err := r.cluster.RESTClient(resource.GroupVersion())
	if err != nil {
		return listWatchClient{}, fmt.Errorf("retrieve %s: %w", r.Describe(), err)
	}
	optionsVersion := schema.GroupVersion{Version: "v1"}
	return listWatchClient{
		list: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			list, err := r.newList()
			if err != nil {
				return nil, err
			}
			err = client.Get().
				NamespaceIfScoped(r.namespace, r.namespace != "").
				Resource(resource.Resource).
				SpecificallyVersionedParams(&opts, metav1.ParameterCodec, optionsVersion).
				Do(ctx).Into(list)
			return list, err
		},
		watch: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return client.Get().
				NamespaceIfScoped(r.namespace, r.namespace != "").
				Resource(resource.Resource).
				SpecificallyVersionedParams(&opts, metav1.ParameterCodec, optionsVersion).
				Watch(ctx)
		},
	}, nil
}
