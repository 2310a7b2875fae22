package workqueue_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evenkeel-go/evenkeel/internal/workqueue"
)

// FuzzQueue applies the same operations to a Queue and to the model, and compares them after each step. The first byte
// is the Config. Three further bytes are one operation on one of eight keys. Time is virtual.
func FuzzQueue(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomOperations(seed))
	}
	f.Fuzz(compareWithModel)
}

// TestContract16_QueueMatchesModel is FuzzQueue with fixed random operations.
func TestContract16_QueueMatchesModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		compareWithModel(t, randomOperations(seed))
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
}

func randomOperations(seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 4))
	operations := make([]byte, 1+3*(1+random.IntN(150)))
	for i := range operations {
		operations[i] = byte(random.Uint32())
	}
	return operations
}

func compareWithModel(t *testing.T, operations []byte) {
	t.Helper()
	const maxLength = 1000 // longer inputs find nothing new
	operations = operations[:min(len(operations), maxLength)]
	if len(operations) == 0 {
		return
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(operations[0])
		var steps []string
		for operations = operations[1:]; len(operations) >= 3 && !t.Failed(); operations = operations[3:] {
			steps = append(steps, r.do(t, operations[0], operations[1], operations[2]))
			r.compare(t)
		}
		if !t.Failed() {
			r.end(t)
		}
		if t.Failed() {
			for _, step := range steps {
				t.Log(step)
			}
		}
	})
}

// rig is a Queue and its model.
type rig struct {
	queue *workqueue.Queue[byte, cause]
	model *model
}

// newRig returns a rig with groups of up to eight, three or one keys, with and without a limit.
func newRig(config byte) rig {
	c := workqueue.Config[byte, cause]{Merge: merge, GroupLimit: int(config/4%4) - 1}
	m := &model{now: time.Now(), limit: c.GroupLimit, groupOf: func(byte) string { return "" }}
	if n := []byte{0, 2, 3, 8}[config%4]; n > 0 {
		c.Group = func(key byte) string { return fmt.Sprint(key % n) }
		m.groupOf = c.Group
	}
	return rig{workqueue.New(c), m}
}

// do applies one operation to both, and returns its description.
func (r *rig) do(t *testing.T, operation, a, b byte) string {
	t.Helper()
	key := a % 8
	switch operation % 16 {
	case 0, 1, 2, 3, 4:
		o := optionsOf(operation, a, b)
		got, want := r.queue.Add(key, o), r.model.add(key, o)
		if got != want {
			t.Errorf("Add returned %t, want %t", got, want)
		}
		return fmt.Sprintf("add %d %s after %s delay %s debounce %s priority %d backoff %t wake %t: %t",
			key, o.Cause, o.After, o.Delay, o.Debounce, o.Priority, o.Backoff, o.EndBackoff, want)
	case 5, 6, 7, 8:
		return r.get(t)
	case 9, 10, 11:
		r.queue.Done(key)
		r.model.done(key)
		return fmt.Sprint("done ", key)
	case 12:
		h := workqueue.Hold{AtMost: durationOf(b), EndsWithDrain: b%2 > 0}
		r.queue.Hold(key, h)
		r.model.hold(key, h)
		return fmt.Sprint("hold ", key, " ", h)
	case 13:
		if b > 127 {
			r.queue.Exempt(key)
			r.model.exempt(key)
			return fmt.Sprint("exempt ", key)
		}
		r.queue.Release(key)
		r.model.release(key)
		return fmt.Sprint("release ", key)
	case 14:
		match := func(c cause) bool { return c.Count <= 1 && (strings.HasPrefix(c.Detail, "one") || b > 127) }
		if got, want := r.queue.RemoveCauses(key, match), r.model.removeCauses(key, match); got != want {
			t.Errorf("RemoveCauses returned %d, want %d", got, want)
		}
		return fmt.Sprint("remove causes of ", key)
	case 15:
		return r.wait(a, b)
	}
	panic("unreachable")
}

// wait advances the time, or, rarely, ends the queue.
func (r *rig) wait(a, b byte) string {
	switch {
	case a > 252 && b > 127:
		r.queue.Drain()
		r.model.end(false)
		return "drain"
	case a > 252:
		r.queue.ShutDown()
		r.model.end(true)
		return "shut down"
	}
	d := max(durationOf(b), 0)
	time.Sleep(d)
	synctest.Wait() // until the queue's timer has run
	r.model.wait(d)
	return fmt.Sprint("wait ", d)
}

