package workqueue_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cause is the tests' type of causes.
type cause struct {
	Detail string
	Count  int
}

func (c cause) String() string {
	if c.Count > 1 {
		return fmt.Sprintf("%d times %s", c.Count, c.Detail)
	}
	return c.Detail
}

// merge counts the occurrences of a cause.
func merge(known *cause, c cause) bool {
	if known.Detail != c.Detail {
		return false
	}
	known.Count = max(known.Count, 1) + max(c.Count, 1)
	return true
}

func text(causes workqueue.Causes[cause]) string {
	words := make([]string, len(causes.List()))
	for i, c := range causes.List() {
		words[i] = c.String()
	}
	if n := causes.Dropped(); n > 0 {
		words = append(words, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(words, ", ")
}

type options = workqueue.Options[cause]

// now, later, low and because return Options for the tests.
func now() options { return because("test") }

func because(detail string) options {
	return options{Cause: cause{Detail: detail}}
}

func later(after time.Duration, detail string) options {
	o := because(detail)
	o.After = after
	return o
}

func priority(p workqueue.Priority) options {
	o := now()
	o.Priority = p
	return o
}

// take returns the next key, which must be ready: Get would block otherwise.
func take(t *testing.T, q *workqueue.Queue[string, cause]) workqueue.Item[string, cause] {
	t.Helper()
	if q.Stats().Ready == 0 {
		t.Fatalf("no key is ready: %+v", q.Stats())
	}
	item, ok := q.Get()
	if !ok {
		t.Fatal("the queue is shut down")
	}
	return item
}

// takeAll takes and completes all ready keys, and returns them in their order.
func takeAll(t *testing.T, q *workqueue.Queue[string, cause]) string {
	t.Helper()
	var keys []string
	for q.Stats().Ready > 0 {
		item := take(t, q)
		keys = append(keys, item.Key)
		q.Done(item.Key)
	}
	return strings.Join(keys, " ")
}

func expectStats(t *testing.T, q *workqueue.Queue[string, cause], ready, waiting, taken int) {
	t.Helper()
	if diff := cmp.Diff(workqueue.Stats{Ready: ready, Delayed: waiting, Processing: taken}, q.Stats(), cmpopts.IgnoreFields(workqueue.Stats{}, "Down", "OldestReady", "ReadyLow", "ReadyNormal", "ReadyHigh")); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}

func TestKeyIsInQueueOnce(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	q.Add("a", because("first"))
	q.Add("b", now())
	q.Add("a", because("second"))
	q.Add("a", because("first"))
	expectStats(t, q, 2, 0, 0)
	item := take(t, q)
	if item.Key != "a" || text(item.Causes) != "2 times first, second" {
		t.Errorf("took %s because of %q", item.Key, text(item.Causes))
	}
	q.Done("a")
	if got := takeAll(t, q); got != "b" {
		t.Errorf("then %q was taken, want only b", got)
	}
	expectStats(t, q, 0, 0, 0)
}

func TestTakenKeyReturnsAfterDone(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	q.Add("a", because("first"))
	take(t, q)
	q.Add("a", because("meanwhile"))
	expectStats(t, q, 0, 0, 1)
	q.Done("a")
	expectStats(t, q, 1, 0, 0)
	if got := text(take(t, q).Causes); got != "meanwhile" {
		t.Errorf("its causes are %q, want only those that were added while it was taken", got)
	}
	q.Done("a")
	expectStats(t, q, 0, 0, 0)
}

func TestTakenKeyAddedWithDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		q.Add("a", now())
		take(t, q)
		q.Add("a", later(time.Minute, "retry"))
		time.Sleep(40 * time.Second)
		q.Done("a")
		expectStats(t, q, 0, 1, 0)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		expectStats(t, q, 1, 0, 0)

		// A key that became due while it was taken is ready at Done.
		take(t, q)
		q.Add("a", later(time.Second, "retry"))
		time.Sleep(3 * time.Second)
		expectStats(t, q, 0, 0, 1)
		q.Done("a")
		if wait := take(t, q).Wait; wait != 2*time.Second {
			t.Errorf("it was ready for %s, want 2s", wait)
		}
		q.Done("a")
	})
}

func TestDoneOfKeyThatIsNotTaken(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	q.Done("unknown")
	q.Add("a", now())
	q.Done("a")
	expectStats(t, q, 1, 0, 0)
	take(t, q)
	q.Done("a")
	q.Done("a")
	expectStats(t, q, 0, 0, 0)
}

func TestDelayedKeysAreOrderedByTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		started := time.Now()
		for key, after := range map[string]time.Duration{"c": 3 * time.Hour, "a": time.Hour, "b": 2 * time.Hour} {
			q.Add(key, later(after, "later"))
		}
		q.Add("now", later(-time.Hour, "a negative delay"))
		expectStats(t, q, 1, 3, 0)
		for i, want := range []string{"now", "a", "b", "c"} {
			item, _ := q.Get() // blocks until the key is due
			if at := time.Since(started); item.Key != want || at != time.Duration(i)*time.Hour || item.Wait != 0 {
				t.Errorf("%s came after %s and a wait of %s, want %s after %dh without a wait", item.Key, at, item.Wait, want, i)
			}
			q.Done(item.Key)
		}
		expectStats(t, q, 0, 0, 0)
	})
}

