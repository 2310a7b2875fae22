package client_test

import (
	"context"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

// Go encodes an unset quantity as the quantity 0. Apply omits an unset quantity and applies the quantity 0, also
// directly after each other: the configurations differ.
func TestApplyDistinguishesUnsetQuantities(t *testing.T) {
	t.Parallel()
	set := func(divisor resource.Quantity) *appsv1.StatefulSet {
		limit := corev1.EnvVar{Name: "CPUS", ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu", Divisor: divisor},
		}}
		return &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
			Spec: appsv1.StatefulSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "db", Env: []corev1.EnvVar{limit}}},
			}}},
		}
	}
	_, c, stop := startServer()
	defer stop()
	shown := &shownSet{set: set(resource.MustParse("0"))}
	shown.set.UID, shown.set.ResourceVersion = "u1", "7"
	requests := 0
	c, err := c.With(func(config *client.Config) {
		config.FieldOwner, config.Informers = "shop", shows(shown)
		config.Interceptors = []client.Interceptor{func(client.RoundTrip) client.RoundTrip {
			return func(_ context.Context, r *client.Request) error {
				requests++
				r.Status = http.StatusOK
				*r.Response.(*appsv1.StatefulSet) = *shown.set.DeepCopy()
				return nil
			}
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		divisor resource.Quantity
		want    int
	}{{resource.Quantity{}, 1}, {resource.Quantity{}, 1}, {resource.MustParse("0"), 2}, {resource.MustParse("0"), 2}, {resource.Quantity{}, 3}} {
		if _, err := client.Apply(t.Context(), c, set(step.divisor)); err != nil {
			t.Fatal(err)
		}
		if requests != step.want {
			t.Errorf("step %d: %d requests were made, want %d", i, requests, step.want)
		}
	}
}
