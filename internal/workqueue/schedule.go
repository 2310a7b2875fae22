package workqueue

import (
	"math"
	"time"
)

// run is a planned run of a key. Times are durations since the queue was created.
type run struct {
	taken
	schedule
}

// taken is the part of a run that is kept while a worker processes it.
type taken struct {
	causes   Causes
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
	// woken is true if an Add had Wake: the run is not delayed by a later backoff.
	woken bool
	// decides is true if an Add for a later time was refused or superseded because of this run. The run must therefore
	// take place.
	decides bool
}

// reason is the reason why a run is not ready. It determines the effect of a further Add.
type reason int8

const (
	// delayed: the run is ready now, or when Adds with Debounce stop. Further Adds are merged. The earlier time wins,
	// but Debounce delays it.
	delayed reason = iota
	// planned: a run was requested for a later time. An Add for an earlier time supersedes the plan and its causes,
	// because the earlier run decides when the next one is.
	planned
	// backingOff: the last run failed. Further Adds are merged and wait too. Only Wake makes it due earlier.
	backingOff
	// held: a worker has returned the key unprocessed. Further Adds are merged and wait too. Only Release makes it due
	// earlier.
	held
)

// begin initializes r from the first Add.
func (r *run) begin(o *Options, now time.Duration) {
	*r = run{}
	r.priority = o.Priority
	r.due, r.latest = o.times(now)
	switch {
	case o.backsOff():
		r.reason = backingOff
	case o.After > 0:
		r.reason = planned
	}
	r.woken = o.wakes()
	o.addTo(&r.causes)
}

// merge applies a further Add to a run that is not ready yet. It returns false if the Add has changed nothing, because
// an earlier run is planned and will decide.
func (r *run) merge(o *Options, now time.Duration) bool {
	asked, latest := o.times(now)
	switch {
	case o.backsOff() && r.reason != held:
		return r.backOff(o, now)
	case o.After > 0 && asked > r.due:
		r.latest = min(r.latest, asked) // other Adds must not delay the run beyond it either
		r.decides = true
		return false
	case r.reason == planned && asked < r.due:
		r.supersede(o, now)
		return true
	case r.reason == held, r.reason == backingOff && !o.wakesNow():
		// It waits in any case.
	default:
		if r.reason != delayed {
			r.reason, r.latest = delayed, r.due
		}
		if asked <= r.due {
			r.due, r.latest = asked, min(r.latest, latest)
		} else if r.due > now {
			r.due = min(asked, r.latest) // it was debounced: only Debounce requests a later time here
		}
	}
	r.absorb(o)
	return true
}

// backOff applies an Add with BackOff to the earlier Adds, which mostly arrived during the failed run.
func (r *run) backOff(o *Options, now time.Duration) bool {
	asked, latest := o.times(now)
	switch {
	case (r.woken || r.causes.accepted(o.WakeIf)) && r.due <= asked:
		r.decides = true
		return false
	case r.reason == planned && asked < r.due:
		r.supersede(o, now)
		return true
	}
	r.schedule = schedule{reason: backingOff, due: asked, latest: latest, decides: r.decides}
	r.absorb(o)
	return true
}

// supersede replaces a plan. It keeps the plan's woken.
func (r *run) supersede(o *Options, now time.Duration) {
	woken := r.woken
	r.begin(o, now)
	r.woken, r.decides = r.woken || woken, true
}

// absorb takes over everything of an Add except its time.
func (r *run) absorb(o *Options) {
	o.addTo(&r.causes)
	r.priority = max(r.priority, o.Priority)
	r.woken = r.woken || o.wakes()
}

// hold changes a taken run to one that is held until due.
func (r *run) hold(due time.Duration) {
	r.causes = r.causes.clone() // the worker may still read them
	r.schedule = schedule{reason: held, due: due, latest: due}
}

// unite merges the run that was planned after a held one, unless that is superseded.
func (r *run) unite(meanwhile *run) {
	if meanwhile.reason == planned && meanwhile.due > r.due {
		return
	}
	r.causes.addAll(&meanwhile.causes)
	r.priority = max(r.priority, meanwhile.priority)
}

// times returns the due time that an Add requests, and the latest time to which further Adds of its kind can delay it.
func (o *Options) times(now time.Duration) (due, latest time.Duration) {
	switch {
	case o.After > 0:
		due = after(now, o.After)
		return due, due
	case o.Debounce > math.MaxInt64/MaxDebounce:
		return after(now, o.Debounce), math.MaxInt64
	case o.Debounce > 0:
		return after(now, o.Debounce), after(now, MaxDebounce*o.Debounce)
	}
	return now, now
}

func (o *Options) backsOff() bool { return o.BackOff && o.After > 0 }
func (o *Options) wakes() bool    { return o.Wake && !o.backsOff() }

// wakesNow reports whether an Add wakes a key in backoff.
func (o *Options) wakesNow() bool {
	if o.Wake || o.backsOff() || o.WakeIf == nil {
		return o.Wake
	}
	return o.WakeIf(o.Cause.Compared()) || o.Causes.accepted(o.WakeIf)
}

// after returns the time d after now, or the maximum time.
func after(now, d time.Duration) time.Duration {
	if d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}