func TestEarlierTimeWins(t *testing.T) {
	t.Parallel()
	low := func(o options) options {
		o.Priority = workqueue.PriorityLow
		return o
	}
	for name, tc := range map[string]struct {
		first, second options
		wantAfter     time.Duration
		wantCauses    string
		wantPriority  workqueue.Priority
	}{
		"an earlier time supersedes": {
			low(later(time.Hour, "first")), later(time.Minute, "second"),
			time.Minute, "second", workqueue.PriorityNormal,
		},
		"an earlier time with lower priority": {
			later(time.Hour, "first"), low(later(time.Minute, "second")),
			time.Minute, "second", workqueue.PriorityLow,
		},
		"no delay supersedes": {
			later(time.Hour, "first"), because("second"), 0, "second", workqueue.PriorityNormal,
		},
		"a later time is ignored": {
			low(later(time.Minute, "first")), later(time.Hour, "second"),
			time.Minute, "first", workqueue.PriorityLow,
		},
		"a later time is ignored for a ready key": {
			low(because("first")), later(time.Minute, "second"), 0, "first", workqueue.PriorityLow,
		},
		"without delay causes are merged": {
			because("first"), low(because("second")), 0, "first, second", workqueue.PriorityNormal,
		},
		"without delay the higher priority wins": {
			low(because("first")), because("second"), 0, "first, second", workqueue.PriorityNormal,
		},
	} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, taken=%t", name, taken), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
					if taken {
						q.Add("a", now())
						take(t, q)
					}
					started := time.Now()
					q.Add("a", tc.first)
					q.Add("a", tc.second)
					if taken {
						q.Done("a")
					}
					item, _ := q.Get()
					if got := time.Since(started); got != tc.wantAfter {
						t.Errorf("it was due after %s, want %s", got, tc.wantAfter)
					}
					if text(item.Causes) != tc.wantCauses || item.Priority != tc.wantPriority {
						t.Errorf("causes %q, priority %d; want %q, %d", text(item.Causes), item.Priority, tc.wantCauses, tc.wantPriority)
					}
					q.Done("a")
					expectStats(t, q, 0, 0, 0)
				})
			})
		}
	}
}

func TestSupersededTimeIsIgnored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		q.Add("a", later(time.Hour, "later"))
		q.Add("a", now())
		if got := takeAll(t, q); got != "a" {
			t.Errorf("took %q, want a", got)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		expectStats(t, q, 0, 0, 0)
	})
}

func TestWaitBeginsWhenKeyIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		q.Add("a", later(time.Hour, "later"))
		time.Sleep(time.Hour + 5*time.Second)
		q.Add("a", now()) // merged, the wait continues
		time.Sleep(time.Second)
		if got := take(t, q).Wait; got != 6*time.Second {
			t.Errorf("Wait is %s, want 6s", got)
		}
		q.Done("a")
	})
}

func TestShutDownWakesWorkersAndDropsKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
		q.Add("taken", now())
		q.Add("taken too", now())
		take(t, q)
		take(t, q)
		q.Add("taken too", now())
		var workers sync.WaitGroup
		for range 5 {
			workers.Go(func() { // waited for below
				if item, ok := q.Get(); ok {
					t.Errorf("Get returned %s", item.Key)
				}
			})
		}
		synctest.Wait()
		q.Add("waiting", later(time.Hour, "later"))
		q.ShutDown()
		q.ShutDown() // a second call changes nothing
		workers.Wait()

		if !q.Stats().Down {
			t.Error("Stats.Down is false after ShutDown")
		}
		if q.Add("added after the end", now()) {
			t.Error("Add returned true after ShutDown")
		}
		q.Add("and for later", later(time.Minute, "later"))
		expectStats(t, q, 0, 0, 2)
		q.Done("taken")
		q.Done("taken too")
		time.Sleep(2 * time.Hour)
		expectStats(t, q, 0, 0, 0)
		if item, ok := q.Get(); ok {
			t.Errorf("after ShutDown, Get returned %s", item.Key)
		}
	})
}

func TestShutDownDropsReadyKeys(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	q.Add("a", now())
	q.ShutDown()
	if item, ok := q.Get(); ok {
		t.Errorf("after ShutDown, Get returned %s", item.Key)
	}
	expectStats(t, q, 0, 0, 0)
}

func TestAddReportsChanges(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	defer q.ShutDown()
	for i, add := range []struct {
		after time.Duration
		want  bool
	}{
		{time.Hour, true},      // new
		{2 * time.Hour, false}, // an earlier run is planned
		{time.Minute, true},    // earlier than before
		{0, true},              // now
		{0, true},              // merges
		{time.Minute, false},   // the key is ready
	} {
		if got := q.Add("a", options{After: add.after}); got != add.want {
			t.Errorf("Add %d, after %s: %v, want %v", i, add.after, got, add.want)
		}
	}
}
