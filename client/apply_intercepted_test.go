package client_test

import (
	"context"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
)

// TestApplyAnsweredByInterceptorIsNotStored: an interceptor that answers an apply itself may or may not have written
// the object, so the other clients of the cluster must not store the result.
func TestApplyAnsweredByInterceptorIsNotStored(t *testing.T) {
	t.Parallel()
	_, c, stop := startServer()
	defer stop()
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(3))},
	}
	live := set.DeepCopy()
	live.UID, live.ResourceVersion, live.Spec.Replicas = "u1", "7", new(int32(1))
	requests := 0
	responding := func(status int) *client.Client {
		other, err := c.With(func(config *client.Config) {
			config.FieldOwner, config.Informers = "shop", shows(shownSet{set: live})
			config.Interceptors = []client.Interceptor{func(client.RoundTrip) client.RoundTrip {
				return func(_ context.Context, r *client.Request) error {
					requests++
					r.Status = status
					*r.Response.(*appsv1.StatefulSet) = *live.DeepCopy()
					return nil
				}
			}}
		})
		if err != nil {
			t.Fatal(err)
		}
		return other
	}
	suspended, sending := responding(0), responding(http.StatusOK)
	for n, test := range []struct {
		c    *client.Client
		want int // total requests
	}{
		{suspended, 1},
		{suspended, 2},
		{sending, 3},
		{sending, 3},
		{suspended, 3}, // the object matches, for every client
	} {
		if _, err := client.Apply(t.Context(), test.c, set); err != nil || requests != test.want {
			t.Errorf("apply %d: %d requests, want %d (%v)", n, requests, test.want, err)
		}
	}
}
