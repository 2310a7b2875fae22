// Package v1 has the Go types of the API group webapp.example.com/v1. crd.yaml has the schema with which the API server
// validates.
package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WebApp is a web application: a Deployment, a Service and a ConfigMap in its own namespace, and a record for it
// outside the cluster.
type WebApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   WebAppSpec   `json:"spec"`
	Status WebAppStatus `json:"status,omitzero"`
}

// WebAppSpec is the desired state of a WebApp.
type WebAppSpec struct {
	// Image is the container image. Required.
	Image string `json:"image"`
	// Replicas is the number of Pods. The API server replaces nil by DefaultReplicas.
	Replicas *int32 `json:"replicas,omitempty"`
	// Port is the port of the application and of the Service. The API server replaces 0 by DefaultPort.
	Port int32 `json:"port,omitempty"`
	// Config is the environment of each Pod, through the ConfigMap. A change replaces the Pods.
	Config map[string]string `json:"config,omitempty"`
	// Host is the DNS name of the record outside the cluster, which points to the Service. Default: no record.
	Host string `json:"host,omitempty"`
	// Suspend scales the Deployment to 0 and keeps everything else. Default false.
	Suspend bool `json:"suspend,omitempty"`
}

// WebAppStatus is the observed state of a WebApp.
type WebAppStatus struct {
	// ObservedGeneration is the generation of the spec that the other fields refer to.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ReadyReplicas is the number of ready Pods.
	ReadyReplicas int32 `json:"readyReplicas"`
	// Host is the name of the record that may exist. It is written before the record is created, so that neither a
	// crash nor a change of the spec can leave an unknown record.
	Host string `json:"host,omitempty"`
	// Conditions are Ready, Reconciling, Stalled and Suspended.
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WebAppList is a list of WebApps.
type WebAppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []WebApp `json:"items"`
}
