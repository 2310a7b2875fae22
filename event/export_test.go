package event

// Stats are the counters of a Recorder.
type Stats = stats

// Stats returns the current counters.
func (r *Recorder) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// KeepObjects limits the number of objects with stored events.
func (r *Recorder) KeepObjects(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects = newObjects(n)
}
