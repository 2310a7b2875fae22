package prometheus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
)

// gauges describes what is read when Prometheus scrapes.
type gauges struct {
	queueLength, queueWaiting, queueBackOff, queueHeld, oldestWait *prometheus.Desc
	workers, busy, phase, failingKeys, failingSince, troubles      *prometheus.Desc

	objects, synced, failing, degraded, lastEvent, staleness, lag *prometheus.Desc
	cacheBytes, received, decoded, decodeTime                     *prometheus.Desc
}

func newGauges(c Config) gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(c.name(name), help, labels, nil)
	}
	return gauges{
		queueLength:  desc("controller_queue_length", "Keys that are due and wait for a worker.", "controller"),
		queueWaiting: desc("controller_queue_waiting", "Keys that are not due yet, but for those that back off or are held back.", "controller"),
		queueBackOff: desc("controller_queue_backoff", "Keys that have failed and wait for their retry.", "controller"),
		queueHeld:    desc("controller_queue_held", "Keys that are due and held back: a write is not in the cache yet, or a hot loop is slowed.", "controller"),
		oldestWait:   desc("controller_queue_oldest_wait_seconds", "How long the key that has been due for longest waits for a worker.", "controller"),
		workers:      desc("controller_workers", "Workers that the controller has.", "controller"),
		busy:         desc("controller_workers_busy", "Workers that are handling a key.", "controller"),
		phase:        desc("controller_phase", "1 for the phase that the controller is in, 0 for the others.", "controller", "phase"),
		failingKeys:  desc("controller_failing_keys", "Keys whose last run has failed.", "controller"),
		failingSince: desc("controller_failing_since_timestamp_seconds", "When the key that has failed for longest began to, in seconds since 1970. Not there while none fails.", "controller"),
		// Not controller_troubles: OpenMetrics calls controller_troubles_total so.
		troubles: desc("controller_troubles_active", "Episodes of trouble that last.", "controller", "type"),

		objects:    desc("informer_objects", "Objects in the cache.", "informer"),
		synced:     desc("informer_synced", "1 when everything has been listed since the informer was started, otherwise 0.", "informer"),
		failing:    desc("informer_failing", "1 for the reason why the informer cannot list or watch now, 0 for the others.", "informer", "reason"),
		degraded:   desc("informer_degraded", "1 while an optional informer does without what the cluster does not serve or forbids to read, otherwise 0.", "informer"),
		lastEvent:  desc("informer_last_event_timestamp_seconds", "When the last list, event or bookmark arrived, in seconds since 1970.", "informer"),
		staleness:  desc("informer_staleness_seconds", "How old what the cache shows may be. Not there until something has been listed.", "informer"),
		lag:        desc("informer_lag_seconds", "How long the last write of a handler that was waited for took to be in the cache.", "informer"),
		cacheBytes: desc("informer_cache_bytes", "Memory that the cache takes, with its indexes: an estimate.", "informer"),
		received:   desc("informer_received_bytes_total", "Bytes read from the API server.", "informer"),
		decoded:    desc("informer_decoded_objects_total", "Objects decoded for readers of the cache.", "informer"),
		decodeTime: desc("informer_decode_seconds_total", "Time spent on decoding objects for readers of the cache.", "informer"),
	}
}

func (g gauges) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		g.queueLength, g.queueWaiting, g.queueBackOff, g.queueHeld, g.oldestWait,
		g.workers, g.busy, g.phase, g.failingKeys, g.failingSince, g.troubles,
		g.objects, g.synced, g.failing, g.degraded, g.lastEvent, g.staleness, g.lag,
		g.cacheBytes, g.received, g.decoded, g.decodeTime,
	}
}

func (g gauges) collectController(to chan<- prometheus.Metric, name string, all []controller.Stats) {
	var sum controller.Stats
	phases := map[controller.Phase]int{}
	troubles := map[controller.TroubleType]int{}
	for _, s := range all {
		sum.Queued += s.Queued
		sum.Waiting += s.Waiting
		sum.BackOff += s.BackOff
		sum.Held += s.Held
		sum.Busy += s.Busy
		sum.Workers += s.Workers
		sum.Failing += s.Failing
		sum.OldestWait = max(sum.OldestWait, s.OldestWait)
		sum.FailingSince = earlier(sum.FailingSince, s.FailingSince)
		phases[s.Phase]++
		for trouble, n := range s.Troubles {
			troubles[trouble] += n
		}
	}
	send(to, g.queueLength, float64(sum.Queued), name)
	send(to, g.queueWaiting, float64(sum.Waiting), name)
	send(to, g.queueBackOff, float64(sum.BackOff), name)
	send(to, g.queueHeld, float64(sum.Held), name)
	send(to, g.oldestWait, sum.OldestWait.Seconds(), name)
	send(to, g.workers, float64(sum.Workers), name)
	send(to, g.busy, float64(sum.Busy), name)
	send(to, g.failingKeys, float64(sum.Failing), name)
	sendTime(to, g.failingSince, sum.FailingSince, name)
	for phase := controller.PhaseStopped; phase <= controller.PhaseDraining; phase++ {
		send(to, g.phase, float64(phases[phase]), name, phase.String())
	}
	for _, trouble := range controller.TroubleTypes() {
		send(to, g.troubles, float64(troubles[trouble]), name, string(trouble))
	}
}

func (g gauges) collectInformer(to chan<- prometheus.Metric, name string, all []informer.Health) {
	sum := informer.Health{Synced: true}
	failing := map[reason]bool{}
	listed := false
	for _, h := range all {
		sum.Objects += h.Objects
		sum.Bytes += h.Bytes
		sum.Received += h.Received
		sum.Decoded += h.Decoded
		sum.DecodeTime += h.DecodeTime
		sum.Synced = sum.Synced && h.Synced
		sum.Degraded = sum.Degraded || h.Degraded
		sum.LastEvent = earlier(sum.LastEvent, h.LastEvent)
		sum.Staleness = max(sum.Staleness, h.Staleness)
		sum.Lag = max(sum.Lag, h.Lag)
		listed = listed || h.Synced || h.Staleness > 0
		for _, why := range reasonsOf(h.Err) {
			failing[why] = true
		}
	}
	send(to, g.objects, float64(sum.Objects), name)
	send(to, g.cacheBytes, float64(sum.Bytes), name)
	send(to, g.synced, number(sum.Synced), name)
	send(to, g.degraded, number(sum.Degraded), name)
	send(to, g.lag, sum.Lag.Seconds(), name)
	count(to, g.received, float64(sum.Received), name)
	count(to, g.decoded, float64(sum.Decoded), name)
	count(to, g.decodeTime, sum.DecodeTime.Seconds(), name)
	for _, why := range reasons() {
		send(to, g.failing, number(failing[why]), name, string(why))
	}
	sendTime(to, g.lastEvent, sum.LastEvent, name)
	if listed {
		send(to, g.staleness, sum.Staleness.Seconds(), name)
	}
}

// earlier returns the earlier of two times, of which a zero one is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func send(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// sendTime sends a time, unless it is zero.
func sendTime(to chan<- prometheus.Metric, desc *prometheus.Desc, at time.Time, labels ...string) {
	if !at.IsZero() {
		send(to, desc, float64(at.UnixMilli())/1000, labels...)
	}
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
