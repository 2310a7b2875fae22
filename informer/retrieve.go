package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/kubeconfig"
	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Retrieve returns a Retriever of all objects of type T in the cluster.
//
// T may be any type of k8s.io/api, or a registered type (pass its AddToScheme to kube.Connect). For unstructured and
// metadata-only objects use RetrieveSelected, which sets the kind. Mistakes, such as a type that is not registered, are
// returned by New of the Informer or the Controller. A kind that the cluster does not have is reported when it is
// listed.
//
// An object that the Go type cannot decode fails when it is read: the handler's run for this object fails, and runs for
// other objects continue. A CustomResourceDefinition should reject values that the Go type rejects. For example, the
// format "duration" accepts more values than time.ParseDuration.
//
// Objects are sent as protobuf if the server supports it and T can be decoded from it (the built-in kinds), otherwise
// as JSON (custom resources, and *unstructured.Unstructured).
//
// If the Cluster is limited to namespaces, the result cannot be embedded in a Retriever of the program: embed one of
// RetrieveSelected for one namespace, or for kube.AllNamespaces.
func Retrieve[T kube.Object](cluster *kube.Cluster) Retriever[T] {
	return RetrieveSelected[T](cluster, kube.Selection{})
}

// RetrieveSelected returns a Retriever of the objects of type T that selection selects. See Retrieve.
func RetrieveSelected[T kube.Object](cluster *kube.Cluster, selection kube.Selection) Retriever[T] {
	if cluster == nil {
		return &clusterRetriever[T]{problem: errors.New("retrieve: the cluster is nil: make one with kube.Connect")}
	}
	base := clusterRetriever[T]{cluster: cluster, labels: selection.LabelSelector, fields: selection.FieldSelector}
	base.server, _ = kubeconfig.Server(cluster.RESTConfig())
	base.kind, base.problem = resolveType[T](cluster, selection.Kind)
	if _, err := labels.Parse(selection.LabelSelector); err != nil {
		base.problem = errors.Join(base.problem, fmt.Errorf("label selector %q: %w", selection.LabelSelector, err))
	}
	if _, err := fields.ParseSelector(selection.FieldSelector); err != nil {
		base.problem = errors.Join(base.problem, fmt.Errorf("field selector %q: %w", selection.FieldSelector, err))
	}
	namespaces := selection.Namespaces
	if len(namespaces) == 0 {
		apiobject.ObserversOf(cluster).SetCreated()
		namespaces = cluster.Namespaces()
		base.limit = namespaces
	}
	if len(namespaces) == 0 || slices.Equal(namespaces, []string{kube.AllNamespaces}) {
		return &base
	}
	var zero T
	if namespaced, declared := apiobject.DeclaredScopeOf(zero, base.kind, cluster.Scheme()); declared && !namespaced {
		if len(base.limit) > 0 {
			return &base
		}
		base.problem = errors.Join(base.problem,
			fmt.Errorf("%s in %s is cluster-scoped, as its Go type declares: leave Namespaces empty",
				base.kind.Kind, base.kind.GroupVersion()))
	}
	var parts []Retriever[T]
	for i, namespace := range namespaces {
		if slices.Contains(namespaces[:i], namespace) {
			continue
		}
		part := base
		part.namespace = namespace
		if namespace == "" || namespace == kube.AllNamespaces {
			part.problem = errors.Join(part.problem, fmt.Errorf("%q is among the namespaces: leave Namespaces empty "+
				"to mean all", namespace))
		}
		if err := apiobject.CheckSegments(namespace); err != nil {
			part.problem = errors.Join(part.problem, fmt.Errorf("invalid namespace: %w", err))
		}
		parts = append(parts, &part)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return Combine(parts...)
}

// RetrieveMetadata returns a Retriever of the metadata of the objects of type T that selection selects: labels,
// annotations, owners, finalizers. The API server sends only the metadata. Use it if only the existence, the owners or
// the labels of the objects are needed. T is the objects' own type. See Retrieve.
func RetrieveMetadata[T kube.Object](
	cluster *kube.Cluster, selection kube.Selection,
) Retriever[*metav1.PartialObjectMetadata] {
	if cluster != nil {
		kind, problem := resolveType[T](cluster, selection.Kind)
		if problem != nil {
			return &clusterRetriever[*metav1.PartialObjectMetadata]{problem: problem}
		}
		selection.Kind = kind
	}
	return RetrieveSelected[*metav1.PartialObjectMetadata](cluster, selection)
}

// clusterRetriever retrieves the objects of one kind in one namespace, or in all namespaces. Informers use its feed.
// List and Watch are for Retrievers of programs that embed it.
type clusterRetriever[T kube.Object] struct {
	cluster   *kube.Cluster
	server    string // URL of the API server
	kind      schema.GroupVersionKind
	namespace string // empty: all
	// limit are the namespaces of the Cluster, if they are the default. namespace is then one of them, or empty if the
	// kind lives in no namespace.
	limit   []string
	labels  string
	fields  string
	problem error
}

// resolveType returns the kind of T.
func resolveType[T kube.Object](cluster *kube.Cluster, kind schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if err := checkObjectType[T](); err != nil {
		return kind, fmt.Errorf("retrieve: %w", err)
	}
	var zero T
	switch any(zero).(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata, *wire.EncodedObject:
		if kind.Kind == "" || kind.Version == "" {
			return kind, fmt.Errorf("retrieve %T: the type has no kind: set Selection.Kind", zero)
		}
		return kind, nil
	}
	registered, err := cluster.KindOf(apiobject.New[T]())
	if err != nil {
		return kind, err
	}
	if !kind.Empty() && kind != registered {
		return kind, fmt.Errorf("retrieve %T: it is of kind %s, but Selection.Kind says %s", zero, registered, kind)
	}
	return registered, nil
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
		server:           r.server,
		cluster:          r.cluster,
		namespace:        r.namespace,
		scoped:           len(r.limit) == 0,
		GroupVersionKind: r.kind,
		Selection:        strings.Join(selection, ", "),
		WatchList:        true,
		Problem:          r.problem,
	}
}

