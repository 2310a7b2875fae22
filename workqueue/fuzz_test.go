package workqueue_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/workqueue"
)

// FuzzQueue does the same to a Queue and to the model, and compares them after each step.
// Two bytes are one operation on one of eight keys; time is virtual.
func FuzzQueue(f *testing.F) {
	// Further seeds, which cover each operation, are in testdata.
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, operations []byte) {
		const most = 1000 // of a longer input nothing more is learnt
		operations = operations[:min(len(operations), most)]
		synctest.Test(t, func(t *testing.T) {
			r := rig{queue: workqueue.New[byte](), model: &model{now: time.Now(), keys: map[byte]*modelKey{}}}
			for len(operations) >= 2 {
				step := r.do(t, operations[0], operations[1])
				operations = operations[2:]
				r.compare(t, step)
				if t.Failed() {
					break
				}
			}
			r.end(t)
		})
	})
}

// rig is a Queue and the model of it.
type rig struct {
	queue *workqueue.Queue[byte]
	model *model
}

// do does one operation to both, and returns what it was.
func (r *rig) do(t *testing.T, operation, argument byte) string {
	t.Helper()
	key := argument % 8
	switch operation % 8 {
	case 0, 1, 2:
		o := optionsOf(operation, argument)
		r.queue.Add(key, o)
		r.model.add(key, o)
		return fmt.Sprintf("add %d %+v", key, o)
	case 3, 4:
		return r.get(t)
	case 5:
		r.queue.Done(key)
		r.model.done(key)
		return fmt.Sprint("done ", key)
	case 6, 7:
		d := max(durationOf(argument), 0)
		if argument == 255 {
			r.queue.ShutDown()
			r.model.shutDown()
			return "shut down"
		}
		time.Sleep(d)
		synctest.Wait() // the queue's timer has done its work
		r.model.now = r.model.now.Add(d)
		return fmt.Sprint("wait ", d)
	}
	panic("unreachable")
}

// optionsOf spends what the key leaves of two bytes on a cause, a delay and a priority.
func optionsOf(operation, argument byte) workqueue.Options {
	o := workqueue.Options{Cause: workqueue.Cause{
		Type:   workqueue.CauseTypes()[operation/8%8],
		Detail: []string{"", "one", "two", "three"}[argument/64],
	}}
	if operation%8 == 1 {
		o.After = durationOf(argument)
	}
	if operation&64 != 0 {
		o.Priority = workqueue.PriorityLow
	}
	return o
}

// durationOf has little and much, and both sides of the patience.
func durationOf(argument byte) time.Duration {
	return []time.Duration{
		0, time.Nanosecond, time.Second, workqueue.LowPriorityPatience - time.Nanosecond,
		workqueue.LowPriorityPatience, workqueue.LowPriorityPatience + time.Second, time.Hour, -time.Second,
	}[argument/8%8]
}

// get takes a key, where one is due: Get would block otherwise.
func (r *rig) get(t *testing.T) string {
	t.Helper()
	if r.model.down {
		if item, ok := r.queue.Get(); ok {
			t.Errorf("Get returned %d after ShutDown", item.Key)
		}
		return "get, shut down"
	}
	next := r.model.next()
	if len(next) == 0 {
		return "get, nothing is due"
	}
	item, ok := r.queue.Get()
	if !ok || !slices.Contains(next, item.Key) {
		t.Fatalf("Get returned %d, %t; want one of %v", item.Key, ok, next)
	}
	told := r.model.take(item.Key)
	want := workqueue.Item[byte]{Key: item.Key, Priority: told.priority, Wait: r.model.now.Sub(told.due)}
	got := item
	got.Causes = workqueue.Causes{}
	if got.Key != want.Key || got.Priority != want.Priority || got.Wait != want.Wait {
		t.Errorf("Get returned %+v, want %+v", got, want)
	}
	if diff := cmp.Diff(told.causes, item.Causes.List()); diff != "" || told.dropped != item.Causes.Dropped() {
		t.Errorf("key %d: %d causes dropped, want %d; causes (-want +got):\n%s", item.Key, item.Causes.Dropped(), told.dropped, diff)
	}
	return fmt.Sprint("get ", item.Key)
}

func (r *rig) compare(t *testing.T, step string) {
	t.Helper()
	if diff := cmp.Diff(r.model.stats(), r.queue.Stats()); diff != "" {
		t.Errorf("after %q, stats (-want +got):\n%s", step, diff)
	}
}

// end takes out whatever is left, which must be all that was ever added and not run.
func (r *rig) end(t *testing.T) {
	t.Helper()
	for key := range byte(8) {
		r.queue.Done(key)
		r.model.done(key)
	}
	time.Sleep(2 * time.Hour)
	synctest.Wait()
	r.model.now = r.model.now.Add(2 * time.Hour)
	for len(r.model.next()) > 0 && !t.Failed() {
		r.get(t)
		for key := range byte(8) {
			r.queue.Done(key)
			r.model.done(key)
		}
	}
	r.compare(t, "the end")
	if got := r.queue.Stats(); !t.Failed() && got != (workqueue.Stats{Down: got.Down}) {
		t.Errorf("keys are left: %+v", got)
	}
	r.queue.ShutDown()
}
