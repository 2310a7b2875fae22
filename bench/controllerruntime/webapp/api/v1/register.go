package v1

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the kind, and those that an operator writes on objects.
const (
	Group    = "webapp.example.com"
	Version  = "v1"
	Kind     = "WebApp"
	Resource = "webapps"

	// Finalizer keeps a WebApp until its record outside the cluster is gone.
	Finalizer = Group + "/record"
	// ConfigHashAnnotation on the Pod template changes with the config, so that the Deployment rolls.
	ConfigHashAnnotation = Group + "/config-hash"
	// ConfigMapSuffix follows the name of the WebApp in that of its ConfigMap. The Deployment and the Service have the
	// name of the WebApp.
	ConfigMapSuffix = "-config"
	// ContainerName is the name of the container in the Pods, PortName that of its port.
	ContainerName = "app"
	PortName      = "http"
)

// What the API server sets where a spec says nothing.
const (
	DefaultReplicas int32 = 1
	DefaultPort     int32 = 8080
)

// The conditions of a WebApp, as kstatus reads them. A reader that finds Ready true with the observedGeneration of the
// object knows that all is as the spec asks.
const (
	// ConditionReady is true while all that the spec asks for is there, which of a suspended WebApp is true as well.
	ConditionReady = "Ready"
	// ConditionReconciling is true while the cluster is on its way to the spec. Otherwise it is absent or false.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is true when no waiting will help: somebody has to change the spec, or the cluster. Otherwise it
	// is absent or false.
	ConditionStalled = "Stalled"
	// ConditionSuspended is true while the Deployment is scaled to 0 because of spec.suspend. Otherwise it is false.
	ConditionSuspended = "Suspended"
)

// CRD is the CustomResourceDefinition of WebApp.
//
//go:embed crd.yaml
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
