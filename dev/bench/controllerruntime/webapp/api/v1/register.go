package v1

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the kind, and the names that an operator uses on objects.
const (
	Group    = "webapp.example.com"
	Version  = "v1"
	Kind     = "WebApp"
	Resource = "webapps"

	// Finalizer keeps a WebApp until its record outside the cluster is deleted.
	Finalizer = Group + "/record"
	// ConfigHashAnnotation on the Pod template changes with the config, so that the Deployment replaces the Pods.
	ConfigHashAnnotation = Group + "/config-hash"
	// ConfigMapSuffix is appended to the WebApp's name for its ConfigMap. The Deployment and the Service have the
	// WebApp's name.
	ConfigMapSuffix = "-config"
	// ContainerName is the name of the container in the Pods, PortName the name of its port.
	ContainerName = "app"
	PortName      = "http"
)

// Defaults that the API server sets in a spec.
const (
	DefaultReplicas int32 = 1
	DefaultPort     int32 = 8080
)

// The conditions of a WebApp, in the format of kstatus. If Ready is true with the object's generation as
// observedGeneration, the cluster is in the desired state.
const (
	// ConditionReady is true if the cluster is in the desired state, also for a suspended WebApp.
	ConditionReady = "Ready"
	// ConditionReconciling is true while the cluster is progressing to the desired state. Otherwise it is absent or
	// false.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is true if progress needs a change of the spec or the cluster by a user. Otherwise it is absent
	// or false.
	ConditionStalled = "Stalled"
	// ConditionSuspended is true while the Deployment is scaled to 0 because of spec.suspend. Otherwise it is false.
	ConditionSuspended = "Suspended"
)

// CRD is the CustomResourceDefinition of WebApp.
//
//go:embed webapp.example.com_webapps.yaml
var CRD []byte

// GroupVersion returns the group and version of the package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme registers the package's types.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &WebApp{}, &WebAppList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
