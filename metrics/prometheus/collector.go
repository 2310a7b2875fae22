package prometheus

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
)

// gauges describes what is read when Prometheus scrapes.
type gauges struct {
	queueLength, queueWaiting, workers, busy, phase *prometheus.Desc
	objects, synced, failing, degraded, lastEvent   *prometheus.Desc
	cacheBytes, received, decoded, decodeTime       *prometheus.Desc
}

func newGauges(c Config) gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(c.name(name), help, labels, nil)
	}
	return gauges{
		queueLength:  desc("controller_queue_length", "Keys that are due and wait for a worker.", "controller"),
		queueWaiting: desc("controller_queue_waiting", "Keys that wait for their time: retries, requeues, resyncs.", "controller"),
		workers:      desc("controller_workers", "Workers that the controller has.", "controller"),
		busy:         desc("controller_workers_busy", "Workers that are handling a key.", "controller"),
		phase:        desc("controller_phase", "1 for the phase that the controller is in, 0 for the others.", "controller", "phase"),
		objects:      desc("informer_objects", "Objects in the cache.", "informer"),
		synced:       desc("informer_synced", "1 when everything has been listed since the informer was started, otherwise 0.", "informer"),
		failing:      desc("informer_failing", "1 for the reason why the informer cannot list or watch now, 0 for the others.", "informer", "reason"),
		degraded:     desc("informer_degraded", "1 while an optional informer does without what the cluster does not serve or forbids to read, otherwise 0.", "informer"),
		lastEvent:    desc("informer_last_event_timestamp_seconds", "When the last list, event or bookmark arrived, in seconds since 1970.", "informer"),
		cacheBytes:   desc("informer_cache_bytes", "Memory that the cache takes, with its indexes: an estimate.", "informer"),
		received:     desc("informer_received_bytes_total", "Bytes read from the API server.", "informer"),
		decoded:      desc("informer_decoded_objects_total", "Objects decoded for readers of the cache.", "informer"),
		decodeTime:   desc("informer_decode_seconds_total", "Time spent on decoding objects for readers of the cache.", "informer"),
	}
}

// collector is the Recorder as the registry sees it (prometheus.Collector).
type collector Recorder

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	c.queued.Describe(to)
	c.retries.Describe(to)
	c.wait.Describe(to)
	c.durations.Describe(to)
	g := c.gauges
	for _, desc := range []*prometheus.Desc{
		g.queueLength, g.queueWaiting, g.workers, g.busy, g.phase,
		g.objects, g.synced, g.failing, g.degraded, g.lastEvent,
		g.cacheBytes, g.received, g.decoded, g.decodeTime,
	} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.queued.Collect(to)
	c.retries.Collect(to)
	c.wait.Collect(to)
	c.durations.Collect(to)
	for name, all := range c.controllers.read() {
		c.gauges.collectController(to, name, all)
	}
	for name, all := range c.informers.read() {
		c.gauges.collectInformer(to, name, all)
	}
}

func (g gauges) collectController(to chan<- prometheus.Metric, name string, all []controller.Stats) {
	var sum controller.Stats
	phases := map[controller.Phase]int{}
	for _, s := range all {
		sum.Queued += s.Queued
		sum.Waiting += s.Waiting
		sum.Busy += s.Busy
		sum.Workers += s.Workers
		phases[s.Phase]++
	}
	send(to, g.queueLength, float64(sum.Queued), name)
	send(to, g.queueWaiting, float64(sum.Waiting), name)
	send(to, g.workers, float64(sum.Workers), name)
	send(to, g.busy, float64(sum.Busy), name)
	for phase := controller.PhaseStopped; phase <= controller.PhaseDraining; phase++ {
		send(to, g.phase, float64(phases[phase]), name, phase.String())
	}
}

func (g gauges) collectInformer(to chan<- prometheus.Metric, name string, all []informer.Health) {
	sum := informer.Health{Synced: true}
	failing := map[reason]bool{}
	for _, h := range all {
		sum.Objects += h.Objects
		sum.Bytes += h.Bytes
		sum.Received += h.Received
		sum.Decoded += h.Decoded
		sum.DecodeTime += h.DecodeTime
		sum.Synced = sum.Synced && h.Synced
		sum.Degraded = sum.Degraded || h.Degraded
		for _, why := range reasonsOf(h.Err) {
			failing[why] = true
		}
		if sum.LastEvent.IsZero() || (!h.LastEvent.IsZero() && h.LastEvent.Before(sum.LastEvent)) {
			sum.LastEvent = h.LastEvent
		}
	}
	send(to, g.objects, float64(sum.Objects), name)
	send(to, g.cacheBytes, float64(sum.Bytes), name)
	send(to, g.synced, number(sum.Synced), name)
	send(to, g.degraded, number(sum.Degraded), name)
	count(to, g.received, float64(sum.Received), name)
	count(to, g.decoded, float64(sum.Decoded), name)
	count(to, g.decodeTime, sum.DecodeTime.Seconds(), name)
	for _, why := range reasons() {
		send(to, g.failing, number(failing[why]), name, string(why))
	}
	if !sum.LastEvent.IsZero() {
		send(to, g.lastEvent, float64(sum.LastEvent.UnixMilli())/1000, name)
	}
}

func send(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

func count(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// observations are the functions that a scrape reads. The zero value is empty.
type observations[S any] struct {
	mu  sync.Mutex
	all map[*observation[S]]struct{} // guarded by mu
}

// observation is one function, which may be called until stop returns.
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

// read calls the functions and returns their answers by name.
//
// They are called without the lock of add: an informer is added while it holds its own
// lock, which its function needs.
func (o *observations[S]) read() map[string][]S {
	o.mu.Lock()
	all := make([]*observation[S], 0, len(o.all))
	for one := range o.all {
		all = append(all, one)
	}
	o.mu.Unlock()
	answers := map[string][]S{}
	for _, one := range all {
		if answer, ok := one.read(); ok {
			answers[one.name] = append(answers[one.name], answer)
		}
	}
	return answers
}

func (o *observation[S]) read() (answer S, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return answer, false
	}
	return o.observe(), true
}
