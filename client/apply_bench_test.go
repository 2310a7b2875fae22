package client_test

import (
	"context"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/kube"
)

// shownSet is an informer that shows one StatefulSet.
type shownSet struct {
	client.Informer
	set *appsv1.StatefulSet
}

func (shownSet) Name() string { return "shown" }
func (shownSet) Kind() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("StatefulSet")
}
func (shownSet) Model() (kube.Object, bool) { return &appsv1.StatefulSet{}, true }

func (s shownSet) Object(kube.Key) (kube.Object, bool, error) { return s.set.DeepCopy(), true, nil }

// What an apply costs when an informer shows that nothing has changed: what a handler pays for
// each child, each time. Decoding the object from a real informer comes on top.
func BenchmarkApplyAtRest(b *testing.B) {
	_, c, stop := startServer()
	defer stop()
	labels := map[string]string{"app": "web"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", Labels: labels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(3)), ServiceName: "db", Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "db", Image: "db:1", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
					Ports: []corev1.ContainerPort{{Name: "sql", ContainerPort: 5432}},
				}}},
			},
		},
	}
	live := set.DeepCopy()
	live.UID, live.ResourceVersion, live.Status.Replicas = "u1", "7", 3
	requests := 0
	c, err := c.With(func(config *client.Config) {
		config.FieldOwner, config.Informers = "shop", []client.Informer{shownSet{set: live}}
		config.Interceptors = []client.Interceptor{func(client.RoundTrip) client.RoundTrip {
			return func(_ context.Context, r *client.Request) error {
				requests++
				r.Status = http.StatusOK
				*r.Answer.(*appsv1.StatefulSet) = *live.DeepCopy()
				return nil
			}
		}}
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := client.Apply(b.Context(), c, set); err != nil {
			b.Fatal(err)
		}
	}
	if requests != 1 {
		b.Errorf("%d requests were made, want the first one", requests)
	}
}
