package apitest

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiserver"
)

// WithStatus gives a kind the subresource status, and returns it.
func WithStatus(kind *apiserver.Kind) *apiserver.Kind {
	kind.Status = true
	return kind
}

// ClusterScoped removes the namespaces from a kind, and returns it.
func ClusterScoped(kind *apiserver.Kind) *apiserver.Kind {
	kind.ClusterScoped = true
	return kind
}

// Version is the group and version of Widgets, Parts and Websites.
func Version() schema.GroupVersion { return schema.GroupVersion{Group: "example.com", Version: "v1"} }

// KindNamed returns a kind in the group and version of the tests by its name, such as Widget.
func KindNamed(name string) schema.GroupVersionKind { return Version().WithKind(name) }

// Widgets returns the custom kind Widget, which has a status.
func Widgets() *apiserver.Kind {
	return WithStatus(apiserver.Custom(KindNamed("Widget"), "widgets"))
}

// Parts returns the custom kind Part, which has no status.
func Parts() *apiserver.Kind { return apiserver.Custom(KindNamed("Part"), "parts") }

// Websites returns the custom kind Website, which has a status.
func Websites() *apiserver.Kind {
	return WithStatus(apiserver.Custom(KindNamed("Website"), "websites"))
}

// Deployments returns the kind Deployment, without defaults and validation of its spec.
func Deployments() *apiserver.Kind {
	kind := WithStatus(apiserver.Builtin[appsv1.Deployment](appsv1.SchemeGroupVersion.WithKind("Deployment"),
		"deployments", appsv1.AddToScheme))
	kind.Generation = true
	return kind
}

// Pods returns the kind Pod, without defaults and validation of its spec.
func Pods() *apiserver.Kind {
	kind := WithStatus(apiserver.Builtin[corev1.Pod](corev1.SchemeGroupVersion.WithKind("Pod"), "pods",
		corev1.AddToScheme))
	kind.Generation = true
	return kind
}

// Nodes returns the kind Node, without validation of its spec.
func Nodes() *apiserver.Kind {
	return ClusterScoped(WithStatus(apiserver.Builtin[corev1.Node](corev1.SchemeGroupVersion.WithKind("Node"), "nodes",
		corev1.AddToScheme)))
}

// Object is an object of a custom kind, whose spec has the type S.
type Object[S any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              S `json:"spec"`
}

// DeepCopyObject implements runtime.Object.
func (o *Object[S]) DeepCopyObject() runtime.Object {
	content, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	c := &Object[S]{}
	if err := json.Unmarshal(content, c); err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
	return c
}
