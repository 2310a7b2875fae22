package workqueue_test

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/workqueue"
)

// A key that is held comes again as it was, with what was added since.
func TestHold(t *testing.T) {
	t.Parallel()
	for name, release := range map[string]bool{"until its time": false, "until Release": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.New(workqueue.Config[string]{})
				o := because("first")
				o.Priority = workqueue.PriorityLow
				q.Add("a", o)
				time.Sleep(time.Second)
				first := take(t, q)
				q.Add("a", o) // while it is taken
				q.Hold("a", time.Minute)
				if q.Stats().Held != 1 {
					t.Errorf("stats %+v: want one held key", q.Stats())
				}
				q.Add("a", waking(because("event"))) // does not end it
				q.Add("a", failed(time.Second))      // nor this
				if q.Add("a", later(time.Hour, "superseded")) {
					t.Error("Add says that a plan for later has changed something")
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
					t.Errorf("it waited for %s, want what it has waited for since it was due first", item.Wait)
				}
				if got := item.Causes.String(); got != "triggered 2 times (first), triggered (event), triggered (failed)" {
					t.Errorf("the causes are %q", got)
				}
				if item.Priority != workqueue.PriorityNormal {
					t.Errorf("the priority is %d, want the highest of the Adds", item.Priority)
				}
				if got := first.Causes.String(); got != "triggered (first)" {
					t.Errorf("the causes that the worker was given became %q", got)
				}
				q.Done("a")
				expectStats(t, q, 0, 0, 0)
			})
		})
	}
}

func TestHoldKeepsThePriority(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	q.Add("a", priority(workqueue.PriorityLow))
	take(t, q)
	q.Hold("a", 0)
	if got := take(t, q).Priority; got != workqueue.PriorityLow {
		t.Errorf("the priority is %d, want %d", got, workqueue.PriorityLow)
	}
}

func TestHoldAndReleaseOfOtherKeysDoNothing(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	defer q.ShutDown()
	q.Hold("unknown", time.Minute)
	q.Release("unknown")
	q.Add("waiting", later(time.Hour, "later"))
	q.Add("back-off", failed(time.Hour))
	q.Add("ready", now())
	for _, key := range []string{"waiting", "back-off", "ready"} {
		q.Hold(key, time.Minute)
		q.Release(key)
	}
	if s := q.Stats(); s.Waiting != 1 || s.BackOff != 1 || s.Ready != 1 || s.Held != 0 {
		t.Errorf("stats %+v", s)
	}
	take(t, q)
	q.Release("ready")
	if s := q.Stats(); s.Taken != 1 || s.Ready != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestForgive(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		adds    []string
		forgive string // details
		want    int
		left    string // empty: the key does not come again
	}{
		"the only cause":              {[]string{"echo"}, "echo", 1, ""},
		"all causes":                  {[]string{"echo", "other"}, "echo other", 2, ""},
		"one of them":                 {[]string{"echo", "change", "other"}, "echo other", 2, "triggered (change)"},
		"none":                        {[]string{"change"}, "echo", 0, "triggered (change)"},
		"one that came twice stays":   {[]string{"echo", "echo"}, "echo", 0, "triggered 2 times (echo)"},
		"with dropped ones none does": {strings.Fields("1 2 3 4 5 6 7 8 9"), "1", 0, "triggered (1), triggered (2), triggered (3), triggered (4), triggered (5), triggered (6), triggered (7), triggered (8), and 1 more"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.New(workqueue.Config[string]{})
			match := func(c workqueue.Cause) bool { return strings.Contains(tc.forgive, c.Detail) }
			q.Add("a", now())
			take(t, q)
			for _, detail := range tc.adds {
				q.Add("a", because(detail))
			}
			if got := q.Forgive("a", match); got != tc.want {
				t.Errorf("Forgive returned %d, want %d", got, tc.want)
			}
			q.Done("a")
			if tc.left == "" {
				expectStats(t, q, 0, 0, 0)
				return
			}
			if got := q.Forgive("a", match); got != 0 {
				t.Errorf("of a key that is not taken, Forgive returned %d", got)
			}
			if got := take(t, q).Causes.String(); got != tc.left {
				t.Errorf("left are %q, want %q", got, tc.left)
			}
		})
	}
}

