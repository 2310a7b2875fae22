package workqueue_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

func failed(after time.Duration) options {
	o := later(after, "failed")
	o.Backoff = true
	return o
}

func endingBackoff(o options) options {
	o.EndBackoff = true
	return o
}

func debounced(by time.Duration, detail string) options {
	o := because(detail)
	o.Debounce = by
	return o
}

func delayed(by time.Duration, detail string) options {
	o := because(detail)
	o.Delay = by
	return o
}

// The due time and the causes of a key after several Adds. Adds while a worker has the key have the same effect as Adds
// while it waits.
func TestDueTime(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for name, tc := range map[string]struct {
		adds       []options
		want       time.Duration
		wantCauses string
	}{
		"an event does not end a backoff": {
			[]options{failed(minute), because("event")}, minute, "failed, event",
		},
		"an earlier plan does not end a backoff": {
			[]options{failed(minute), later(time.Second, "planned")}, minute, "failed, planned",
		},
		"a backoff supersedes a later plan": {
			[]options{failed(minute), later(2*minute, "planned")}, minute, "failed",
		},
		"EndBackoff ends a backoff": {
			[]options{failed(minute), because("event"), endingBackoff(because("endsBackoff"))},
			0, "failed, event, endsBackoff",
		},
		"EndBackoff with After ends a backoff later": {
			[]options{failed(minute), endingBackoff(later(time.Second, "endsBackoff"))},
			time.Second, "failed, endsBackoff",
		},
		"an event after EndBackoff with After": {
			[]options{failed(minute), endingBackoff(later(time.Second, "endsBackoff")), because("event")},
			0, "failed, endsBackoff, event",
		},
		"EndBackoff with Debounce does not extend a backoff": {
			[]options{failed(minute), endingBackoff(debounced(2*minute, "endsBackoff"))}, minute, "failed, endsBackoff",
		},
		"a second backoff replaces the first": {
			[]options{failed(minute), failed(2 * minute)}, 2 * minute, "2 times failed",
		},
		"Backoff without After": {
			[]options{later(minute, "planned"), failed(0)}, 0, "failed",
		},
		"a plan before a backoff is merged": {
			[]options{later(time.Second, "planned"), failed(minute)}, minute, "planned, failed",
		},
		"a later plan before a backoff is superseded": {
			[]options{later(2*minute, "planned"), failed(minute)}, minute, "failed",
		},
		"EndBackoff stays after a superseding plan": {
			[]options{endingBackoff(later(2*minute, "endsBackoff")), later(time.Second, "planned"), failed(minute)},
			time.Second, "planned",
		},
		"EndBackoff for a later time than the run": {
			[]options{debounced(time.Second, "event"), endingBackoff(later(30*time.Second, "endsBackoff")), failed(minute)},
			minute, "event, failed",
		},
		"Debounce waits": {
			[]options{debounced(time.Second, "event")}, time.Second, "event",
		},
		"an Add without Debounce is ready now": {
			[]options{debounced(time.Second, "event"), because("now")}, 0, "event, now",
		},
		"a plan bounds Debounce": {
			[]options{debounced(minute, "event"), later(time.Second, "planned")}, time.Second, "event, planned",
		},
		"a later plan bounds further Debounce": {
			[]options{debounced(time.Second, "event"), later(5*time.Second, "planned"), debounced(minute, "event")},
			5 * time.Second, "2 times event",
		},
		"an earlier plan is merged with Debounce": {
			[]options{later(time.Second, "planned"), debounced(minute, "event")}, time.Second, "planned, event",
		},
		"Debounce supersedes a later plan": {
			[]options{later(minute, "planned"), debounced(time.Second, "event")}, time.Second, "event",
		},
		"Delay": {[]options{delayed(minute, "event")}, minute, "event"},
		"an event ends Delay and is merged": {
			[]options{delayed(minute, "first"), because("now")}, 0, "first, now",
		},
		"the earlier Delay wins, and causes are merged": {
			[]options{delayed(minute, "later"), delayed(time.Second, "earlier"), delayed(minute, "last")},
			time.Second, "later, earlier, last",
		},
		"Delay supersedes a later plan": {
			[]options{later(minute, "planned"), delayed(time.Second, "event")}, time.Second, "event",
		},
		"an earlier plan is merged with Delay": {
			[]options{later(time.Second, "planned"), delayed(minute, "event")}, time.Second, "planned, event",
		},
		"a plan does not prolong Delay": {
			[]options{delayed(time.Second, "event"), later(minute, "planned")}, time.Second, "event",
		},
		"Delay does not prolong Debounce": {
			[]options{debounced(time.Second, "event"), delayed(minute, "delayed")}, time.Second, "event, delayed",
		},
		"Debounce does not prolong Delay": {
			[]options{delayed(time.Second, "delayed"), debounced(minute, "event")}, time.Second, "delayed, event",
		},
		"Delay waits with a backoff": {
			[]options{failed(minute), delayed(time.Second, "event")}, minute, "failed, event",
		},
		"Delay with EndBackoff ends a backoff": {
			[]options{failed(minute), endingBackoff(delayed(time.Second, "event"))}, time.Second, "failed, event",
		},
		"Delay disables Debounce": {
			[]options{{Cause: because("both").Cause, Delay: time.Second, Debounce: minute}}, time.Second, "both",
		},
		"After disables Debounce": {
			[]options{{Cause: because("both").Cause, After: time.Second, Debounce: minute}}, time.Second, "both",
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
func expectDue(t *testing.T, adds []options, after time.Duration, causes string, taken bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
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
		if got := text(item.Causes); got != causes {
			t.Errorf("the causes were %q, want %q", got, causes)
		}
		q.Done("a")
		expectStats(t, q, 0, 0, 0)
	})
}

// An event arrives while a worker has the key, before it reports a failure.
func TestBackoffBeginsWhileKeyIsTaken(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before options
		want   time.Duration
		causes string
	}{
		"an event waits":           {because("event"), time.Minute, "event, failed"},
		"an event with EndBackoff": {endingBackoff(because("event")), 0, "event"},
		"a late EndBackoff":        {endingBackoff(debounced(time.Hour, "event")), time.Minute, "event, failed"},
		"a debounced event":        {debounced(time.Second, "event"), time.Minute, "event, failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			expectDue(t, []options{tc.before, failed(time.Minute)}, tc.want, tc.causes, true)
		})
	}
}

