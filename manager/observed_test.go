package manager

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/leader"
)

// leaseMetrics is what a Recorder does with elections.
type leaseMetrics struct{ observed atomic.Int64 }

func (m *leaseMetrics) ObserveLeadership(func() leader.Status) (stop func()) {
	m.observed.Add(1)
	return func() { m.observed.Add(-1) }
}

// That no process leads is observed also while none competes, because its caches are not ready.
func TestLeaseIsObservedBeforeCompetition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var j journal
		parts := map[Group]*part{}
		config := Config{
			LeaderElection: lease(t, newLeaseServer(t), "anna"),
			Runnables: groups(&j, func(g Group, p *part) {
				parts[g], p.notReady = p, errors.New("lists Pods")
			}),
		}
		var metrics leaseMetrics
		apiobject.ObserversOf(config.LeaderElection.Cluster).SetMetrics(&metrics, nil)
		m := launch(t, config)
		pass(time.Minute)
		if n := metrics.observed.Load(); n == 0 {
			t.Error("the lease is not observed while the caches are not ready")
		}
		for _, p := range parts {
			p.setReady(nil)
		}
		pass(time.Minute)
		if err := m.stop(); err != nil || metrics.observed.Load() != 0 {
			t.Errorf("after the end: observed %d times, %v", metrics.observed.Load(), err)
		}
	})
}
