package workqueue_test

import (
	"sync"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
	"github.com/evenkeel-go/evenkeel/workqueue"
)

func TestDifferencesAreComparedWhenSomebodyAsks(t *testing.T) {
	t.Parallel()
	asked := 0
	differs := func(parts kube.Change) *workqueue.Difference {
		return workqueue.NewDifference(func() kube.Change { asked++; return parts })
	}
	q := workqueue.New(workqueue.Config[string]{})
	for _, parts := range []kube.Change{kube.ChangedSpec, kube.ChangedStatus, kube.ChangedLabels} {
		q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: differs(parts)}})
	}
	item, _ := q.Get()
	if asked != 0 {
		t.Errorf("%d differences were compared before anybody asked", asked)
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

// TestDifferencesThatMergeAreBounded: what is merged again and again does not keep everything
// alive that it could be compared with.
func TestDifferencesThatMergeAreBounded(t *testing.T) {
	t.Parallel()
	waiting := 0
	q := workqueue.New(workqueue.Config[string]{})
	for i := range 1000 {
		waiting++
		q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: workqueue.NewDifference(func() kube.Change {
			waiting--
			return kube.Change(1) << (i % 10)
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

func TestDifferencesMayBeAskedByManyAtOnce(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	for range 5 {
		q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: workqueue.NewDifference(func() kube.Change { return kube.ChangedSpec })}})
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
	q.Add("a", workqueue.Options{Cause: workqueue.Cause{Type: workqueue.CauseUpdated, Difference: workqueue.NewDifference(func() kube.Change { return kube.ChangedSpec })}})
	all.Wait()
}

func TestBusyIsWhatAWorkerHasOrWhatBacksOff(t *testing.T) {
	t.Parallel()
	q := workqueue.New(workqueue.Config[string]{})
	expect := func(when string, want bool) {
		t.Helper()
		if got := q.Busy("a"); got != want {
			t.Errorf("%s: busy is %v", when, got)
		}
	}
	expect("before it is added", false)
	q.Add("a", because("x"))
	expect("ready", false)
	q.Get()
	expect("taken", true)
	o := because("x")
	o.After, o.BackOff = 1<<40, true
	q.Add("a", o)
	q.Done("a")
	expect("in back-off", true)
}
