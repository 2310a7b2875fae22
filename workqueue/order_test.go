package workqueue_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/workqueue"
)

// byTenant makes groups of keys like "tenant/name".
func byTenant(limit int) *workqueue.Queue[string] {
	return workqueue.New(workqueue.Config[string]{
		Group:      func(key string) string { tenant, _, _ := strings.Cut(key, "/"); return tenant },
		GroupLimit: limit,
	})
}

func addAll(q *workqueue.Queue[string], o workqueue.Options, keys ...string) {
	for _, key := range keys {
		q.Add(key, o)
	}
}

func TestContract16_PriorityGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string]{})
		addAll(q, priority(workqueue.PriorityLow), "low1", "low2", "low3")
		time.Sleep(time.Second)
		addAll(q, now(), "a", "b")
		addAll(q, priority(workqueue.PriorityHigh), "high")
		addAll(q, priority(99), "higher than high", "a") // counts as high; a is raised, and due since before
		addAll(q, priority(-99), "lower than low")
		addAll(q, now(), "low3") // raised, and due since before b
		if got := takeAll(t, q); got != "a high higher than high low3 b low1 low2 lower than low" {
			t.Errorf("the order was %q", got)
		}
	})
}

// A key rises one priority for each PriorityPatience that it has been ready.
func TestContract16_NothingStarves(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		after time.Duration
		want  string
	}{
		{workqueue.PriorityPatience - 1, "high normal low"},
		{workqueue.PriorityPatience, "high low normal"}, // due since before the normal one
		{2*workqueue.PriorityPatience - 1, "high low normal"},
		{2 * workqueue.PriorityPatience, "low high normal"},
	} {
		t.Run(tc.after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.New(workqueue.Config[string]{})
				q.Add("low", priority(workqueue.PriorityLow))
				time.Sleep(tc.after)
				q.Add("normal", now())
				q.Add("high", priority(workqueue.PriorityHigh))
				if got := takeAll(t, q); got != tc.want {
					t.Errorf("the order was %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// A flood that has grown old rises in steps, and loses nothing of its order.
func TestAFloodGrowsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const flood = 1000
		q := workqueue.New(workqueue.Config[string]{})
		var want []string
		for i := range flood {
			key := fmt.Sprint("low", i)
			q.Add(key, priority(workqueue.PriorityLow))
			want = append(want, key)
		}
		time.Sleep(workqueue.PriorityPatience)
		for i := range flood {
			key := fmt.Sprint("normal", i)
			q.Add(key, now())
			want = append(want, key)
		}
		if got := takeAll(t, q); got != strings.Join(want, " ") {
			t.Errorf("the order was %q", got)
		}
	})
}

func TestGroupsTakeTurns(t *testing.T) {
	t.Parallel()
	q := byTenant(0)
	addAll(q, now(), "a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "c/1")
	if got := q.Stats().Groups; got != 3 {
		t.Errorf("%d groups have ready keys, want 3", got)
	}
	if item := take(t, q); item.Key != "a/1" {
		t.Errorf("%s was the first", item.Key)
	}
	addAll(q, now(), "d/1") // joins at the end
	addAll(q, priority(workqueue.PriorityHigh), "a/5")
	if got := takeAll(t, q); got != "a/5 b/1 c/1 a/2 d/1 b/2 a/3 a/4" {
		t.Errorf("the order was %q", got)
	}
}

// Workers wait while all ready keys are of groups that have as many taken as they may, and
// one more is woken for each key that is given back.
func TestContract16_GroupLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := byTenant(2)
		addAll(q, now(), "a/1", "a/2", "a/3", "a/4", "a/5", "b/1")
		taken := make(chan string, 10)
		var workers sync.WaitGroup
		for range 6 {
			workers.Go(func() { // waited for below
				if item, ok := q.Get(); ok {
					taken <- item.Key
				}
			})
		}
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			got := map[string]bool{}
			for range len(taken) {
				got[<-taken] = true
			}
			for key := range strings.FieldsSeq(want) {
				if !got[key] {
					t.Errorf("%s was not taken", key)
				}
				delete(got, key)
			}
			if len(got) > 0 {
				t.Errorf("taken were also %v", got)
			}
		}
		expect("a/1 a/2 b/1")
		q.Done("b/1")
		expect("")
		// Both at once, before any worker can run: each wakes one.
		q.Done("a/1")
		q.Done("a/2")
		expect("a/3 a/4")
		q.Hold("a/3", time.Hour)
		expect("a/5")
		workers.Wait()
	})
}

// In a queue whose keys all have one group, the limit is for all of them.
func TestGroupLimitWithoutGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string]{GroupLimit: 1})
		addAll(q, now(), "a", "b")
		take(t, q)
		second := make(chan string)
		go func() { // waited for below
			item, _ := q.Get()
			second <- item.Key
		}()
		synctest.Wait()
		select {
		case key := <-second:
			t.Errorf("%s was taken as well", key)
		default:
		}
		q.Done("a")
		if got := <-second; got != "b" {
			t.Errorf("then came %s", got)
		}
	})
}

// One tenant with 10,000 keys and nine with 10: those nine wait little longer than without it.
func TestContract16_ANoisyTenantDelaysOthersByItsShareOnly(t *testing.T) {
	t.Parallel()
	alone, beside := p99OfNine(t, 0), p99OfNine(t, 10_000)
	if beside >= 2*alone {
		t.Errorf("the 99th percentile of the nine's waits is %s, alone %s: want less than twice that", beside, alone)
	}
	t.Logf("the 99th percentile of the nine's waits: alone %s, beside the noisy one %s", alone, beside)
}

// p99OfNine returns the 99th percentile of the waits of nine tenants with 10 keys each beside
// one with so many, with four workers that need a millisecond for a key.
func p99OfNine(t *testing.T, noisy int) (p99 time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := byTenant(0)
		for i := range noisy {
			q.Add(fmt.Sprint("noisy/", i), now())
		}
		for i := range 10 {
			for tenant := range 9 {
				q.Add(fmt.Sprint(tenant, "/", i), now())
			}
		}
		var mu sync.Mutex
		var waits []time.Duration
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() { // waited for below
				for {
					item, ok := q.Get()
					if !ok {
						return
					}
					time.Sleep(time.Millisecond)
					q.Done(item.Key)
					if !strings.HasPrefix(item.Key, "noisy") {
						mu.Lock()
						waits = append(waits, item.Wait)
						mu.Unlock()
					}
				}
			})
		}
		q.Drain() // the workers end when the queue is empty
		workers.Wait()
		if len(waits) != 90 {
			t.Fatalf("%d keys of the nine were handled, want 90", len(waits))
		}
		p99 = waits[len(waits)*99/100] // handed out in the order of their waits
	})
	return p99
}
