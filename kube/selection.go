package kube

import "k8s.io/apimachinery/pkg/runtime/schema"

// AllNamespaces is the only entry of Selection.Namespaces to select the objects of all namespaces explicitly. Calls
// that delete require it, because an empty Namespaces may have been computed from an empty value.
const AllNamespaces = "*"

// Selection selects objects of a kind. The zero value selects all objects of the kind that T is registered for.
type Selection struct {
	// Kind is required for *unstructured.Unstructured and *metav1.PartialObjectMetadata, whose Go type does not
	// determine it. Default: the kind that T is registered for.
	Kind schema.GroupVersionKind
	// Namespaces limits the objects to these namespaces. Each of them is listed and watched separately, so a Role in
	// each of them is sufficient. An empty name in it is an error. Default: those of Cluster.SetNamespaces, otherwise
	// all, which requires a ClusterRole; for a client with a Config.Namespace, that one.
	Namespaces []string
	// LabelSelector limits the objects by label, such as "app=web,tier!=cache". For computed labels use the String of
	// labels.ValidatedSelectorFromSet (k8s.io/apimachinery/pkg/labels), which rejects values that contain
	// conditions. Without labels it is "", which selects all. Default: all.
	LabelSelector string
	// FieldSelector limits the objects by field, such as "spec.nodeName=node-1". The selectable fields depend on the
	// kind; the API server rejects others. Default: all.
	FieldSelector string
}
