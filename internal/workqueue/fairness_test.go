package workqueue_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

// A tenant with 10,000 keys must delay nine tenants with 10 keys only a little.
func TestContract16_NoisyTenantGetsItsShare(t *testing.T) {
	t.Parallel()
	expectTheirShare(t, noise{keys: 10_000})
}

// The age of the noisy tenant's keys must not change that: old keys overtake no keys of the same priority, and few of a
// higher one.
func TestContract16_OldBacklogGetsItsShare(t *testing.T) {
	t.Parallel()
	for name, noisy := range map[string]noise{
		"same priority":  {keys: 10_000, age: 4 * workqueue.StarvationTimeout / 3},
		"lower priority": {keys: 10_000, age: 4 * workqueue.StarvationTimeout / 3, priority: workqueue.PriorityLow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectTheirShare(t, noisy)
		})
	}
}

// noise describes the keys of a noisy tenant: their number, and their age when the other tenants' keys are added.
type noise struct {
	keys     int
	age      time.Duration
	priority workqueue.Priority
}

// expectTheirShare expects that a noisy tenant less than doubles the wait of nine tenants.
func expectTheirShare(t *testing.T, noisy noise) {
	t.Helper()
	alone, beside := p99OfNine(t, noise{}), p99OfNine(t, noisy)
	if beside >= 2*alone {
		t.Errorf("the 99th percentile of nine tenants' waits is %s, without the noisy one %s: want less than twice that", beside, alone)
	}
	t.Logf("the 99th percentile of nine tenants' waits: %s without the noisy one, %s with it", alone, beside)
}

// p99OfNine returns the 99th percentile of the waits of nine tenants with 10 keys each and a noisy one. Four workers
// need a tenth of a second per key.
func p99OfNine(t *testing.T, noisy noise) (p99 time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := byTenant(0)
		var mu sync.Mutex
		var waits []time.Duration
		var workers sync.WaitGroup
		for i := range noisy.keys {
			q.Add(fmt.Sprint("noisy/", i), priority(noisy.priority))
		}
		for range 4 {
			workers.Go(func() { // waited for below
				for {
					item, ok := q.Get()
					if !ok {
						return
					}
					time.Sleep(100 * time.Millisecond)
					q.Done(item.Key)
					if !strings.HasPrefix(item.Key, "noisy") {
						mu.Lock()
						waits = append(waits, item.Wait)
						mu.Unlock()
					}
				}
			})
		}
		time.Sleep(noisy.age)
		if s := q.Stats(); noisy.keys > 0 && time.Since(s.OldestReady) < noisy.age {
			t.Fatalf("the backlog is %s old, want %s", time.Since(s.OldestReady), noisy.age)
		}
		for i := range 10 {
			for tenant := range 9 {
				q.Add(fmt.Sprint(tenant, "/", i), now())
			}
		}
		q.Drain() // the workers end when the queue is empty
		workers.Wait()
		if len(waits) != 90 {
			t.Fatalf("%d keys of the nine tenants were handled, want 90", len(waits))
		}
		slices.Sort(waits)
		p99 = waits[len(waits)*99/100]
	})
	return p99
}
