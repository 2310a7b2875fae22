package leader

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/dev/integration/internal/election"
	"github.com/evenkeel-go/evenkeel/internal/clustertest"
	"github.com/evenkeel-go/evenkeel/leader"
)

// faulty is a transport that fails all requests while broken is true.
type faulty struct {
	next   http.RoundTripper
	broken *atomic.Bool
}

func (f faulty) RoundTrip(req *http.Request) (*http.Response, error) {
	if f.broken.Load() {
		return nil, errors.New("connection refused")
	}
	return f.next.RoundTrip(req)
}

// Another client edits the Lease in every way that the API server accepts. One process leads in each case, never two.
func TestEditedLeaseHasOneLeader(t *testing.T) {
	t.Parallel()
	clients, namespace := newNamespace(t)
	leases := clients.CoordinationV1().Leases(namespace)
	largest := int32(math.MaxInt32)
	if _, err := leases.Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: election.LeaseName}, Spec: coordinationv1.LeaseSpec{LeaseTransitions: &largest},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	var broken [2]atomic.Bool
	var electors [2]*leader.Elector
	leads := make(chan int, 10)
	for i := range electors {
		config := local.RESTConfig()
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return faulty{next, &broken[i]} })
		elector, err := leader.New(leader.Config{
			Cluster: clustertest.Connect(t, config), Namespace: namespace, Name: election.LeaseName,
			LeaseDuration: 3 * time.Second, RenewDeadline: 2900 * time.Millisecond, RetryPeriod: 100 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		electors[i] = elector
		running.Go(func() { // waited for above
			_ = elector.Run(ctx, func(ctx context.Context) error {
				leading := func(e *leader.Elector) bool { return e != nil && e.Status().Leading }
				if leading(electors[0]) && leading(electors[1]) {
					t.Error("two electors lead")
				}
				leads <- i
				<-ctx.Done()
				return nil
			})
		})
		if i == 0 {
			if first := <-leads; first != 0 {
				t.Fatalf("elector %d leads first", first)
			}
		}
	}
	for round, patch := range []string{
		`{"spec":{"leaseDurationSeconds":null}}`, `{"spec":{"leaseDurationSeconds":1}}`,
		`{"spec":{"renewTime":null}}`, `{"metadata":{"labels":{"edited":"yes"}}}`,
	} {
		now := round % 2
		<-time.After(950 * time.Millisecond)
		broken[now].Store(true)
		_, err := leases.Patch(t.Context(), election.LeaseName, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if next := <-leads; next != 1-now {
			t.Fatalf("%s: elector %d leads next", patch, next)
		}
		broken[now].Store(false)
	}
}
