package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/predicate"
	"github.com/evenkeel-go/evenkeel/source"
)

// byNode is the name of an index of the Pods.
const byNode = "node"

// operator has the caches that its two controllers share.
type operator struct {
	cluster     *kube.Cluster
	home        string
	out         io.Writer
	pods        *informer.Informer[*corev1.Pod]
	deployments *informer.Informer[*appsv1.Deployment]
	names       *informer.Informer[*metav1.PartialObjectMetadata] // a view of deployments with another type
	freezes     *informer.Informer[*unstructured.Unstructured]
	namespaces  *informer.Informer[*metav1.PartialObjectMetadata]
}

func newOperator(cluster *kube.Cluster, home string, out io.Writer) (*operator, error) {
	o := &operator{cluster: cluster, home: home, out: out}
	var err error
	// region index
	o.pods, err = informer.New(informer.Config[*corev1.Pod]{
		Retriever: in[*corev1.Pod](cluster, home),
		Indexes: []informer.Index[*corev1.Pod]{
			{Name: byNode, Values: func(pod *corev1.Pod) []string { return []string{pod.Spec.NodeName} }},
		},
	})
	// endregion
	if err != nil {
		return nil, err
	}
	o.deployments, err = informer.New(informer.Config[*appsv1.Deployment]{
		Retriever: in[*appsv1.Deployment](cluster, home),
	})
	if err != nil {
		return nil, err
	}
	o.freezes, err = informer.New(informer.Config[*unstructured.Unstructured]{
		Retriever: informer.RetrieveSelected[*unstructured.Unstructured](cluster, kube.Selection{
			Kind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Freeze"},
		}),
		Optional: true, // the cluster may not serve the kind
	})
	if err != nil {
		return nil, err
	}
	// region metadata
	o.namespaces, err = informer.New(informer.Config[*metav1.PartialObjectMetadata]{
		Retriever: informer.RetrieveMetadata[*corev1.Namespace](cluster,
			kube.Selection{LabelSelector: "example=cache"}),
	})
	// endregion
	if err != nil {
		return nil, err
	}
	// region as
	o.names, err = informer.As[*metav1.PartialObjectMetadata](o.deployments)
	// endregion
	return o, err
}

// in returns a Retriever of the objects in these namespaces.
func in[T kube.Object](cluster *kube.Cluster, namespaces ...string) informer.Retriever[T] {
	return informer.RetrieveSelected[T](cluster, kube.Selection{Namespaces: namespaces})
}

// newDeployments returns the controller that prints the state of each Deployment.
func (o *operator) newDeployments() (*controller.Controller[*appsv1.Deployment], error) {
	// region sources
	return controller.New(controller.Config[*appsv1.Deployment]{
		Name:      "deployments",
		Informer:  o.deployments,
		Predicate: predicate.GenerationChanged(), // not if only the status changes
		Handler:   o.report,
		Reads:     []informer.Any{o.pods, o.freezes},
		Sources: []controller.Source{
			// The ReplicaSets that belong to it: only their metadata is watched.
			source.Owned[*appsv1.ReplicaSet](o.cluster, predicate.Types(informer.Added, informer.Deleted)),
			// The Pods with its name in label app: when one is added, deleted, or assigned to a node.
			source.OwnerLabel(o.pods, "app", predicate.Func(func(before, after *corev1.Pod) bool {
				return before == nil || after == nil || before.Spec.NodeName != after.Spec.NodeName
			})),
			// The Freezes of its namespace.
			source.Mapped(o.freezes, o.inNamespaceOf, predicate.GenerationChanged()),
		},
	})
	// endregion
}

// inNamespaceOf returns the Deployments in a Freeze's namespace.
func (o *operator) inNamespaceOf(freeze *unstructured.Unstructured) (keys []kube.Key) {
	for d, err := range o.names.List(informer.Query{Namespace: freeze.GetNamespace()}) {
		if err == nil {
			keys = append(keys, kube.KeyOf(d))
		}
	}
	return keys
}

// report prints on which nodes the Pods of a Deployment are.
func (o *operator) report(ctx context.Context, d *appsv1.Deployment) error {
	// region list
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return controller.Terminal(err)
	}
	pods := map[string]int{} // by node
	for pod, err := range o.pods.List(informer.Query{Namespace: d.Namespace, Labels: selector}) {
		if err != nil {
			return err
		}
		pods[pod.Spec.NodeName]++
	}
	// endregion
	var nodes []string
	for _, node := range slices.Sorted(maps.Keys(pods)) {
		all, err := o.pods.Count(informer.Query{Index: byNode, Value: node})
		if err != nil {
			return err
		}
		nodes = append(nodes, fmt.Sprintf("%d of %d on %s", pods[node], all, cmp.Or(node, "no node")))
	}
	freezes, err := o.freezes.Count(informer.Query{Namespace: d.Namespace})
	if err != nil {
		return err
	}
	run, _ := controller.RunFrom(ctx)
	fmt.Fprintf(o.out, "%s: pods: %s; freezes: %d; because: %s\n",
		kube.KeyOf(d), cmp.Or(strings.Join(nodes, ", "), "none"), freezes, run.Causes)
	return nil
}

// newNamespaces returns the controller that selects the namespaces to watch. It has one worker, because calls of
// SetRetriever must not overlap.
func (o *operator) newNamespaces() (*controller.Controller[*metav1.PartialObjectMetadata], error) {
	return controller.New(controller.Config[*metav1.PartialObjectMetadata]{
		Name:       "namespaces",
		Informer:   o.namespaces,
		Reconciler: o.switchNamespaces,
		Workers:    1,
		Timeout:    10 * time.Second,
	})
}

// switchNamespaces watches home and the namespaces that have the label now.
func (o *operator) switchNamespaces(ctx context.Context, _ kube.Key) error {
	watched := []string{o.home}
	for namespace, err := range o.namespaces.List(informer.Query{}) {
		if err != nil {
			return err
		}
		if namespace.Name != o.home {
			watched = append(watched, namespace.Name)
		}
	}
	if err := errors.Join(
		o.pods.SetRetriever(ctx, in[*corev1.Pod](o.cluster, watched...)),
		o.deployments.SetRetriever(ctx, in[*appsv1.Deployment](o.cluster, watched...)),
	); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "watching %d namespaces\n", len(watched))
	for _, h := range []informer.Health{o.pods.Health(), o.deployments.Health()} {
		fmt.Fprintf(o.out, "%s: %d objects in %.1f MB\n", h.Informer, h.Objects, float64(h.Bytes)/1e6)
	}
	return nil
}