// A key that was forgiven, and is added again, waits as if nothing had been before.
func TestForgiveForgetsTheTime(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	defer q.ShutDown()
	q.Forgive("unknown", func(workqueue.Cause) bool { return true })
	q.Add("a", now())
	take(t, q)
	q.Add("a", waking(because("echo")))
	q.Forgive("a", func(workqueue.Cause) bool { return true })
	q.Add("a", failed(time.Minute))
	q.Done("a")
	if q.Stats().BackOff != 1 {
		t.Errorf("stats %+v: want a key that backs off", q.Stats())
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string]{})
		defer q.ShutDown()
		began := time.Now()
		expect := func(key string, place workqueue.Place, due time.Duration, causes string) {
			t.Helper()
			s, ok := q.Lookup(key)
			if !ok || s.Key != key || s.Place != place || !s.Due.Equal(began.Add(due)) || s.Causes.String() != causes {
				t.Errorf("Lookup returned %+v, %t; want %s, due after %s, because of %s", s, ok, place, due, causes)
			}
		}
		if s, ok := q.Lookup("unknown"); ok {
			t.Errorf("Lookup returned %+v", s)
		}
		q.Add("a", later(time.Second, "planned"))
		expect("a", workqueue.PlaceWaiting, time.Second, "triggered (planned)")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		expect("a", workqueue.PlaceReady, time.Second, "triggered (planned)")
		take(t, q)
		expect("a", workqueue.PlaceRunning, time.Second, "triggered (planned)")
		q.Add("a", because("event"))
		expect("a", workqueue.PlaceRunningAgain, 3*time.Second, "triggered (event)")
		q.Hold("a", time.Minute)
		expect("a", workqueue.PlaceHeld, 63*time.Second, "triggered (planned), triggered (event)")
		q.Add("b", failed(time.Minute))
		expect("b", workqueue.PlaceBackOff, 63*time.Second, "triggered (failed)")

		before, _ := q.Lookup("b")
		q.Add("b", failed(time.Minute))
		if got := before.Causes.String(); got != "triggered (failed)" {
			t.Errorf("the causes that Lookup had returned became %q", got)
		}
	})
}

func TestSnapshotIsBounded(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
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
		q := workqueue.New(workqueue.Config[string]{})
		began := time.Now()
		if got := q.Stats().OldestReady; !got.IsZero() {
			t.Errorf("of an empty queue it is %s", got)
		}
		expect := func(after time.Duration) {
			t.Helper()
			if got := q.Stats().OldestReady; !got.Equal(began.Add(after)) {
				t.Errorf("it is %s after the beginning, want %s", got.Sub(began), after)
			}
		}
		q.Add("low", priority(workqueue.PriorityLow))
		time.Sleep(time.Second)
		addAll(q, priority(workqueue.PriorityHigh), "high", "higher")
		expect(0)
		q.Add("low", priority(workqueue.PriorityHigh)) // it keeps its age
		expect(0)
		take(t, q) // low, which was due first
		expect(time.Second)
	})
}

// Drain hands out what is ready, to the last key, and then sends the workers home.
func TestContract16_Drain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := byTenant(1)
		addAll(q, now(), "a/0", "b/0")
		take(t, q)
		take(t, q)
		q.Add("b/0", now()) // due when it is given back
		q.Hold("b/0", time.Hour)
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
						t.Error("Add says that it has added something")
					}
					q.Done(item.Key)
				}
			})
		}
		time.Sleep(3 * time.Second)
		expectStats(t, q, 2, 0, 1) // a/1 and a/2 wait for a/0
		q.Done("a/0")
		workers.Wait()
		for _, key := range []string{"a/0", "a/1", "a/2", "c/1", "c/2"} {
			if handled[key] != 1 {
				t.Errorf("%s was handled %d times, want once", key, handled[key])
			}
			delete(handled, key)
		}
		if len(handled) > 0 {
			t.Errorf("also handled were %v", handled)
		}
		if got := q.Stats(); got != (workqueue.Stats{Down: true}) {
			t.Errorf("in the end the stats are %+v", got)
		}
	})
}

// Workers that wait for a key when the drain begins, or when the last key goes, go home.
func TestDrainWakesWaitingWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string]{GroupLimit: 1})
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
		q.Done("a") // one of them takes b, and they all go
		workers.Wait()
		q.Hold("b", time.Hour) // which is Done now
		expectStats(t, q, 0, 0, 0)
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
		t.Errorf("in the end the stats are %+v", got)
	}
}

// What an Add for later has given way to is not taken back: nothing else would run the key then.
func TestForgiveLeavesWhatOthersRelyOn(t *testing.T) {
	t.Parallel()
	for name, adds := range map[string][]workqueue.Options{
		"a plan that was refused, because the echo's run comes first": {because("echo"), later(time.Minute, "planned")},
		"a plan that the echo has superseded":                         {later(time.Minute, "planned"), because("echo")},
		"a later plan that an earlier one has superseded":             {later(time.Hour, "planned"), later(time.Minute, "echo")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.New(workqueue.Config[string]{})
			defer q.ShutDown()
			q.Add("a", now())
			take(t, q)
			for _, o := range adds {
				q.Add("a", o)
			}
			if n := q.Forgive("a", func(c workqueue.Cause) bool { return c.Detail == "echo" }); n != 0 {
				t.Errorf("Forgive returned %d, want 0", n)
			}
			q.Done("a")
			if s := q.Stats(); s.Ready+s.Waiting != 1 {
				t.Errorf("stats %+v: want a key that comes again", s)
			}
		})
	}
}