func TestBackoffInStats(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	defer q.ShutDown()
	q.Add("failed", failed(time.Minute))
	q.Add("planned", later(time.Minute, "planned"))
	if s := q.Stats(); s.Backoff != 1 || s.Delayed != 1 {
		t.Errorf("stats %+v: want one key that backs off and one that waits", s)
	}
	if q.Add("failed", endingBackoff(because("event"))); q.Stats().Backoff != 0 || q.Stats().Ready != 1 {
		t.Errorf("after EndBackoff the stats are %+v", q.Stats())
	}
}

// Each Add with Debounce delays the key, up to the limit.
func TestContract16_Debounce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		began := time.Now()
		for range 3 {
			q.Add("quiet", debounced(time.Second, "event"))
			time.Sleep(time.Second - 1)
		}
		item, _ := q.Get()
		if got, want := time.Since(began), 2*(time.Second-1)+time.Second; got != want {
			t.Errorf("it was due after %s, want %s", got, want)
		}
		if got := text(item.Causes); got != "3 times event" {
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
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		time.Sleep(time.Hour)
		q.Add("after", later(math.MaxInt64, "later"))
		q.Add("debounce", debounced(math.MaxInt64, "later"))
		q.Add("backoff", failed(math.MaxInt64))
		q.Add("held", now())
		take(t, q)
		q.Hold("held", workqueue.Hold{AtMost: math.MaxInt64})
		time.Sleep(1000 * time.Hour)
		synctest.Wait()
		if s := q.Stats(); s.Ready != 0 || s.Delayed != 2 || s.Backoff != 1 || s.Held != 1 {
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
		q := workqueue.New(workqueue.Config[int, cause]{Merge: merge})
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
