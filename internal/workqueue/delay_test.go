package workqueue_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

func failed(after time.Duration) workqueue.Options {
	o := later(after, "failed")
	o.BackOff = true
	return o
}

func waking(o workqueue.Options) workqueue.Options {
	o.Wake = true
	return o
}

func debounced(by time.Duration, detail string) workqueue.Options {
	o := because(detail)
	o.Debounce = by
	return o
}

// The due time and the causes of a key after several Adds. Adds while a worker has the key have the same effect as Adds
// while it waits.
func TestDueTime(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for name, tc := range map[string]struct {
		adds       []workqueue.Options
		want       time.Duration
		wantCauses string
	}{
		"an event does not end a backoff": {
			[]workqueue.Options{failed(minute), because("event")}, minute, "triggered (failed), triggered (event)",
		},
		"an earlier plan does not end a backoff": {
			[]workqueue.Options{failed(minute), later(time.Second, "planned")}, minute, "triggered (failed), triggered (planned)",
		},
		"a backoff supersedes a later plan": {
			[]workqueue.Options{failed(minute), later(2*minute, "planned")}, minute, "triggered (failed)",
		},
		"Wake ends a backoff": {
			[]workqueue.Options{failed(minute), because("event"), waking(because("woken"))},
			0, "triggered (failed), triggered (event), triggered (woken)",
		},
		"Wake with After ends a backoff later": {
			[]workqueue.Options{failed(minute), waking(later(time.Second, "woken"))},
			time.Second, "triggered (failed), triggered (woken)",
		},
		"an event after Wake with After": {
			[]workqueue.Options{failed(minute), waking(later(time.Second, "woken")), because("event")},
			0, "triggered (failed), triggered (woken), triggered (event)",
		},
		"Wake with Debounce does not extend a backoff": {
			[]workqueue.Options{failed(minute), waking(debounced(2*minute, "woken"))}, minute, "triggered (failed), triggered (woken)",
		},
		"a second backoff replaces the first": {
			[]workqueue.Options{failed(minute), failed(2 * minute)}, 2 * minute, "triggered 2 times (failed)",
		},
		"BackOff without After": {
			[]workqueue.Options{later(minute, "planned"), failed(0)}, 0, "triggered (failed)",
		},
		"a plan before a backoff is merged": {
			[]workqueue.Options{later(time.Second, "planned"), failed(minute)}, minute, "triggered (planned), triggered (failed)",
		},
		"a later plan before a backoff is superseded": {
			[]workqueue.Options{later(2*minute, "planned"), failed(minute)}, minute, "triggered (failed)",
		},
		"Wake stays after a superseding plan": {
			[]workqueue.Options{waking(later(2*minute, "woken")), later(time.Second, "planned"), failed(minute)},
			time.Second, "triggered (planned)",
		},
		"Wake for a later time than the run": {
			[]workqueue.Options{debounced(time.Second, "event"), waking(later(30*time.Second, "woken")), failed(minute)},
			minute, "triggered (event), triggered (failed)",
		},
		"Debounce waits": {
			[]workqueue.Options{debounced(time.Second, "event")}, time.Second, "triggered (event)",
		},
		"an Add without Debounce is ready now": {
			[]workqueue.Options{debounced(time.Second, "event"), because("now")}, 0, "triggered (event), triggered (now)",
		},
		"a plan bounds Debounce": {
			[]workqueue.Options{debounced(minute, "event"), later(time.Second, "planned")}, time.Second, "triggered (event), triggered (planned)",
		},
		"a later plan bounds further Debounce": {
			[]workqueue.Options{debounced(time.Second, "event"), later(5*time.Second, "planned"), debounced(minute, "event")},
			5 * time.Second, "triggered 2 times (event)",
		},
		"an earlier plan is merged with Debounce": {
			[]workqueue.Options{later(time.Second, "planned"), debounced(minute, "event")}, time.Second, "triggered (planned), triggered (event)",
		},
		"Debounce supersedes a later plan": {
			[]workqueue.Options{later(minute, "planned"), debounced(time.Second, "event")}, time.Second, "triggered (event)",
		},
		"After disables Debounce": {
			[]workqueue.Options{{Cause: because("both").Cause, After: time.Second, Debounce: minute}}, time.Second, "triggered (both)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectDue(t, tc.adds, tc.want, tc.wantCauses, false)
		})
		t.Run(name+", taken", func(t *testing.T) {
			t.Parallel()
			expectDue(t, tc.adds, tc.want, tc.wantCauses, true)
		})
	}
}

