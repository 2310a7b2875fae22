package workqueue_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

// A held key is handed out again with its state, and with later Adds merged.
func TestHold(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]bool{"until its due time": false, "until Release": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
				o := because("first")
				o.Priority = workqueue.PriorityLow
				q.Add("a", o)
				time.Sleep(time.Second)
				first := take(t, q)
				q.Add("a", o) // while it is taken
				q.Hold("a", workqueue.Hold{AtMost: time.Minute})
				if q.Stats().Held != 1 {
					t.Errorf("stats %+v: want one held key", q.Stats())
				}
				q.Add("a", endingBackoff(because("event"))) // does not end the hold
				q.Add("a", failed(time.Second))             // does not end it either
				if q.Add("a", later(time.Hour, "superseded")) {
					t.Error("Add returned true for a later plan")
				}
				began, want := time.Now(), time.Minute
				if release {
					want = 10 * time.Second
					time.Sleep(want)
					q.Release("a")
				}
				item, _ := q.Get()
				if got := time.Since(began); got != want {
					t.Errorf("it was due after %s, want %s", got, want)
				}
				if item.Wait != want+time.Second {
					t.Errorf("its wait is %s, want the wait since it was first ready", item.Wait)
				}
				if item.Held != want {
					t.Errorf("it was held for %s, want %s", item.Held, want)
				}
				if got := text(item.Causes); got != "2 times first, event, failed" {
					t.Errorf("the causes are %q", got)
				}
				if item.Priority != workqueue.PriorityNormal {
					t.Errorf("the priority is %d, want the highest of the Adds", item.Priority)
				}
				if got := text(first.Causes); got != "first" {
					t.Errorf("the worker's causes changed to %q", got)
				}
				q.Hold("a", workqueue.Hold{AtMost: time.Minute})
				if again, _ := q.Get(); again.Held != want+time.Minute {
					t.Errorf("it was held for %s in two holds, want %s", again.Held, want+time.Minute)
				}
				q.Done("a")
				expectStats(t, q, 0, 0, 0)
			})
		})
	}
}

func TestHoldKeepsPriority(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	q.Add("a", priority(workqueue.PriorityLow))
	take(t, q)
	q.Hold("a", workqueue.Hold{})
	if got := take(t, q).Priority; got != workqueue.PriorityLow {
		t.Errorf("the priority is %d, want %d", got, workqueue.PriorityLow)
	}
}

func TestHoldAndReleaseOfOtherKeys(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	defer q.ShutDown()
	q.Hold("unknown", workqueue.Hold{AtMost: time.Minute})
	q.Release("unknown")
	q.Add("waiting", later(time.Hour, "later"))
	q.Add("backoff", failed(time.Hour))
	q.Add("ready", now())
	for _, key := range []string{"waiting", "backoff", "ready"} {
		q.Hold(key, workqueue.Hold{AtMost: time.Minute})
		q.Release(key)
	}
	if s := q.Stats(); s.Delayed != 1 || s.Backoff != 1 || s.Ready != 1 || s.Held != 0 {
		t.Errorf("stats %+v", s)
	}
	take(t, q)
	q.Release("ready")
	if s := q.Stats(); s.Processing != 1 || s.Ready != 0 {
		t.Errorf("stats %+v", s)
	}
}

// A gate may open between its decision and the call of Hold.
func TestHoldAfterReleaseDoesNotWait(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	defer q.ShutDown()
	addAll(q, now(), "a")
	take(t, q)
	q.Release("a")
	q.Hold("a", workqueue.Hold{AtMost: time.Hour})
	if s := q.Stats(); s.Ready != 1 || s.Held != 0 {
		t.Errorf("stats %+v", s)
	}
	take(t, q)
	q.Hold("a", workqueue.Hold{AtMost: time.Hour}) // the release was for the last time
	if s := q.Stats(); s.Ready != 0 || s.Held != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestDrainDoesNotWaitForKeysWhoseHoldEndsWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		addAll(q, now(), "before", "meanwhile")
		take(t, q)
		take(t, q)
		q.Hold("before", workqueue.Hold{AtMost: time.Hour, EndsWithDrain: true})
		q.Drain()
		q.Hold("meanwhile", workqueue.Hold{AtMost: time.Hour, EndsWithDrain: true})
		if item, ok := q.Get(); ok {
			t.Errorf("%s was handed out", item.Key)
		}
		expectStats(t, q, 0, 0, 0)
	})
}

