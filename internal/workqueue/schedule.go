package workqueue

import (
	"math"
	"time"
)

// run is a planned run of a key. Times are durations since the queue was created.
type run[C any] struct {
	taken[C]
	schedule
}

// taken is the part of a run that is kept while a worker processes it.
type taken[C any] struct {
	causes   Causes[C]
	priority Priority
	// since is the time from which the key counts as ready: it determines the order of ready keys, and Item.Wait starts
	// there. It is set when the run is ready or held.
	since time.Duration
	// held is the total time for which it was held. heldFrom is the start of the current hold, or zero.
	held, heldFrom time.Duration
}

// schedule is the due time of a run, and the reason for the delay.
type schedule struct {
	due time.Duration
	// latest is the latest time to which Adds with Debounce can delay due.
	latest time.Duration
	reason reason
	// endsBackoff is true if an Add had EndBackoff: the run is not delayed by a later backoff.
	endsBackoff bool
	// decides is true if an Add for a later time was refused or superseded because of this run. The run must therefore
	// take place.
	decides bool
}

// reason is the reason why a run is not ready. It determines the effect of a further Add.
type reason int8

const (
	// delayed: the run is ready now, after Delay, or when Adds with Debounce stop. Further Adds are merged. The earlier
	// time wins, but Debounce delays it.
	delayed reason = iota
	// planned: a run was requested for a later time. An Add for an earlier time supersedes the plan and its causes,
	// because the earlier run decides when the next one is.
	planned
	// backoff: the last run failed. Further Adds are merged and wait too. Only EndBackoff makes it due earlier.
	backoff
	// held: a worker has returned the key unprocessed. Further Adds are merged and wait too. Only Release makes it due
	// earlier.
	held
)

// begin initializes r from the first Add.
func (r *run[C]) begin(o *Options[C], now time.Duration) {
	*r = run[C]{}
	r.priority = o.Priority
	r.due, r.latest = o.times(now)
	switch {
	case o.startsBackoff():
		r.reason = backoff
	case o.After > 0:
		r.reason = planned
	}
	r.endsBackoff = o.endsBackoff()
	o.addTo(&r.causes)
}

// merge applies a further Add to a run that is not ready yet. It returns false if the Add has changed nothing, because
// an earlier run is planned and will decide.
func (r *run[C]) merge(o *Options[C], now time.Duration) bool {
	earliest, latest := o.times(now)
	switch {
	case o.startsBackoff() && r.reason != held:
		return r.backOff(o, now)
	case o.After > 0 && earliest > r.due:
		r.latest = min(r.latest, earliest) // other Adds must not delay the run beyond it either
		r.decides = true
		r.priority = max(r.priority, urgent(o.Priority))
		return false
	case r.reason == planned && earliest < r.due:
		r.supersede(o, now)
		return true
	case r.reason == held, r.reason == backoff && !o.endsBackoffNow():
		// It waits in any case.
	default:
		if r.reason != delayed {
			r.reason, r.latest = delayed, r.due
		}
		if earliest <= r.due {
			r.due, r.latest = earliest, min(r.latest, latest)
		} else if r.due > now && o.Delay <= 0 {
			r.due = min(earliest, r.latest) // it was debounced: only Debounce delays a run that is planned already
		}
	}
	r.absorb(o)
	return true
}

// backOff applies an Add with Backoff to the earlier Adds, which mostly arrived during the failed run.
func (r *run[C]) backOff(o *Options[C], now time.Duration) bool {
	earliest, latest := o.times(now)
	switch {
	case r.due <= earliest && (r.endsBackoff || r.causes.accepted(o.EndBackoffIf)):
		r.decides = true
		return false
	case r.reason == planned && earliest < r.due:
		r.supersede(o, now)
		return true
	}
	r.schedule = schedule{reason: backoff, due: earliest, latest: latest, decides: r.decides}
	r.absorb(o)
	return true
}

// supersede replaces a plan. It keeps the plan's endsBackoff, and PriorityHigh: otherwise an earlier Add of a low
// priority could make the key run later.
func (r *run[C]) supersede(o *Options[C], now time.Duration) {
	endsBackoff, priority := r.endsBackoff, urgent(r.priority)
	r.begin(o, now)
	r.endsBackoff, r.priority, r.decides = r.endsBackoff || endsBackoff, max(r.priority, priority), true
}

// urgent returns p if it is above PriorityNormal, otherwise the lowest priority. A run that takes the place of a plan
// has at least this priority. A plan of PriorityNormal must not raise background work.
func urgent(p Priority) Priority {
	if p > PriorityNormal {
		return p
	}
	return PriorityLow
}

// absorb takes over everything of an Add except its time.
func (r *run[C]) absorb(o *Options[C]) {
	o.addTo(&r.causes)
	r.priority = max(r.priority, o.Priority)
	r.endsBackoff = r.endsBackoff || o.endsBackoff()
}

// hold changes a taken run to one that is held until due.
func (r *run[C]) hold(due time.Duration) {
	r.causes = r.causes.Clone() // the worker may still read them
	r.schedule = schedule{reason: held, due: due, latest: due}
}

// unite merges the run that was planned after a held one, unless that is superseded.
func (r *run[C]) unite(added *run[C], merge Merge[C]) {
	if added.reason == planned && added.due > r.due {
		return
	}
	r.causes.AddAll(added.causes, merge)
	r.priority = max(r.priority, added.priority)
}

// times returns the due time that an Add requests, and the latest time to which further Adds of its kind can delay it.
func (o *Options[C]) times(now time.Duration) (due, latest time.Duration) {
	switch {
	case o.After > 0:
		due = after(now, o.After)
		return due, due
	case o.Delay > 0:
		due = after(now, o.Delay)
		return due, due
	case o.Debounce > math.MaxInt64/MaxDebounce:
		return after(now, o.Debounce), math.MaxInt64
	case o.Debounce > 0:
		return after(now, o.Debounce), after(now, MaxDebounce*o.Debounce)
	}
	return now, now
}

func (o *Options[C]) startsBackoff() bool { return o.Backoff && o.After > 0 }
func (o *Options[C]) endsBackoff() bool   { return o.EndBackoff && !o.startsBackoff() }

// endsBackoffNow reports whether an Add ends the current backoff of a key.
func (o *Options[C]) endsBackoffNow() bool {
	if o.EndBackoff || o.startsBackoff() || o.EndBackoffIf == nil {
		return o.EndBackoff
	}
	return o.EndBackoffIf(o.Cause) || o.Causes.accepted(o.EndBackoffIf)
}

// after returns the time d after now, or the maximum time.
func after(now, d time.Duration) time.Duration {
	if d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}
