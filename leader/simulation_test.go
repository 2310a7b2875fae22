package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/evenkeel-go/evenkeel/internal/leadership"
	"github.com/evenkeel-go/evenkeel/internal/testlength"
)

// Three electors compete while requests hang and fail, responses are lost, machines are suspended, and other clients
// edit and delete the Lease. Two electors may have the same identity. Two must never lead at once.
func TestContract06_NeverTwoLeaders(t *testing.T) {
	t.Parallel()
	for seed := range testlength.Count(10, 40) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulate(t, rand.New(rand.NewPCG(uint64(seed), 7))) })
		})
	}
}

func simulate(t *testing.T, random *rand.Rand) {
	t.Helper()
	type times struct{ duration, deadline, period time.Duration }
	all := []times{
		{leadership.DefaultLeaseDuration, leadership.DefaultRenewDeadline, leadership.DefaultRetryPeriod},
		{15 * time.Second, 14 * time.Second, 300 * time.Millisecond},
		{3 * time.Second, 2 * time.Second, 500 * time.Millisecond},
		{2 * time.Second, 1900 * time.Millisecond, 100 * time.Millisecond},
		{1 * time.Second, 990 * time.Millisecond, 30 * time.Millisecond},
	}
	chosen := all[random.IntN(len(all))]
	s := newServer()
	var (
		clients   [3]*client
		electors  [3]*Elector
		runs      [3]*running
		suspended [3]atomic.Int64
	)
	for i := range electors {
		clients[i] = s.client(fmt.Sprint("process ", i*random.IntN(4))) // some seeds have equal names
		electors[i] = newTestElector(t, clients[i], func(c *Config) {
			c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = chosen.duration, chosen.deadline, chosen.period
		})
		electors[i].clock = newClock(func() time.Duration { return time.Duration(suspended[i].Load()) })
		runs[i] = run(t, electors[i], untilDone)
	}
	for range 150 {
		time.Sleep(time.Duration(random.Int64N(int64(chosen.duration))))
		synctest.Wait()
		disturb(s, clients[random.IntN(len(clients))], random)
		if random.IntN(9) == 0 {
			suspended[random.IntN(len(suspended))].Add(random.Int64N(int64(2 * chosen.duration)))
		}
		synctest.Wait()
		var leading []int
		for i, e := range electors {
			if e.Status().state == stateLeading {
				leading = append(leading, i)
			}
		}
		if len(leading) > 1 {
			t.Fatalf("electors %v lead at %s with %+v", leading, time.Since(s.start), chosen)
		}
	}
	for i, c := range clients {
		c.loseResponses(nil)
		c.fail(nil)
		_ = runs[i].stop()
	}
}

// disturb makes a client's requests fail or succeed, or edits the lease.
func disturb(s *server, c *client, random *rand.Rand) {
	lostResponse := func(ctx context.Context, verb string) error {
		if verb != "get" {
			return errors.New("connection reset by peer")
		}
		return ctx.Err()
	}
	one := int32(1)
	edits := []func(*coordinationv1.LeaseSpec){
		func(spec *coordinationv1.LeaseSpec) { spec.RenewTime = nil },
		func(spec *coordinationv1.LeaseSpec) {
			spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(time.Hour)}
		},
		func(spec *coordinationv1.LeaseSpec) { spec.LeaseDurationSeconds = nil },
		func(spec *coordinationv1.LeaseSpec) { spec.LeaseDurationSeconds = &one },
		func(*coordinationv1.LeaseSpec) {}, // the metadata only
	}
	switch random.IntN(9) {
	case 0:
		c.fail(hang)
	case 1:
		c.fail(refuse)
	case 2:
		c.loseResponses(lostResponse)
	case 3, 4, 5:
		c.loseResponses(nil)
		c.fail(nil)
	case 6:
		if random.IntN(4) == 0 {
			s.remove()
		}
	default:
		if s.read() != nil {
			s.edit(func(lease *coordinationv1.Lease) { edits[random.IntN(len(edits))](&lease.Spec) })
		}
	}
}
