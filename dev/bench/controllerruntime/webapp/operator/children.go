package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/evenkeel-go/evenkeel/dev/bench/controllerruntime/webapp/api/v1"
)

const (
	nameLabel      = "app.kubernetes.io/name"
	instanceLabel  = "app.kubernetes.io/instance"
	managedByLabel = "app.kubernetes.io/managed-by"

	managedBy = "webapp-operator"
)

// errForeign is a child's name that something else has.
var errForeign = errors.New("it exists and is not managed by this operator")

// children brings all children to what app asks for. They go in the order in which they need each other.
func (r *Reconciler) children(ctx context.Context, app *v1.WebApp) (*appsv1.Deployment, error) {
	meta := metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: app.Namespace, Name: app.Name +
		v1.ConfigMapSuffix}}
	service := &corev1.Service{ObjectMeta: meta}
	deployment := &appsv1.Deployment{ObjectMeta: meta}

	if err := r.ensure(ctx, app, configMap, func() error {
		configMap.Data, configMap.BinaryData = app.Spec.Config, nil
		return nil
	}); err != nil {
		return nil, err
	}
	if err := r.ensure(ctx, app, service, func() error {
		service.Spec.Type = corev1.ServiceTypeClusterIP
		service.Spec.Selector = selector(app)
		service.Spec.Ports = []corev1.ServicePort{{
			Name: v1.PortName, Protocol: corev1.ProtocolTCP, Port: app.Spec.Port,
			TargetPort: intstr.FromString(v1.PortName),
		}}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := r.ensure(ctx, app, deployment, func() error { return mutateDeployment(deployment, app) }); err != nil {
		return nil, err
	}
	return deployment, nil
}

// ensure creates or updates a child, unless its name is another's.
func (r *Reconciler) ensure(ctx context.Context, app *v1.WebApp, child client.Object, mutate func() error) error {
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, child, func() error {
		exists := child.GetResourceVersion() != ""
		if exists && !metav1.IsControlledBy(child, app) && child.GetLabels()[managedByLabel] != managedBy {
			return errForeign
		}
		labels := child.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, selector(app))
		labels[managedByLabel] = managedBy
		child.SetLabels(labels)
		if err := controllerutil.SetControllerReference(app, child, r.Scheme()); err != nil {
			return err
		}
		return mutate()
	})
	if err != nil {
		return fmt.Errorf("ensure %T %s: %w", child, client.ObjectKeyFromObject(child), err)
	}
	return nil
}

func selector(app *v1.WebApp) map[string]string {
	return map[string]string{nameLabel: "webapp", instanceLabel: app.Name}
}

// mutateDeployment sets field by field: a struct literal would clear what the API server has set by default, and make
// an update of every run.
func mutateDeployment(deployment *appsv1.Deployment, app *v1.WebApp) error {
	config, err := json.Marshal(app.Spec.Config)
	if err != nil {
		return err
	}
	hash := sha256.Sum256(config)

	replicas := *app.Spec.Replicas
	if app.Spec.Suspend {
		replicas = 0
	}
	deployment.Spec.Replicas = &replicas
	deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: selector(app)}

	template := &deployment.Spec.Template
	template.Labels = selector(app)
	metav1.SetMetaDataAnnotation(&template.ObjectMeta, v1.ConfigHashAnnotation, hex.EncodeToString(hash[:8]))

	i := slices.IndexFunc(template.Spec.Containers, func(c corev1.Container) bool { return c.Name == v1.ContainerName })
	if i < 0 {
		i = len(template.Spec.Containers)
		template.Spec.Containers = append(template.Spec.Containers, corev1.Container{Name: v1.ContainerName})
	}
	container := &template.Spec.Containers[i]
	container.Image = app.Spec.Image
	container.Ports = []corev1.ContainerPort{{
		Name: v1.PortName, ContainerPort: app.Spec.Port,
		Protocol: corev1.ProtocolTCP,
	}}
	container.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: app.Name + v1.ConfigMapSuffix},
	}}}
	return nil
}