func TestRemoveCauses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		adds   []string
		remove string // details
		want   int
		left   string // empty: the key is not added again
	}{
		"the only cause":           {[]string{"echo"}, "echo", 1, ""},
		"all causes":               {[]string{"echo", "other"}, "echo other", 2, ""},
		"some causes":              {[]string{"echo", "change", "other"}, "echo other", 2, "change"},
		"none":                     {[]string{"change"}, "echo", 0, "change"},
		"a repeated cause stays":   {[]string{"echo", "echo"}, "echo", 0, "2 times echo"},
		"none with dropped causes": {strings.Fields("1 2 3 4 5 6 7 8 9"), "1", 0, "1, 2, 3, 4, 5, 6, 7, 8, and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
			match := func(c cause) bool { return c.Count <= 1 && strings.Contains(tc.remove, c.Detail) }
			q.Add("a", now())
			take(t, q)
			for _, detail := range tc.adds {
				q.Add("a", because(detail))
			}
			if got := q.RemoveCauses("a", match); got != tc.want {
				t.Errorf("RemoveCauses returned %d, want %d", got, tc.want)
			}
			q.Done("a")
			if tc.left == "" {
				expectStats(t, q, 0, 0, 0)
				return
			}
			if got := q.RemoveCauses("a", match); got != 0 {
				t.Errorf("RemoveCauses returned %d for a key that is not taken", got)
			}
			if got := text(take(t, q).Causes); got != tc.left {
				t.Errorf("remaining causes are %q, want %q", got, tc.left)
			}
		})
	}
}

// A key without remaining causes is added again like a new key.
func TestRemoveCausesResetsDueTime(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	defer q.ShutDown()
	q.RemoveCauses("unknown", func(cause) bool { return true })
	q.Add("a", now())
	take(t, q)
	q.Add("a", endingBackoff(because("echo")))
	q.RemoveCauses("a", func(cause) bool { return true })
	q.Add("a", failed(time.Minute))
	q.Done("a")
	if q.Stats().Backoff != 1 {
		t.Errorf("stats %+v: want a key in backoff", q.Stats())
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		defer q.ShutDown()
		began := time.Now()
		expect := func(key string, place workqueue.KeyState, due time.Duration, causes string) {
			t.Helper()
			s, ok := q.Lookup(key)
			if !ok || s.Key != key || s.State != place || !s.Due.Equal(began.Add(due)) || text(s.Causes) != causes {
				t.Errorf("Lookup returned %+v, %t; want %s, due after %s, because of %s", s, ok, place, due, causes)
			}
		}
		if s, ok := q.Lookup("unknown"); ok {
			t.Errorf("Lookup returned %+v", s)
		}
		q.Add("a", later(time.Second, "planned"))
		expect("a", workqueue.Delayed, time.Second, "planned")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		expect("a", workqueue.Ready, time.Second, "planned")
		take(t, q)
		expect("a", workqueue.Processing, time.Second, "planned")
		q.Add("a", because("event"))
		expect("a", workqueue.ProcessingAgain, 3*time.Second, "event")
		q.Hold("a", workqueue.Hold{AtMost: time.Minute})
		expect("a", workqueue.Held, 63*time.Second, "planned, event")
		q.Add("b", failed(time.Minute))
		expect("b", workqueue.Backoff, 63*time.Second, "failed")

		before, _ := q.Lookup("b")
		q.Add("b", failed(time.Minute))
		if got := text(before.Causes); got != "failed" {
			t.Errorf("the causes of the earlier Lookup changed to %q", got)
		}
	})
}