// explain adds the verb and the Retriever to err. If the server does not find the kind, explain removes the discovered
// kinds of its group version, so that they are requested again.
func (r *clusterRetriever[T]) explain(verb string, err error) error {
	if err == nil {
		return nil
	}
	if apierrors.IsNotFound(err) {
		r.cluster.Forget(r.kind.GroupVersion())
	}
	return fmt.Errorf("%s %s: %w", verb, r.Describe().text(), err)
}

// These are errors of a Retriever for another scope than that of the kind. An informer handles them if the Retriever is
// for the default namespaces of its Cluster: see rescope.
var (
	errClusterScoped = errors.New("the kind is cluster-scoped: leave Selection.Namespaces empty, or set it to " +
		"kube.AllNamespaces if the Cluster has Namespaces")
	errNamespaced = errors.New("the kind lives in namespaces, and the Cluster is limited to some")
)

// resource returns the kind's resource. Each request calls it, so that a kind that was removed and installed again with
// another scope is detected.
func (r *clusterRetriever[T]) resource(ctx context.Context) (kube.Resource, error) {
	resource, err := r.cluster.Resource(ctx, r.kind)
	switch {
	case err != nil:
	case !resource.Namespaced && r.namespace != "":
		r.cluster.Forget(r.kind.GroupVersion()) // the definition may be replaced
		err = errClusterScoped
	case resource.Namespaced && r.namespace == "" && len(r.limit) > 0:
		err = errNamespaced
	}
	if err != nil {
		return kube.Resource{}, fmt.Errorf("retrieve %s: %w", r.Describe().text(), err)
	}
	return resource, nil
}
