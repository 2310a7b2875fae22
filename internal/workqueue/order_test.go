package workqueue_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

// byTenant returns the group of a key such as "tenant/name".
func byTenant(limit int) *workqueue.Queue[string, cause] {
	return workqueue.New(workqueue.Config[string, cause]{
		Merge:      merge,
		Group:      func(key string) string { tenant, _, _ := strings.Cut(key, "/"); return tenant },
		GroupLimit: limit,
	})
}

func addAll(q *workqueue.Queue[string, cause], o options, keys ...string) {
	for _, key := range keys {
		q.Add(key, o)
	}
}

func TestContract16_PriorityGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		addAll(q, priority(workqueue.PriorityLow), "low1", "low2", "low3")
		time.Sleep(time.Second)
		addAll(q, now(), "a", "b")
		addAll(q, priority(workqueue.PriorityHigh), "high")
		addAll(q, priority(99), "higher than high", "a") // treated as high; a is raised, and ready for longer
		addAll(q, priority(-99), "lower than low")
		addAll(q, now(), "low3") // raised, and ready for longer than b
		if got := takeAll(t, q); got != "a high higher than high low3 b low1 low2 lower than low" {
			t.Errorf("the order was %q", got)
		}
	})
}

// An overdue priority gets every fourth key that is taken, and no more.
func TestContract16_OverduePriorityGetsShare(t *testing.T) {
	t.Parallel()
	const low, normal, high = workqueue.PriorityLow, workqueue.PriorityNormal, workqueue.PriorityHigh
	type adds map[workqueue.Priority]string
	const patience = workqueue.StarvationTimeout
	for name, tc := range map[string]struct {
		limit        int
		early, later adds
		after        time.Duration // between early and later
		want         string
	}{
		"not yet": {
			early: adds{low: "l1 l2"}, after: patience - 1, later: adds{high: "h1 h2 h3 h4 h5"},
			want: "h1 h2 h3 h4 h5 l1 l2",
		},
		"one priority": {
			early: adds{low: "l1 l2"}, after: patience, later: adds{high: "h1 h2 h3 h4 h5 h6 h7"},
			want: "h1 h2 h3 l1 h4 h5 h6 l2 h7",
		},
		"below normal priority": {
			early: adds{low: "l1 l2"}, after: patience, later: adds{normal: "n1 n2 n3 n4"},
			want: "n1 n2 n3 l1 n4 l2",
		},
		"however old": {
			early: adds{low: "l1 l2"}, after: 100 * patience, later: adds{normal: "n1 n2 n3 n4"},
			want: "n1 n2 n3 l1 n4 l2",
		},
		"two priorities take turns": {
			early: adds{low: "l1 l2", normal: "n1 n2"}, after: patience, later: adds{high: "h1 h2 h3 h4 h5 h6 h7 h8 h9 h10"},
			want: "h1 h2 h3 l1 h4 h5 h6 n1 h7 h8 h9 l2 h10 n2",
		},
		"the highest priority is never overdue": {
			early: adds{low: "l1 l2", high: "h1 h2 h3 h4 h5 h6"}, after: patience,
			want: "h1 h2 h3 l1 h4 h5 h6 l2",
		},
		"a key with a raised priority is not overdue": {
			early: adds{low: "n2 l1"}, after: patience, later: adds{normal: "n1 n2", high: "h1 h2 h3 h4 h5 h6 h7 h8"},
			want: "h1 h2 h3 l1 h4 h5 h6 h7 h8 n2 n1", // n2 has been ready for longer than n1
		},
		"groups take turns": {
			early: adds{low: "l/1 l/2"}, after: patience, later: adds{low: "m/1", high: "h/1 h/2 h/3 h/4 h/5 h/6 h/7"},
			want: "h/1 h/2 h/3 l/1 h/4 h/5 h/6 m/1 h/7 l/2",
		},
		"a group at its limit": {
			limit: 1,
			early: adds{low: "l/1 l/2"}, after: patience, later: adds{normal: "a/ b/ c/ d/ e/ f/ g/"},
			want: "a/ b/ c/ l/1 d/ e/ f/ g/",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := byTenant(tc.limit)
				if !strings.Contains(tc.want, "/") {
					q = workqueue.New(workqueue.Config[string, cause]{Merge: merge})
				}
				addEach := func(list adds) {
					for _, p := range []workqueue.Priority{low, normal, high} {
						addAll(q, priority(p), strings.Fields(list[p])...)
					}
				}
				addEach(tc.early)
				time.Sleep(tc.after)
				addEach(tc.later)
				var got []string
				for range strings.FieldsSeq(tc.want) {
					got = append(got, take(t, q).Key)
				}
				if diff := cmp.Diff(strings.Fields(tc.want), got); diff != "" {
					t.Errorf("the order (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Every key is taken eventually, even if keys of all priorities are added all the time.
func TestContract16_EveryKeyIsTakenEventually(t *testing.T) {
	t.Parallel()
	for _, p := range []workqueue.Priority{workqueue.PriorityLow, workqueue.PriorityNormal, workqueue.PriorityHigh} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const groups, before = 5, 10 // before is the number of earlier ready keys of the group
				q := byTenant(0)
				for group := range groups {
					for i := range before + 1 {
						for other := workqueue.PriorityLow; other <= workqueue.PriorityHigh; other++ {
							q.Add(fmt.Sprint(group, "/", other, "/", i), priority(other))
						}
					}
				}
				last := fmt.Sprint("0/", p, "/", before)
				time.Sleep(workqueue.StarvationTimeout)
				for taken := 1; ; taken++ {
					item := take(t, q)
					if item.Key == last {
						return
					}
					if taken == 8*groups*(before+1) {
						t.Fatalf("the key was not among the %d that were taken", taken)
					}
					q.Add(item.Key, priority(item.Priority))
					time.Sleep(time.Second) // so that keys that are added again become overdue
					q.Done(item.Key)
				}
			})
		})
	}
}

func TestGroupsTakeTurns(t *testing.T) {
	t.Parallel()
	q := byTenant(0)
	addAll(q, now(), "a/1", "a/2", "a/3", "a/4", "b/1", "b/2", "c/1")
	if item := take(t, q); item.Key != "a/1" {
		t.Errorf("%s was the first", item.Key)
	}
	addAll(q, now(), "d/1") // joins at the end
	addAll(q, priority(workqueue.PriorityHigh), "a/5")
	if got := takeAll(t, q); got != "a/5 b/1 c/1 a/2 d/1 b/2 a/3 a/4" {
		t.Errorf("the order was %q", got)
	}
}

// Workers wait while all ready keys belong to groups at their limit. Each returned key wakes one worker.
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
				t.Errorf("also taken: %v", got)
			}
		}
		expect("a/1 a/2 b/1")
		q.Done("b/1")
		expect("")
		// Both before any worker can run: each must wake one.
		q.Done("a/1")
		q.Done("a/2")
		expect("a/3 a/4")
		q.Hold("a/3", workqueue.Hold{AtMost: time.Hour})
		expect("a/5")
		workers.Wait()
	})
}

// In a queue without groups, the limit applies to all keys.
func TestGroupLimitWithoutGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge, GroupLimit: 1})
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
			t.Errorf("%s was taken too", key)
		default:
		}
		q.Done("a")
		if got := <-second; got != "b" {
			t.Errorf("then %s was taken", got)
		}
	})
}