func TestSnapshotIsBounded(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	addAll(q, now(), "a", "b", "c")
	for limit, want := range map[int]int{-1: 0, 0: 0, 2: 2, 3: 3, 100: 3} {
		if got := len(q.Snapshot(limit)); got != want {
			t.Errorf("a snapshot of up to %d keys has %d, want %d", limit, got, want)
		}
	}
}

func TestOldestReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		began := time.Now()
		if got := q.Stats().OldestReady; !got.IsZero() {
			t.Errorf("OldestReady of an empty queue is %s", got)
		}
		expect := func(after time.Duration) {
			t.Helper()
			if got := q.Stats().OldestReady; !got.Equal(began.Add(after)) {
				t.Errorf("OldestReady is %s after the start, want %s", got.Sub(began), after)
			}
		}
		q.Add("low", priority(workqueue.PriorityLow))
		time.Sleep(time.Second)
		addAll(q, priority(workqueue.PriorityHigh), "high", "higher")
		expect(0)
		q.Add("low", priority(workqueue.PriorityHigh)) // low keeps its age
		expect(0)
		take(t, q) // low, which became ready first
		expect(time.Second)
	})
}

// After Drain all ready keys are handed out, and then Get returns false.
func TestContract16_Drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := byTenant(1)
		addAll(q, now(), "a/0", "b/0")
		take(t, q)
		take(t, q)
		q.Add("b/0", now())                                           // ready when it is returned
		q.Hold("b/0", workqueue.Hold{AtMost: 500 * time.Millisecond}) // it was ready, and is handed out after the hold
		addAll(q, now(), "a/1", "a/2", "c/1", "c/2")
		addAll(q, later(time.Hour, "later"), "waiting")
		addAll(q, failed(time.Hour), "failed")
		addAll(q, now(), "a/0") // while it is taken

		var mu sync.Mutex
		handled := map[string]int{}
		var workers sync.WaitGroup
		q.Drain()
		q.Drain() // a second call changes nothing
		for range 4 {
			workers.Go(func() { // waited for below
				for {
					item, ok := q.Get()
					if !ok {
						return
					}
					time.Sleep(time.Second)
					mu.Lock()
					handled[item.Key]++
					mu.Unlock()
					if q.Add(item.Key, now()) || q.Add("new", now()) {
						t.Error("Add returned true after Drain")
					}
					q.Done(item.Key)
				}
			})
		}
		time.Sleep(3 * time.Second)
		expectStats(t, q, 2, 0, 1) // a/1 and a/2 wait for a/0
		q.Done("a/0")
		workers.Wait()
		for _, key := range []string{"a/0", "a/1", "a/2", "b/0", "c/1", "c/2"} {
			if handled[key] != 1 {
				t.Errorf("%s was handled %d times, want once", key, handled[key])
			}
			delete(handled, key)
		}
		if len(handled) > 0 {
			t.Errorf("also handled were %v", handled)
		}
		if got := q.Stats(); got != (workqueue.Stats{Down: true}) {
			t.Errorf("the final stats are %+v", got)
		}
	})
}

// Get returns false to workers that wait when the drain begins or when the last key is taken.
func TestDrainWakesWaitingWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge, GroupLimit: 1})
		addAll(q, now(), "a", "b")
		take(t, q)
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() { // waited for below
				for {
					if _, ok := q.Get(); !ok {
						return
					}
				}
			})
		}
		synctest.Wait()
		q.Drain()
		synctest.Wait()
		q.Done("a") // one of them takes b, then Get returns false to all
		workers.Wait()
		q.Done("b")
		expectStats(t, q, 0, 0, 0)
	})
}

