package workqueue_test

import (
	"sync"
	"testing"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
	"github.com/evenkeel-go/evenkeel/kube"
)

func TestDifferenceIsComputedOnDemand(t *testing.T) {
	t.Parallel()
	asked := 0
	differs := func(parts kube.ChangedParts) *workqueue.Difference {
		return workqueue.NewDifference(func() kube.ChangedParts { asked++; return parts })
	}
	q := workqueue.New(workqueue.Config[string]{})
	for _, parts := range []kube.ChangedParts{kube.ChangedSpec, kube.ChangedStatus, kube.ChangedLabels} {
		q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: differs(parts)}})
	}
	item, _ := q.Get()
	if asked != 0 {
		t.Errorf("%d differences were computed before List", asked)
	}
	for range 2 {
		if got := item.Causes.String(); got != "updated 3 times (labels,spec,status)" {
			t.Errorf("the causes are %q", got)
		}
		if list := item.Causes.List(); len(list) != 1 || list[0].Changed != kube.ChangedSpec|kube.ChangedStatus|kube.ChangedLabels || list[0].Difference != nil {
			t.Errorf("the causes are %+v", list)
		}
	}
	if asked != 3 {
		t.Errorf("three differences were compared %d times", asked)
	}
}

// Repeatedly merged differences must not keep all earlier states in memory.
func TestMergedDifferencesAreBounded(t *testing.T) {
	t.Parallel()
	waiting := 0
	q := workqueue.New(workqueue.Config[string]{})
	for i := range 1000 {
		waiting++
		q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: workqueue.NewDifference(func() kube.ChangedParts {
			waiting--
			return kube.ChangedParts(1) << (i % 10)
		})}})
		if waiting > 10 {
			t.Fatalf("%d differences wait to be compared", waiting)
		}
	}
	item, _ := q.Get()
	if got := item.Causes.List()[0].Changed; got != kube.ChangedAnything {
		t.Errorf("changed: %s, want everything", got)
	}
}

func TestDifferenceIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	for range 5 {
		q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: workqueue.NewDifference(func() kube.ChangedParts { return kube.ChangedSpec })}})
	}
	item, _ := q.Get()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := item.Causes.List()[0].Changed; got != kube.ChangedSpec {
				t.Errorf("changed: %s", got)
			}
		})
	}
	q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: workqueue.NewDifference(func() kube.ChangedParts { return kube.ChangedSpec })}})
	all.Wait()
}

// A backoff must not begin if WakeIf accepts a cause that was added while the key was taken, or if causes were dropped.
func TestWakeIfChecksCausesOfTakenKey(t *testing.T) {
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
			q := workqueue.New(workqueue.Config[string]{})
			q.Add("a", because("first"))
			q.Get()
			for _, detail := range test.meanwhile {
				q.Add("a", because(detail))
			}
			failed := because("retry")
			failed.After, failed.BackOff = 1<<40, true
			failed.WakeIf = func(cause workqueue.Cause) bool { return cause.Detail == "good" }
			q.Add("a", failed)
			q.Done("a")
			if len(test.meanwhile) == 0 { // also called for later causes
				late := because("late")
				late.WakeIf = failed.WakeIf
				q.Add("a", late)
			}
			if state, _ := q.Lookup("a"); (state.Place == workqueue.PlaceReady) != test.want {
				t.Errorf("the key is %s, want it to be ready: %v", state.Place, test.want)
			}
		})
	}
}
