package prometheus

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// collector implements prometheus.Collector for a Recorder, so that these methods are not part of its API.
type collector Recorder

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, vector := range c.allVectors() {
		vector.Describe(to)
	}
	describe(to, c.gauges.controllers)
	describe(to, c.gauges.informers)
	describe(to, c.gauges.certificates)
	if c.compat != nil {
		describe(to, c.compat.queue)
		describe(to, c.compat.workers)
		to <- c.compat.leads
		to <- c.compat.reads
		to <- c.compat.failedReads
	}
}

// allVectors returns all metrics that are counted at each event.
func (c *collector) allVectors() []prometheus.Collector {
	if c.compat == nil {
		return c.vectors.all
	}
	return slices.Concat(c.vectors.all, c.compat.all)
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, vector := range c.allVectors() {
		vector.Collect(to)
	}
	for name, all := range c.controllers.read() {
		sendAll(to, c.gauges.controllers, all, name)
		if c.compat != nil {
			sendAll(to, c.compat.queue, all, name, name)
			sendAll(to, c.compat.workers, all, name)
		}
	}
	for name, all := range c.informers.read() {
		sendAll(to, c.gauges.informers, all, name)
	}
	certificates := c.certificates.read()
	for name, all := range certificates {
		sendAll(to, c.gauges.certificates, all, name)
	}
	if c.compat != nil {
		for _, all := range c.electors.read() {
			c.compat.collectLeadership(to, all)
		}
		c.compat.collectReads(to, certificates)
	}
}

// observations contains the functions that a scrape calls. The zero value is empty.
type observations[S any] struct {
	mu  sync.Mutex
	all map[*observation[S]]struct{} // guarded by mu
}

// observation is one function of ObserveController, ObserveInformer or ObserveCertificate. It is never called after
// stop has returned.
type observation[S any] struct {
	name    string
	observe func() S

	mu      sync.Mutex // held while observe runs, so that stop waits for it
	stopped bool       // guarded by mu
}

func (o *observations[S]) add(name string, observe func() S) (stop func()) {
	one := &observation[S]{name: label(name), observe: observe}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[*observation[S]]struct{}{}
	}
	o.all[one] = struct{}{}
	return func() {
		o.mu.Lock()
		delete(o.all, one)
		o.mu.Unlock()
		one.mu.Lock()
		defer one.mu.Unlock()
		one.stopped = true
	}
}

// read calls all functions and returns their results by name.
//
// It does not hold o.mu during the calls: an informer calls add while it holds its own lock, which its function
// takes too.
func (o *observations[S]) read() map[string][]S {
	o.mu.Lock()
	all := make([]*observation[S], 0, len(o.all))
	for one := range o.all {
		all = append(all, one)
	}
	o.mu.Unlock()
	results := map[string][]S{}
	for _, one := range all {
		if result, ok := one.read(); ok {
			results[one.name] = append(results[one.name], result)
		}
	}
	return results
}

func (o *observation[S]) read() (result S, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return result, false
	}
	return o.observe(), true
}
