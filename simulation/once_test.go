package simulation_test

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/evenkeel-go/evenkeel/owned"
	"github.com/evenkeel-go/evenkeel/simulation"
)

// A Job that is deleted when it has finished is created once, also if its deletion begins in the moment of its end.
func TestJobWithTTLRunsOnce(t *testing.T) {
	t.Parallel()
	for _, ttl := range []int32{60, 1, 0} {
		t.Run(fmt.Sprint(ttl), func(t *testing.T) {
			t.Parallel()
			simulation.Test(t, simulation.Config{}, func(t *testing.T, c *simulation.Cluster) {
				ctrl, creations := migrations(t, c, owned.Child{Once: true, CreateOnly: true}, func(job *batchv1.Job) {
					job.Spec.TTLSecondsAfterFinished = new(ttl)
				})
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