func optionsOf(operation, a, b byte) options {
	o := options{Cause: cause{
		Detail: []string{"", "one", "two", "three"}[a/64] + []string{"", ", listed", ", added", ", updated"}[a/8%4],
	}}
	switch operation % 16 {
	case 0:
		if b >= 128 {
			o.Delay, o.Debounce = durationOf(b), durationOf(b/8%4)
		}
	case 1:
		o.After = durationOf(b)
	case 2:
		o.Debounce = durationOf(b)
	case 3:
		o.Backoff, o.After = true, durationOf(b)
	case 4:
		o.After, o.Debounce, o.Backoff = durationOf(b), durationOf(b/8), b > 200
	}
	o.EndBackoff = operation/16%4 == 0
	o.Priority = workqueue.Priority(operation/64) - 1 // also one beyond the highest
	return o
}

// durationOf returns short and long durations, and both sides of StarvationTimeout.
func durationOf(b byte) time.Duration {
	return []time.Duration{
		0, time.Nanosecond, time.Second, workqueue.StarvationTimeout - time.Nanosecond,
		workqueue.StarvationTimeout, 2 * workqueue.StarvationTimeout, 5 * time.Second, -time.Second,
	}[b%8]
}

// get takes a key if the model has one. Otherwise Get would block.
func (r *rig) get(t *testing.T) string {
	t.Helper()
	if s := r.model.stats(); r.model.down || r.model.draining && s.Ready+s.Held == 0 {
		if item, ok := r.queue.Get(); ok {
			t.Errorf("Get returned %d at the end", item.Key)
		}
		return "get, after the end"
	}
	if !r.model.mayTake() {
		return "get, no key can be taken"
	}
	item, ok := r.queue.Get()
	k := r.model.take()
	want := workqueue.Item[byte, cause]{Key: k.key, Priority: k.taken.priority, Wait: r.model.now.Sub(k.taken.since)}
	if !ok || item.Key != want.Key || item.Priority != want.Priority || item.Wait != want.Wait {
		t.Errorf("Get returned %+v, %t; want %+v", item, ok, want)
	}
	compareCauses(t, k.key, k.taken, item.Causes)
	return fmt.Sprint("get ", item.Key)
}

func compareCauses(t *testing.T, key byte, want *modelRun, got workqueue.Causes[cause]) {
	t.Helper()
	if !slices.Equal(want.causes, got.List()) || want.dropped != got.Dropped() {
		t.Errorf("key %d: %d causes dropped, want %d; causes (-want +got):\n%s",
			key, got.Dropped(), want.dropped, cmp.Diff(want.causes, got.List()))
	}
}

// compare compares the complete visible state.
func (r *rig) compare(t *testing.T) {
	t.Helper()
	if want, got := r.model.stats(), r.queue.Stats(); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}
	snapshot := r.queue.Snapshot(100)
	if len(snapshot) != len(r.model.keys) {
		t.Errorf("a snapshot of %d keys, want %d", len(snapshot), len(r.model.keys))
	}
	for _, got := range snapshot {
		k := r.model.find(got.Key)
		if k == nil {
			t.Errorf("key %d is in the queue", got.Key)
			continue
		}
		want, run := k.state()
		compareCauses(t, k.key, run, got.Causes)
		if got.Causes = want.Causes; !got.Due.Equal(want.Due) || got.State != want.State || got.Priority != want.Priority {
			t.Errorf("the state is %+v, want %+v", got, want)
		}
	}
}

// end takes the remaining keys, which must be all keys that were added and did not run.
func (r *rig) end(t *testing.T) {
	t.Helper()
	for round := 0; (len(r.model.keys) > 0 || round == 0) && !t.Failed(); round++ {
		for key := range byte(8) {
			r.queue.Done(key)
			r.model.done(key)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		r.model.wait(time.Hour)
		for r.model.mayTake() && !t.Failed() {
			r.get(t)
		}
		r.compare(t)
	}
	if got := r.queue.Stats(); !t.Failed() && got != (workqueue.Stats{Down: got.Down}) {
		t.Errorf("keys remain: %+v", got)
	}
	r.queue.ShutDown()
}
