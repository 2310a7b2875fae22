package simulation_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/client"
	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/owned/watched"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// A Job that is deleted when it has finished is created once, also if its deletion begins in the moment of its end.
func TestJobWithTTLRunsOnce(t *testing.T) {
	t.Parallel()
	for _, ttl := range []int32{60, 1, 0} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
				c.Apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}`)
				cluster := c.Connect("migrations")
				children, err := watched.New(watched.Config{
					Client: client.Config{Cluster: cluster, FieldOwner: "migrations"},
					Kinds:  []watched.Kind{watched.Of[*batchv1.Job]()},
				})
				if err != nil {
					t.Fatal(err)
				}
				var creations atomic.Int64
				ctrl, err := controller.New(controller.Config[*corev1.ConfigMap]{
					Name: "migrations", Cluster: cluster, Sources: children.Sources, ResyncInterval: 10 * time.Minute,
					Handler: func(ctx context.Context, owner *corev1.ConfigMap) error {
						if owner.Name != "owner" {
							return nil
						}
						job := &batchv1.Job{
							ObjectMeta: metav1.ObjectMeta{Namespace: owner.Namespace, Name: "migrate"},
							Spec: batchv1.JobSpec{
								TTLSecondsAfterFinished: new(ttl),
								Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
									RestartPolicy: corev1.RestartPolicyNever,
									Containers:    []corev1.Container{{Name: "migrate", Image: "migrate"}},
								}},
							},
						}
						report, err := children.Set.Apply(ctx, owner, owned.Child{Object: job, Once: true, CreateOnly: true})
						for _, result := range report.Results {
							if result.Outcome == owned.Created {
								creations.Add(1)
							}
						}
						return err
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Run(ctrl)()
				c.Advance(time.Hour)
				if n := creations.Load(); n != 1 {
					t.Errorf("the Job was created %d times within an hour, want once", n)
				}
				if problems := ctrl.Problems(); len(problems) > 0 {
					t.Errorf("problems %v", problems)
				}
			})
		})
	}
}
