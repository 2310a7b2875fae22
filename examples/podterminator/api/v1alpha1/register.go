package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the kind, and the names that the operator uses on objects.
const (
	Group    = "chaos.evenkeel.dev"
	Version  = "v1alpha1"
	Kind     = "PodTerminator"
	Resource = "podterminators"

	// Finalizer keeps a PodTerminator until its marks were removed from the Pods.
	Finalizer = Group + "/marks"
	// VictimAnnotation marks a chosen Pod. Its value is the name of the PodTerminator.
	VictimAnnotation = Group + "/victim-of"

	// ConditionReady is true while rounds take place.
	ConditionReady = "Ready"
)

// GroupVersion returns the group and version of the package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme registers the package's types; hand it to kube.Connect.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &PodTerminator{}, &PodTerminatorList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
