// Package database is the custom resource of the benchmarks: a kind of the size and shape
// that operators have, which API servers can serve as JSON only.
package database

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is the name of the kind in URLs.
const Resource = "databases"

// GroupVersion returns the group and version of the kind.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "bench.evenkeel.dev", Version: "v1"}
}

// AddToScheme registers the kind.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &Database{}, &DatabaseList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// Database is one object of the kind.
type Database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status"`
}

// DatabaseList is a list of the kind.
type DatabaseList struct { //nolint:revive // the scheme names kinds by their Go types
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []Database `json:"items"`
}

// Spec is what the user wants.
type Spec struct {
	Engine     string            `json:"engine"`
	Version    string            `json:"version"`
	Image      string            `json:"image"`
	Replicas   int32             `json:"replicas"`
	Storage    Storage           `json:"storage"`
	Resources  Resources         `json:"resources"`
	Parameters map[string]string `json:"parameters,omitempty"`
	Listeners  []Listener        `json:"listeners,omitempty"`
	Backup     *Backup           `json:"backup,omitempty"`
}

// Storage is one volume of each replica.
type Storage struct {
	ClassName string `json:"className"`
	Size      string `json:"size"`
}

// Resources are what one replica may use.
type Resources struct {
	Requests map[string]string `json:"requests,omitempty"`
	Limits   map[string]string `json:"limits,omitempty"`
}

// Listener is one open port.
type Listener struct {
	Name      string `json:"name"`
	Port      int32  `json:"port"`
	Protocol  string `json:"protocol"`
	TLSSecret string `json:"tlsSecret,omitempty"`
}

// Backup says when copies are made, and where to.
type Backup struct {
	Schedule  string `json:"schedule"`
	Bucket    string `json:"bucket"`
	Retention int32  `json:"retention"`
}

// Status is what the operator has seen.
type Status struct {
	Phase              string             `json:"phase,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	ReadyReplicas      int32              `json:"readyReplicas,omitempty"`
	Primary            string             `json:"primary,omitempty"`
	Endpoints          []Endpoint         `json:"endpoints,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	LastBackup         *metav1.Time       `json:"lastBackup,omitempty"`
}

// Endpoint is where one replica answers.
type Endpoint struct {
	Name  string `json:"name"`
	Host  string `json:"host"`
	Port  int32  `json:"port"`
	Ready bool   `json:"ready"`
}
