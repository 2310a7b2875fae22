package leader

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The record of a holder, and the record after a release, have the contents that client-go's elector writes. Fields of
// other clients are kept.
func TestLeaseSpec(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		preferred, strategy := "b", coordinationv1.OldestEmulationVersion
		s.edit(func(lease *coordinationv1.Lease) {
			lease.Spec.PreferredHolder, lease.Spec.Strategy = &preferred, &strategy
		})
		spec := func(holder string, seconds int32, acquired, renewed time.Duration) coordinationv1.LeaseSpec {
			transitions := int32(1)
			return coordinationv1.LeaseSpec{
				HolderIdentity: &holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
				AcquireTime:     &metav1.MicroTime{Time: s.start.Add(acquired)},
				RenewTime:       &metav1.MicroTime{Time: s.start.Add(renewed)},
				PreferredHolder: &preferred, Strategy: &strategy,
			}
		}
		r := run(t, newTestElector(t, s.client("a")), untilDone)
		pass(5 * time.Second)
		if diff := cmp.Diff(spec("a", 15, 0, 4*time.Second), s.read().Spec); diff != "" {
			t.Errorf("the spec of a holder differs (-want +got):\n%s", diff)
		}
		r.stopWithoutError(t)
		if diff := cmp.Diff(spec("", 1, 5*time.Second, 5*time.Second), s.read().Spec); diff != "" {
			t.Errorf("the spec after a release differs (-want +got):\n%s", diff)
		}
	})
}
