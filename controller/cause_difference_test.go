package controller

import (
	"sync"
	"testing"

	"github.com/evenkeel-go/evenkeel/kube"
)

func updatedWith(compare func() kube.ChangedParts) Cause {
	return Cause{Type: CauseUpdated, difference: newDifference(compare, 1)}
}

func TestDifferenceIsComputedOnDemand(t *testing.T) {
	t.Parallel()
	compared := 0
	var causes Causes
	for _, parts := range []kube.ChangedParts{kube.ChangedSpec, kube.ChangedStatus, kube.ChangedLabels} {
		causes.add(updatedWith(func() kube.ChangedParts { compared++; return parts }))
	}
	if compared != 0 {
		t.Errorf("%d differences were computed before List", compared)
	}
	for range 2 {
		if got := causes.String(); got != "updated 3 times (labels,spec,status)" {
			t.Errorf("the causes are %q", got)
		}
		if list := causes.List(); len(list) != 1 || list[0].Changed != kube.ChangedSpec|kube.ChangedStatus|kube.ChangedLabels || list[0].difference != nil {
			t.Errorf("the causes are %+v", list)
		}
	}
	if compared != 3 {
		t.Errorf("three differences were computed %d times", compared)
	}
}

// TestMergedDifferencesAreBounded checks that differences that are merged repeatedly do not keep all earlier states in
// memory.
func TestMergedDifferencesAreBounded(t *testing.T) {
	t.Parallel()
	waiting := 0
	var causes Causes
	for i := range 1000 {
		waiting++
		causes.add(updatedWith(func() kube.ChangedParts {
			waiting--
			return kube.ChangedParts(1) << (i % 10)
		}))
		if waiting > 10 {
			t.Fatalf("%d differences wait to be computed", waiting)
		}
	}
	if got := causes.List()[0].Changed; got != kube.ChangedAnything {
		t.Errorf("changed: %s, want everything", got)
	}
}

func TestDifferenceIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	spec := func() kube.ChangedParts { return kube.ChangedSpec }
	q := newQueue(nil, 0)
	for range 5 {
		q.Add(kube.Key{Name: "a"}, queueOptions{Cause: updatedWith(spec)})
	}
	item, _ := q.Get()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := (Causes{item.Causes}).List()[0].Changed; got != kube.ChangedSpec {
				t.Errorf("changed: %s", got)
			}
		})
	}
	q.Add(kube.Key{Name: "a"}, queueOptions{Cause: updatedWith(spec)})
	all.Wait()
}