// Keys that are held before or during a drain are handed out when they are released or due.
func TestDrainHandsOutHeldKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		addAll(q, now(), "before", "meanwhile", "timed")
		for range 2 {
			take(t, q)
		}
		q.Hold("before", workqueue.Hold{AtMost: time.Hour})
		q.Drain()
		q.Hold("meanwhile", workqueue.Hold{AtMost: time.Hour})
		q.Hold(take(t, q).Key, workqueue.Hold{AtMost: time.Second})
		if s := q.Stats(); s.Held != 3 || s.Ready != 0 {
			t.Errorf("stats %+v", s)
		}
		var mu sync.Mutex
		var got []string
		var workers sync.WaitGroup
		for range 3 {
			workers.Go(func() { // waited for below
				for {
					item, ok := q.Get()
					if !ok {
						return
					}
					mu.Lock()
					got = append(got, item.Key)
					mu.Unlock()
					q.Done(item.Key)
				}
			})
		}
		time.Sleep(2 * time.Second)
		q.Release("meanwhile")
		synctest.Wait()
		q.Release("before")
		workers.Wait()
		if want := []string{"timed", "meanwhile", "before"}; !slices.Equal(got, want) {
			t.Errorf("taken keys are %v, want %v", got, want)
		}
		if s := q.Stats(); s != (workqueue.Stats{Down: true}) {
			t.Errorf("the final stats are %+v", s)
		}
	})
}

// An exempt key does not count for its group's limit while it is taken. Afterwards the limit is as before.
func TestExemptKeyDoesNotCountForGroupLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := byTenant(1)
		addAll(q, now(), "a/1", "a/2", "a/3")
		stuck := take(t, q).Key
		got := make(chan string, 3)
		var worker sync.WaitGroup
		worker.Go(func() { // waited for below
			for range 2 {
				item, _ := q.Get()
				got <- item.Key
			}
		})
		synctest.Wait()
		if len(got) > 0 {
			t.Fatalf("%s was taken above the group's limit", <-got)
		}
		q.Exempt("unknown")
		q.Exempt("a/2") // not taken
		q.Exempt(stuck)
		q.Exempt(stuck) // a second call changes nothing
		synctest.Wait()
		if len(got) != 1 {
			t.Fatalf("%d keys were handed out, want 1", len(got))
		}
		first := <-got
		q.Done(stuck) // must not free a second place
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("%s was taken above the group's limit", <-got)
		}
		q.Done(first)
		worker.Wait()
		q.ShutDown()
	})
}

func TestShutDownAfterDrain(t *testing.T) {
	t.Parallel()
	q := byTenant(1)
	addAll(q, now(), "a/1", "a/2", "b/1")
	take(t, q)
	q.Drain()
	q.ShutDown()
	if item, ok := q.Get(); ok {
		t.Errorf("Get returned %s", item.Key)
	}
	q.Done("a/1")
	if got := q.Stats(); got != (workqueue.Stats{Down: true}) {
		t.Errorf("the final stats are %+v", got)
	}
}

// RemoveCauses must keep a cause that has superseded an Add for a later time, because no other run would remain.
func TestRemoveCausesKeepsCausesThatSupersededPlans(t *testing.T) {
	t.Parallel()
	for name, adds := range map[string][]options{
		"a later plan was refused":                      {because("echo"), later(time.Minute, "planned")},
		"a plan was superseded":                         {later(time.Minute, "planned"), because("echo")},
		"a later plan was superseded by an earlier one": {later(time.Hour, "planned"), later(time.Minute, "echo")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
			defer q.ShutDown()
			q.Add("a", now())
			take(t, q)
			for _, o := range adds {
				q.Add("a", o)
			}
			if n := q.RemoveCauses("a", func(c cause) bool { return c.Detail == "echo" }); n != 0 {
				t.Errorf("RemoveCauses returned %d, want 0", n)
			}
			q.Done("a")
			if s := q.Stats(); s.Ready+s.Delayed != 1 {
				t.Errorf("stats %+v: want a key that is added again", s)
			}
		})
	}
}
