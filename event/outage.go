package event

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/retryrules"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// outage describes the temporary failures in a row of one namespace. It delays only the events of that namespace.
// Guarded by Recorder.mu.
type outage struct {
	since    time.Time // of the first failure
	until    time.Time // of the next attempt
	failures int
	sending  bool // one of its events is being sent
}

// earliest returns when a series may be sent. ok is false while another one of a failing namespace is being sent; at
// the end of the Recorder, while one of its own namespace is. r.mu must be held.
func (r *Recorder) earliest(s *series, flush bool) (at time.Time, ok bool) {
	o := r.outages[s.event.Namespace]
	if o == nil {
		return s.due, true
	}
	return later(o.until, s.due), !r.retrying || flush && !o.sending
}

// postpone puts a series back after a temporary failure, and counts the events of its namespace as failed that have
// waited for retryTimeout.
func (r *Recorder) postpone(s *series, err error) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	namespace := s.event.Namespace
	maps.DeleteFunc(r.outages, func(_ string, o *outage) bool { return now.Sub(o.until) > retryTimeout })
	o := r.outages[namespace]
	if o == nil {
		o = &outage{since: now}
		r.outages[namespace] = o
	}
	o.failures++
	delay := retryrules.Delay(r.backoff, o.failures, rand.Float64())
	if after, ok := usercode.RetryAfter(err); ok {
		delay = max(delay, min(after, r.backoff.Max))
	}
	o.until = now.Add(delay)
	if s.created {
		s.state, r.waiting = waiting, append(r.waiting, s)
	} else {
		s.state, r.queue = queued, slices.Insert(r.queue, 0, s)
	}
	expired := func(s *series) bool {
		if s.event.Namespace != namespace || s.due.After(now) || now.Sub(later(s.due, o.since)) < retryTimeout {
			return false
		}
		r.stats.Failed += r.forget(s)
		return true
	}
	r.queue, r.waiting = slices.DeleteFunc(r.queue, expired), slices.DeleteFunc(r.waiting, expired)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// hasRoom reports whether a new event of a namespace fits into the queue. It drops one of a failing namespace for one
// of another namespace. r.mu must be held.
func (r *Recorder) hasRoom(namespace string) bool {
	if len(r.queue) < r.config.QueueSize {
		return true
	}
	if r.outages[namespace] != nil {
		return false
	}
	i := slices.IndexFunc(r.queue, func(s *series) bool { return r.outages[s.event.Namespace] != nil })
	if i < 0 {
		return false
	}
	r.drop(r.forget(r.queue[i]))
	r.queue = slices.Delete(r.queue, i, i+1)
	return true
}
