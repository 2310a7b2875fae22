package main

import (
	"crypto/rand"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	v1 "github.com/evenkeel-go/evenkeel/examples/database/api/v1"
	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/owned"
)

// password is created with a new password, which later runs do not change.
func password(db *v1.Database) kube.Object {
	return owned.Child{CreateOnly: true, Object: &corev1.Secret{
		ObjectMeta: meta(db), StringData: map[string]string{"password": rand.Text()},
	}}
}

func service(db *v1.Database) kube.Object {
	return &corev1.Service{ObjectMeta: meta(db), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Selector: labels(db), Ports: []corev1.ServicePort{{Port: 5432}},
	}}
}

func statefulSet(db *v1.Database, version int32) kube.Object {
	secret := &corev1.SecretKeySelector{Key: "password"}
	secret.Name = db.Name
	volume := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: db.Spec.Storage}
	return &appsv1.StatefulSet{ObjectMeta: meta(db), Spec: appsv1.StatefulSetSpec{
		Replicas: &db.Spec.Replicas, ServiceName: db.Name, Selector: &metav1.LabelSelector{MatchLabels: labels(db)},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels(db)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "postgres", Image: "postgres:" + strconv.Itoa(int(version)),
				Ports: []corev1.ContainerPort{{ContainerPort: 5432}},
				Env: []corev1.EnvVar{
					{Name: "POSTGRES_PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: secret}},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: volume.Name, MountPath: "/var/lib/postgresql"}},
			}}},
		},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{volume},
	}}
}

func disruptionBudget(db *v1.Database) kube.Object {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{ObjectMeta: meta(db), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: labels(db)},
	}}
}

func meta(db *v1.Database) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: db.Name, Labels: labels(db)}
}

func labels(db *v1.Database) map[string]string {
	return map[string]string{"app.kubernetes.io/name": "database", "app.kubernetes.io/instance": db.Name}
}
