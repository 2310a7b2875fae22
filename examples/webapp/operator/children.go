package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/evenkeel-go/evenkeel/examples/webapp/api/v1"
)

// The children contain only the fields that this operator manages.

func configMap(app *v1.WebApp) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta(app, app.Name+v1.ConfigMapSuffix), Data: app.Spec.Config}
}

func deployment(app *v1.WebApp) *appsv1.Deployment {
	replicas := *app.Spec.Replicas
	if app.Spec.Suspend {
		replicas = 0
	}
	return &appsv1.Deployment{
		ObjectMeta: meta(app, app.Name),
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: selector(app)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      selector(app),
					Annotations: map[string]string{v1.ConfigHashAnnotation: hashOf(app.Spec.Config)},
				},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name:  v1.ContainerName,
					Image: app.Spec.Image,
					Ports: []corev1.ContainerPort{{
						Name: v1.PortName, ContainerPort: app.Spec.Port,
						Protocol: corev1.ProtocolTCP,
					}},
					EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
						LocalObjectReference: corev1.LocalObjectReference{Name: app.Name + v1.ConfigMapSuffix},
					}}},
				}}},
			},
		},
	}
}

func service(app *v1.WebApp) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: meta(app, app.Name),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: selector(app),
			Ports: []corev1.ServicePort{{
				Name: v1.PortName, Port: app.Spec.Port, TargetPort: intstr.FromString(v1.PortName),
				Protocol: corev1.ProtocolTCP,
			}},
		},
	}
}

func meta(app *v1.WebApp, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: app.Namespace, Name: name, Labels: map[string]string{
		"app.kubernetes.io/name": "webapp", "app.kubernetes.io/instance": app.Name,
		"app.kubernetes.io/managed-by": Name,
	}}
}

func selector(app *v1.WebApp) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "webapp", "app.kubernetes.io/instance": app.Name}
}

func hashOf(config map[string]string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", config)) // sorted by key
	return hex.EncodeToString(sum[:8])
}
