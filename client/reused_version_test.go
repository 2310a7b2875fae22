package client_test

import (
	"context"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

// An API server whose etcd was restored from a backup uses resourceVersions again. An object with the resourceVersion
// of the response to an apply may then be another state, and Apply must send its request again.
func TestApplyAfterResourceVersionIsReused(t *testing.T) {
	t.Parallel()
	config := func() *appsv1.StatefulSet {
		return &appsv1.StatefulSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"},
			Spec:       appsv1.StatefulSetSpec{Replicas: new(int32(3)), ServiceName: "db"},
		}
	}
	live := config()
	live.UID, live.ResourceVersion = "u1", "7"
	for name, test := range map[string]struct {
		change func(shown *appsv1.StatefulSet) // changes the object that the informer shows, without its version
		shown  func(shown *appsv1.StatefulSet) // changes the object that the informer shows from the beginning
		first  int                             // requests until Apply makes no more
		after  int                             // requests after the change
	}{
		"the same state": {first: 1, change: func(*appsv1.StatefulSet) {}},
		"an applied field": {first: 1, after: 1, change: func(shown *appsv1.StatefulSet) {
			shown.Spec.Replicas = new(int32(5))
		}},
		"another field": {first: 1, change: func(shown *appsv1.StatefulSet) {
			shown.Spec.Template.Spec.Containers = []corev1.Container{{Name: "db"}}
		}},
		// One request shows that the informer omits this field.
		"the informer lacks an applied field": {first: 2, shown: func(shown *appsv1.StatefulSet) {
			shown.Spec.ServiceName = ""
		}, change: func(*appsv1.StatefulSet) {}},
		"the informer lacks an applied field, and another one changes": {first: 2, after: 1, shown: func(shown *appsv1.StatefulSet) {
			shown.Spec.ServiceName = ""
		}, change: func(shown *appsv1.StatefulSet) { shown.Spec.Replicas = new(int32(5)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c, stop := startServer()
			defer stop()
			shown, requests := live.DeepCopy(), 0
			shown.ResourceVersion = "6" // until the first apply
			if test.shown != nil {
				test.shown(shown)
			}
			c, err := c.With(func(config *client.Config) {
				config.FieldOwner, config.Informers = "me", shows(shownSet{set: shown})
				config.Interceptors = []client.Interceptor{func(client.RoundTrip) client.RoundTrip {
					return func(_ context.Context, r *client.Request) error {
						requests++
						shown.ResourceVersion = live.ResourceVersion
						r.Status = http.StatusOK
						*r.Response.(*appsv1.StatefulSet) = *live.DeepCopy()
						return nil
					}
				}}
			})
			if err != nil {
				t.Fatal(err)
			}
			applies := func(want int) {
				t.Helper()
				requests = 0
				for range 4 {
					if _, err := client.Apply(t.Context(), c, config()); err != nil {
						t.Fatal(err)
					}
				}
				if requests != want {
					t.Errorf("%d requests of 4 applies, want %d", requests, want)
				}
			}
			applies(test.first)
			test.change(shown)
			applies(test.after)
		})
	}
}
