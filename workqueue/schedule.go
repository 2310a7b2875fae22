package workqueue

import (
	"math"
	"time"
)

// run is a run of a key that is to come. Moments are durations since the queue was made.
type run struct {
	taken
	schedule
}

// taken is what is left of a run when a worker has it.
type taken struct {
	causes   Causes
	priority Priority
	// since is from when on the key counts as due: its place among the ready ones, and where
	// Item.Wait begins. Known from when the run is ready or held.
	since time.Duration
	// held is for how long it has been held so far, and heldFrom since when it is; zero when
	// it is not.
	held, heldFrom time.Duration
}

// schedule is when a run is due, and why not now.
type schedule struct {
	due time.Duration
	// latest is to when Adds with Debounce can put due off, at most.
	latest time.Duration
	reason reason
	// woken is true when an Add had Wake: no back-off follows that would delay it.
	woken bool
	// decides is true when an Add for later was refused or superseded because of this run,
	// which is to decide anew. So it has to come.
	decides bool
}

// reason is why a run is not due now. It decides what a further Add can do.
type reason int8

const (
	// delayed: something has happened, and the run comes now, or when no more of it comes.
	// Further Adds merge; the earlier time wins, but Debounce puts it off.
	delayed reason = iota
	// planned: somebody wants a run at a later time. An Add for an earlier time supersedes the
	// plan and its causes, because the run that comes first decides anew.
	planned
	// backingOff: the last run failed. Further Adds merge and wait with it; only Wake makes it
	// due earlier.
	backingOff
	// held: a worker has given the key back as it was. Further Adds merge and wait with it;
	// only Release makes it due earlier.
	held
)

// begin makes r the run that an Add asks for.
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
	r.causes.add(&o.Cause)
}

// merge applies a further Add to a run that is not ready yet. It returns false when the Add
// has changed nothing, because an earlier run is coming and will decide anew.
func (r *run) merge(o *Options, now time.Duration) bool {
	asked, latest := o.times(now)
	switch {
	case o.backsOff() && r.reason != held:
		return r.backOff(o, now)
	case o.After > 0 && asked > r.due:
		r.latest = min(r.latest, asked) // nor may others put the run off beyond it
		r.decides = true
		return false
	case r.reason == planned && asked < r.due:
		r.supersede(o, now)
		return true
	case r.reason == held, r.reason == backingOff && !o.wakesNow():
		// It waits, whatever comes.
	default:
		if r.reason != delayed {
			r.reason, r.latest = delayed, r.due
		}
		if asked <= r.due {
			r.due, r.latest = asked, min(r.latest, latest)
		} else if r.due > now {
			r.due = min(asked, r.latest) // it was put off: only Debounce asks for later here
		}
	}
	r.absorb(o)
	return true
}

// backOff applies an Add that says that the key has failed to what came before it: mostly
// while the failing run was going on.
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

// supersede replaces a plan, which may have been to end a back-off: this is not forgotten.
func (r *run) supersede(o *Options, now time.Duration) {
	woken := r.woken
	r.begin(o, now)
	r.woken, r.decides = r.woken || woken, true
}

// absorb takes over what an Add has beside its time.
func (r *run) absorb(o *Options) {
	r.causes.add(&o.Cause)
	r.priority = max(r.priority, o.Priority)
	r.woken = r.woken || o.wakes()
}

// hold makes a run that was taken one that is held until due.
func (r *run) hold(due time.Duration) {
	r.causes = r.causes.clone() // the worker may still read them
	r.schedule = schedule{reason: held, due: due, latest: due}
}

// unite merges the run that was to come after a held one, unless that is superseded.
func (r *run) unite(meanwhile *run) {
	if meanwhile.reason == planned && meanwhile.due > r.due {
		return
	}
	r.causes.addAll(&meanwhile.causes)
	r.priority = max(r.priority, meanwhile.priority)
}

// times returns when an Add wants the key to be due, and to when further ones like it can put
// that off.
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

// wakesNow is for a key in back-off.
func (o *Options) wakesNow() bool {
	return o.Wake || !o.backsOff() && o.WakeIf != nil && o.WakeIf(o.Cause.Compared())
}

// after returns the moment d after now, or the last there is.
func after(now, d time.Duration) time.Duration {
	if d > math.MaxInt64-now {
		return math.MaxInt64
	}
	return now + d
}