// expectDue adds a key, if taken is true while a worker has it, and expects its due time and causes.
func expectDue(t *testing.T, adds []workqueue.Options, after time.Duration, causes string, taken bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string]{})
		if taken {
			q.Add("a", now())
			take(t, q)
		}
		began := time.Now()
		for _, o := range adds {
			q.Add("a", o)
		}
		q.Done("a")
		item, _ := q.Get()
		if got := time.Since(began); got != after || item.Wait != 0 {
			t.Errorf("it was due after %s and waited for %s, want %s and no wait", got, item.Wait, after)
		}
		if got := item.Causes.String(); got != causes {
			t.Errorf("the causes were %q, want %q", got, causes)
		}
		q.Done("a")
		expectStats(t, q, 0, 0, 0)
	})
}

// An event arrives while a worker has the key, before it reports a failure.
func TestBackOffBeginsWhileKeyIsTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before workqueue.Options
		want   time.Duration
		causes string
	}{
		"an event waits":     {because("event"), time.Minute, "triggered (event), triggered (failed)"},
		"an event with Wake": {waking(because("event")), 0, "triggered (event)"},
		"a late Wake":        {waking(debounced(time.Hour, "event")), time.Minute, "triggered (event), triggered (failed)"},
		"a debounced event":  {debounced(time.Second, "event"), time.Minute, "triggered (event), triggered (failed)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectDue(t, []workqueue.Options{tc.before, failed(time.Minute)}, tc.want, tc.causes, true)
		})
	}
}

func TestBackOffInStats(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	defer q.ShutDown()
	q.Add("failed", failed(time.Minute))
	q.Add("planned", later(time.Minute, "planned"))
	if s := q.Stats(); s.BackOff != 1 || s.Waiting != 1 {
		t.Errorf("stats %+v: want one key that backs off and one that waits", s)
	}
	if q.Add("failed", waking(because("event"))); q.Stats().BackOff != 0 || q.Stats().Ready != 1 {
		t.Errorf("after Wake the stats are %+v", q.Stats())
	}
}

// Each Add with Debounce delays the key, up to the limit.
func TestContract16_Debounce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string]{})
		began := time.Now()
		for range 3 {
			q.Add("quiet", debounced(time.Second, "event"))
			time.Sleep(time.Second - 1)
		}
		item, _ := q.Get()
		if got, want := time.Since(began), 2*(time.Second-1)+time.Second; got != want {
			t.Errorf("it was due after %s, want %s", got, want)
		}
		if got := item.Causes.String(); got != "triggered 3 times (event)" {
			t.Errorf("the causes were %q", got)
		}
		q.Done("quiet")

		began = time.Now()
		for q.Stats().Ready == 0 {
			q.Add("restless", debounced(time.Second, "event"))
			time.Sleep(time.Second / 2)
			synctest.Wait()
		}
		if got := time.Since(began); got != workqueue.MaxDebounce*time.Second {
			t.Errorf("it was due after %s, want %d s", got, workqueue.MaxDebounce)
		}
		q.ShutDown()
	})
}

// A due time beyond the maximum duration must not overflow into the past.
func TestDistantTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string]{})
		time.Sleep(time.Hour)
		q.Add("after", later(math.MaxInt64, "later"))
		q.Add("debounce", debounced(math.MaxInt64, "later"))
		q.Add("back-off", failed(math.MaxInt64))
		q.Add("held", now())
		take(t, q)
		q.Hold("held", math.MaxInt64)
		time.Sleep(1000 * time.Hour)
		synctest.Wait()
		if s := q.Stats(); s.Ready != 0 || s.Waiting != 2 || s.BackOff != 1 || s.Held != 1 {
			t.Errorf("stats %+v", s)
		}
		q.ShutDown()
	})
}

// Keys with changed due times become ready in the order of their last due times.
func TestManyDelayedKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const keys = 500
		q := workqueue.New(workqueue.Config[int]{})
		random := rand.New(rand.NewPCG(1, 2))
		began := time.Now()
		due := make([]time.Duration, keys)
		for range 5 {
			for key := range keys {
				after := time.Duration(1+random.IntN(1_000_000)) * time.Millisecond
				if q.Add(key, later(after, "planned")) {
					due[key] = after
				}
			}
		}
		for range keys {
			item, _ := q.Get()
			if got := time.Since(began); got != due[item.Key] {
				t.Errorf("key %d came after %s, want %s", item.Key, got, due[item.Key])
			}
			q.Done(item.Key)
		}
	})
}
