package prometheus

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
)

// gauges has the descriptions of the metrics that are read at each scrape.
type gauges struct {
	queueReady, queueDelayed, queueBackoff, queueHeld, oldestWait *prometheus.Desc
	workers, busy, phase, failingKeys, failingSince, problems     *prometheus.Desc

	objects, synced, failing, degraded, lastEvent, staleness, lag *prometheus.Desc
	cacheBytes, received, decoded, decodeTime                     *prometheus.Desc

	certificateExpiry *prometheus.Desc
}

func newGauges(c Config) gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(c.name(name), help, labels, nil)
	}
	return gauges{
		queueReady: desc("controller_queue_ready", "Keys that are ready and wait for a worker.", "controller"),
		queueDelayed: desc("controller_queue_delayed", "Keys that are delayed, without those in backoff and those "+
			"that are held back.", "controller"),
		queueBackoff: desc("controller_queue_backoff", "Keys in backoff: they have failed and wait for their retry.",
			"controller"),
		queueHeld: desc("controller_queue_held", "Keys that are ready but held back, because a write is not in "+
			"the cache yet, a hot loop is slowed down, or an earlier process ended while it handled them.",
			"controller"),
		oldestWait: desc("controller_queue_oldest_wait_seconds", "Time since the oldest ready key became ready.",
			"controller"),
		workers: desc("controller_workers", "Number of workers of the controller.", "controller"),
		busy:    desc("controller_workers_busy", "Workers that are processing a key.", "controller"),
		phase: desc("controller_phase", "1 for the current phase of the controller, 0 for the other phases.",
			"controller", "phase"),
		failingKeys: desc("controller_failing_keys", "Keys with a failed last run.", "controller"),
		failingSince: desc("controller_failing_since_timestamp_seconds", "Time of the first failure of the key that "+
			"has been failing for longest, in seconds since 1970. Missing if no key fails.", "controller"),
		// Not controller_problems, because that is the OpenMetrics name of controller_problems_total.
		problems: desc("controller_problems_active", "Current problems.", "controller", "type"),

		objects: desc("informer_objects", "Objects in the cache.", "informer"),
		synced: desc("informer_synced", "1 if the informer has listed everything since its start, otherwise 0.",
			"informer"),
		failing: desc("informer_failing", "1 for each current reason why the informer cannot list or watch, 0 for "+
			"the other reasons.", "informer", "reason"),
		degraded: desc("informer_degraded", "1 while an optional informer skips a kind that the cluster does not "+
			"serve or forbids to read, otherwise 0.", "informer"),
		lastEvent: desc("informer_last_event_timestamp_seconds", "Time of the last list, event or bookmark, in "+
			"seconds since 1970.", "informer"),
		staleness: desc("informer_staleness_seconds", "Maximum age of the state in the cache. Missing before the "+
			"first list.", "informer"),
		lag: desc("informer_lag_seconds", "Time between a handler's last awaited write and its arrival "+
			"in the cache.", "informer"),
		cacheBytes: desc("informer_cache_bytes", "Estimated memory of the cache and its indexes.", "informer"),
		received:   desc("informer_received_bytes_total", "Bytes read from the API server.", "informer"),
		decoded:    desc("informer_decoded_objects_total", "Objects decoded for readers of the cache.", "informer"),
		decodeTime: desc("informer_decode_seconds_total", "Time spent on decoding objects for readers of the cache.",
			"informer"),

		certificateExpiry: desc("webhook_certificate_expiry_timestamp_seconds", "End of the certificate of the "+
			"webhook server, in seconds since 1970. Missing without a certificate.", "server"),
	}
}

func (g gauges) all() []*prometheus.Desc {
	return []*prometheus.Desc{
		g.queueReady, g.queueDelayed, g.queueBackoff, g.queueHeld, g.oldestWait,
		g.workers, g.busy, g.phase, g.failingKeys, g.failingSince, g.problems,
		g.objects, g.synced, g.failing, g.degraded, g.lastEvent, g.staleness, g.lag,
		g.cacheBytes, g.received, g.decoded, g.decodeTime,
		g.certificateExpiry,
	}
}

func (g gauges) collectController(to chan<- prometheus.Metric, name string, all []controller.Stats) {
	var sum controller.Stats
	phases := map[controller.Phase]int{}
	problems := map[controller.ProblemType]int{}
	for _, s := range all {
		sum.Ready += s.Ready
		sum.Delayed += s.Delayed
		sum.Backoff += s.Backoff
		sum.Held += s.Held
		sum.Processing += s.Processing
		sum.Workers += s.Workers
		sum.Failing += s.Failing
		sum.OldestWait = max(sum.OldestWait, s.OldestWait)
		sum.FailingSince = earlier(sum.FailingSince, s.FailingSince)
		phases[s.Phase]++
		for problem, n := range s.Problems {
			problems[problem] += n
		}
	}
	send(to, g.queueReady, float64(sum.Ready), name)
	send(to, g.queueDelayed, float64(sum.Delayed), name)
	send(to, g.queueBackoff, float64(sum.Backoff), name)
	send(to, g.queueHeld, float64(sum.Held), name)
	send(to, g.oldestWait, sum.OldestWait.Seconds(), name)
	send(to, g.workers, float64(sum.Workers), name)
	send(to, g.busy, float64(sum.Processing), name)
	send(to, g.failingKeys, float64(sum.Failing), name)
	sendTime(to, g.failingSince, sum.FailingSince, name)
	for phase := controller.PhaseStopped; phase <= controller.PhaseDraining; phase++ {
		send(to, g.phase, float64(phases[phase]), name, phase.String())
	}
	for _, problem := range controller.ProblemTypes() {
		send(to, g.problems, float64(problems[problem]), name, string(problem))
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
		for _, reason := range reasonsOf(h.Err) {
			failing[reason] = true
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
	for _, reason := range reasons() {
		send(to, g.failing, number(failing[reason]), name, string(reason))
	}
	sendTime(to, g.lastEvent, sum.LastEvent, name)
	if listed {
		send(to, g.staleness, sum.Staleness.Seconds(), name)
	}
}

// collectCertificate sends the earliest end of the certificates of servers with one name.
func (g gauges) collectCertificate(to chan<- prometheus.Metric, name string, all []time.Time) {
	var first time.Time
	for _, end := range all {
		first = earlier(first, end)
	}
	sendTime(to, g.certificateExpiry, first, name)
}

// earlier returns the earlier of two times, ignoring zero times.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}

func send(to chan<- prometheus.Metric, desc *prometheus.Desc, value float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// sendTime sends a time as seconds since 1970, unless it is zero.
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
