package workqueue_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

func TestCausesAreBounded(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	var want []cause
	for i := range workqueue.MaxCauses + 3 {
		o := because(fmt.Sprint("number ", i))
		q.Add("a", o)
		if i < workqueue.MaxCauses {
			want = append(want, o.Cause)
		}
	}
	q.Add("a", because("number 0")) // in the list already, so it is not dropped
	want[0].Count = 2
	causes := take(t, q).Causes
	if diff := cmp.Diff(want, causes.List()); diff != "" {
		t.Errorf("causes (-want +got):\n%s", diff)
	}
	if causes.Dropped() != 3 {
		t.Errorf("%d causes were dropped, want 3", causes.Dropped())
	}
}

func TestCausesWithoutMergeAreDifferent(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{})
	q.Add("a", because("first"))
	q.Add("a", because("first"))
	if got := text(take(t, q).Causes); got != "first, first" {
		t.Errorf("the causes are %q", got)
	}
}

func TestAddWithFurtherCauses(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	var further workqueue.Causes[cause]
	for i := range workqueue.MaxCauses + 1 {
		further.Add(cause{Detail: fmt.Sprint(i)}, merge)
	}
	o := because("3")
	o.Causes = further
	q.Add("a", o)
	if got, want := text(take(t, q).Causes), "2 times 3, 0, 1, 2, 4, 5, 6, 7, and 1 more"; got != want {
		t.Errorf("the causes are %q, want %q", got, want)
	}
}

func TestCausesOfTakenKeyDoNotChange(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	q.Add("a", because("first"))
	q.Add("a", because("second"))
	causes := take(t, q).Causes
	q.Add("a", because("third"))
	q.Add("a", because("fourth"))
	q.Done("a")
	q.Add("a", because("fifth"))
	if got := text(causes); got != "first, second" {
		t.Errorf("the causes changed to %q", got)
	}
}

// A backoff must not begin if EndBackoffIf accepts a cause that was added while the key was taken, or if causes were
// dropped.
func TestEndBackoffIfChecksCausesOfTakenKey(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile []string
		want      bool
	}{
		"nothing":           {nil, false},
		"no accepted cause": {[]string{"x", "y"}, false},
		"an accepted cause": {[]string{"x", "good"}, true},
		"dropped causes":    {[]string{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
			q.Add("a", because("first"))
			q.Get()
			for _, detail := range test.meanwhile {
				q.Add("a", because(detail))
			}
			failed := because("retry")
			failed.After, failed.Backoff = 1<<40, true
			failed.EndBackoffIf = func(c cause) bool { return c.Detail == "good" }
			q.Add("a", failed)
			q.Done("a")
			if len(test.meanwhile) == 0 { // also called for later causes
				delayed := because("late")
				delayed.EndBackoffIf = failed.EndBackoffIf
				q.Add("a", delayed)
			}
			if entry, _ := q.Lookup("a"); (entry.State == workqueue.Ready) != test.want {
				t.Errorf("the key is %s, want it to be ready: %v", entry.State, test.want)
			}
		})
	}
}

// A backoff must end if EndBackoffIf accepts the cause of an Add, or one of its further causes.
func TestEndBackoffIfEndsBackoff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cause, further string
		want           workqueue.KeyState
	}{
		"no accepted cause":   {"x", "y", workqueue.Backoff},
		"an accepted cause":   {"good", "y", workqueue.Ready},
		"an accepted further": {"x", "good", workqueue.Ready},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
			q.Add("b", because(test.further))
			o := because(test.cause)
			o.Causes = take(t, q).Causes
			o.EndBackoffIf = func(c cause) bool { return c.Detail == "good" }
			q.Add("a", failed(1<<40))
			q.Add("a", o)
			if entry, _ := q.Lookup("a"); entry.State != test.want {
				t.Errorf("the key is %s, want %s", entry.State, test.want)
			}
		})
	}
}

// EndBackoffIf must not be called for causes that could only make the run later: it may count its calls.
func TestEndBackoffIfIsNotCalledForLaterCauses(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string, cause]{Merge: merge})
	q.Add("a", because("first"))
	q.Get()
	q.Add("a", delayed(1<<41, "later"))
	retry := failed(1 << 40)
	retry.EndBackoffIf = func(c cause) bool {
		t.Errorf("EndBackoffIf was called for %s", c.Detail)
		return true
	}
	q.Add("a", retry)
	q.Done("a")
}
