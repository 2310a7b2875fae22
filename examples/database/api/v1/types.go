// Package v1 has the Go types of the API group database.example.com/v1. "go generate" derives the
// CustomResourceDefinition and the DeepCopy functions from them.
//
// +kubebuilder:object:generate=true
// +groupName=database.example.com
package v1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool controller-gen object crd paths=. output:dir=.

// Database is a PostgreSQL database with a backup.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Version,type=integer,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec DatabaseSpec `json:"spec"`
	// +optional
	Status DatabaseStatus `json:"status,omitzero"`
}

// DatabaseSpec is the desired state of a Database.
type DatabaseSpec struct {
	// Version is the major version of PostgreSQL. A webhook sets the version of the operator's flag if it is missing.
	// +kubebuilder:validation:Minimum=1
	// +optional
	Version int32 `json:"version,omitempty"`
	// Replicas is the number of Pods.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	// +optional
	Replicas int32 `json:"replicas"`
	// Storage is the size of the volume of each Pod. Required.
	Storage resource.Quantity `json:"storage"`
	// Backup is the schedule of the backup, in the format of cron. Default: no backup.
	// +optional
	Backup string `json:"backup,omitempty"`
}

// DatabaseStatus is the observed state of a Database.
type DatabaseStatus struct {
	// ObservedGeneration is the generation of the spec that the other fields refer to.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ReadyReplicas is the number of ready Pods.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Backup is the id of the backup that may exist.
	Backup string `json:"backup,omitempty"`
	// Conditions are Ready, Reconciling and Stalled.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DatabaseList is a list of Databases.
//
// +kubebuilder:object:root=true
type DatabaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Database `json:"items"`
}

// AddToScheme registers the package's types.
func AddToScheme(scheme *runtime.Scheme) error {
	version := schema.GroupVersion{Group: "database.example.com", Version: "v1"}
	scheme.AddKnownTypes(version, &Database{}, &DatabaseList{})
	metav1.AddToGroupVersion(scheme, version)
	return nil
}
