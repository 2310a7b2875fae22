// Package v2 has the Go types of the API group webapp.example.com/v2, in which WebApps are stored. "go generate"
// derives the DeepCopy functions from them, and the CustomResourceDefinition of both versions.
//
// +kubebuilder:object:generate=true
// +groupName=webapp.example.com
package v2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

//go:generate go tool controller-gen object paths=. output:dir=.
//go:generate go tool controller-gen crd paths=../v1;. output:dir=.

// WebApp is a web application: a Deployment, a Service and a ConfigMap in its own namespace, and a record for it
// outside the cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wa,categories=all
// +kubebuilder:printcolumn:name=Image,type=string,JSONPath=`.spec.app.image`
// +kubebuilder:printcolumn:name=Replicas,type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Ready Pods",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name=Host,type=string,JSONPath=`.status.host`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Mode,type=string,priority=1,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name=Contact,type=string,priority=1,JSONPath=`.spec.contact`
// +kubebuilder:printcolumn:name=Reason,type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$')",message="the name must be a DNS label of at most 63 characters that begins with a letter, because the Service has it as well"
type WebApp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec WebAppSpec `json:"spec"`
	// +optional
	Status WebAppStatus `json:"status,omitzero"`
}

// WebAppSpec is the desired state of a WebApp.
type WebAppSpec struct {
	// App is what runs in each Pod. Required.
	App App `json:"app"`
	// Replicas is the number of Pods. The API server replaces nil by 1.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=1
	Replicas *int32 `json:"replicas,omitempty"`
	// Host is the DNS name of the record outside the cluster, which points to the Service. Default: no record.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Host string `json:"host,omitempty"`
	// Mode is Running, or Suspended, which scales the Deployment to 0 and keeps everything else. The API server
	// replaces an empty one by Running.
	// +kubebuilder:default=Running
	Mode Mode `json:"mode,omitempty"`
	// Contact is the person or team that is responsible for the WebApp. Version v1 lacks this field: there it is
	// ContactAnnotation, so it has no limits that an annotation lacks. Default: none.
	Contact string `json:"contact,omitempty"`
}

// App is what runs in each Pod.
type App struct {
	// Image is the container image. Required.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image"`
	// Port is the port of the application and of the Service. The API server replaces 0 by 8080.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=8080
	Port int32 `json:"port,omitempty"`
	// Env is the environment of each Pod, through the ConfigMap. A change replaces the Pods.
	Env map[string]string `json:"env,omitzero"`
}

// Mode is Running or Suspended.
//
// +kubebuilder:validation:Enum=Running;Suspended
type Mode string

// The modes of a WebApp.
const (
	Running   Mode = "Running"
	Suspended Mode = "Suspended"
)

// WebAppStatus is the observed state of a WebApp. Its fields are those of version v1.
type WebAppStatus struct {
	// ObservedGeneration is the generation of the spec that the other fields refer to.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// ReadyReplicas is the number of ready Pods.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`
	// Host is the name of the record that may exist. It is written before the record is created, so that neither a
	// crash nor a change of the spec can leave an unknown record.
	Host string `json:"host,omitempty"`
	// Conditions are Ready, Reconciling, Stalled and Suspended.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WebAppList is a list of WebApps.
//
// +kubebuilder:object:root=true
type WebAppList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []WebApp `json:"items"`
}
