package probe

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// keysKept is how many keys are remembered for the reads.
const keysKept = 1000

// Key names one object.
type Key struct{ Namespace, Name string }

// Observer counts what the handler sees. Its methods are called by the handlers, from
// several goroutines.
type Observer struct {
	runs    atomic.Int64
	touched atomic.Int64

	unseen atomic.Int64  // objects that no handler has seen yet
	seen   []atomic.Bool // by the object's number
	synced chan struct{} // closed by the run that sees the last one
	atSync usage         // written by that run

	burst atomic.Pointer[burst]

	mu   sync.Mutex
	keys []Key // guarded by mu; of the first runs
}

// burst is a number of events that are being handled.
type burst struct {
	number, count int
	sleep         time.Duration
	first         int           // the seq of the first event that cannot be replaced by a later one
	seen          []atomic.Bool // by seq - first
	latencies     []int64       // by seq - first, in nanoseconds
	left          atomic.Int64
	done          chan struct{}
	atDone        usage // written by the last handler
}

func newObserver(n int) *Observer {
	o := &Observer{seen: make([]atomic.Bool, n), synced: make(chan struct{})}
	o.unseen.Store(int64(n))
	return o
}

// expect makes what follows a burst of count events over keys objects in turn. Each event
// but the last of each object may be left out, since a later one replaces it.
func (o *Observer) expect(c Command) *burst {
	b := &burst{
		number: c.Burst, count: c.Count, first: c.Count - c.Keys,
		sleep: time.Duration(c.HandlerMicros) * time.Microsecond,
		seen:  make([]atomic.Bool, c.Keys), latencies: make([]int64, c.Keys),
		done: make(chan struct{}),
	}
	b.left.Store(int64(c.Keys))
	o.burst.Store(b)
	return b
}

// Handled is called by each run of a handler that has read its object. started is when the handler began, uid the
// object's; touched is anything that was computed from the object's fields, so that reading them is not optimised away.
func (o *Observer) Handled(started time.Time, namespace, name, uid string, annotations map[string]string, touched int) {
	o.touched.Add(int64(touched))
	run := o.runs.Add(1)
	if run <= keysKept {
		o.mu.Lock()
		o.keys = append(o.keys, Key{Namespace: namespace, Name: name})
		o.mu.Unlock()
	}
	number, err := NumberOf(uid)
	// A resync may call a handler again before others were called once.
	if err == nil && number >= 0 && number < len(o.seen) && !o.seen[number].Load() && !o.seen[number].Swap(true) &&
		o.unseen.Add(-1) == 0 {
		o.atSync = usageNow()
		close(o.synced)
	}
	if b := o.burst.Load(); b != nil {
		b.handled(started, annotations[EventAnnotation])
	}
}

func (b *burst) handled(started time.Time, mark string) {
	if mark == "" {
		return
	}
	number, seq, sent, err := ParseMark(mark)
	if err != nil || number != b.number {
		return // a resync shows a mark of an earlier burst
	}
	if b.sleep > 0 {
		<-time.After(b.sleep)
	}
	if seq < b.first || seq >= b.count || b.seen[seq-b.first].Swap(true) {
		return
	}
	b.latencies[seq-b.first] = started.UnixNano() - sent
	if b.left.Add(-1) == 0 {
		b.atDone = usageNow()
		close(b.done)
	}
}

// percentiles returns the given percentiles of values by nearest rank, in thousandths of
// their unit. It sorts values.
func percentiles(values []int64, percents ...float64) []float64 {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	result := make([]float64, len(percents))
	for i, p := range percents {
		rank := int(math.Ceil(p*float64(len(values))/100 - 1e-9)) // 99.9 has no exact binary form
		result[i] = float64(values[max(rank, 1)-1]) / 1000
	}
	return result
}
