// Package v1 is the Go form of the API group webapp.example.com/v1. The YAML form, which the API server validates by, is
// crd.yaml beside it.
package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WebApp is a web application: a Deployment, a Service and a ConfigMap in its own namespace, and a record for it outside
// the cluster.
type WebApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   WebAppSpec   `json:"spec"`
	Status WebAppStatus `json:"status,omitzero"`
}

// WebAppSpec says what runs, how often, and under which name.
type WebAppSpec struct {
	// Image is the container image. Required.
	Image string `json:"image"`
	// Replicas is how many Pods run. The API server turns nil into DefaultReplicas.
	Replicas *int32 `json:"replicas,omitempty"`
	// Port is where the application listens, and the Service's port. The API server turns 0 into DefaultPort.
	Port int32 `json:"port,omitempty"`
	// Config is in the environment of each Pod, by way of the ConfigMap. When it changes, the Pods are replaced.
	Config map[string]string `json:"config,omitempty"`
	// Host is the DNS name of the record outside the cluster, which leads to the Service. Default: there is none.
	Host string `json:"host,omitempty"`
	// Suspend scales the Deployment to 0 and keeps everything else. Default false.
	Suspend bool `json:"suspend,omitempty"`
}

// WebAppStatus says how far the cluster is.
type WebAppStatus struct {
	// ObservedGeneration is the generation of the spec that the rest is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ReadyReplicas is how many Pods are ready.
	ReadyReplicas int32 `json:"readyReplicas"`
	// Host is the name whose record may exist. It is written here before the record is made, so that a crash, or a change
	// of the spec, makes no record forgotten.
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
