package v2

import (
	_ "embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the kind.
const (
	Group   = "webapp.example.com"
	Version = "v2"
	Kind    = "WebApp"

	// ContactAnnotation has spec.contact while a WebApp is converted to v1. It is not stored. It is reserved: an object
	// of v2 must not have it, because the next write in v1 would make it the contact.
	ContactAnnotation = Group + "/contact"
)

// CRD is the CustomResourceDefinition of WebApp with the versions v1 and v2. It lacks the conversion, which the program
// adds: do not apply the file, because without a conversion the API server would change nothing but the apiVersion.
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
