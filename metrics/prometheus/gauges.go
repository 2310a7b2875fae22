package prometheus

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/informer"
)

// gauge is a metric that is read at each scrape, from the states of all controllers, informers or servers of a name.
type gauge[S any] struct {
	desc *prometheus.Desc
	// value returns the value of one state. NaN: it has none.
	value func(S) float64
	// merge combines the values of two states.
	merge func(a, b float64) float64
	// labels has the value of the label besides the name, if there is one.
	labels    []string
	isCounter bool
}

// sendAll sends the gauges of a name. labels are its values of the first labels.
func sendAll[S any](to chan<- prometheus.Metric, gauges []gauge[S], all []S, labels ...string) {
	for _, g := range gauges {
		merged := math.NaN()
		for _, s := range all {
			switch value := g.value(s); {
			case math.IsNaN(merged):
				merged = value
			case !math.IsNaN(value):
				merged = g.merge(merged, value)
			}
		}
		kind := prometheus.GaugeValue
		if g.isCounter {
			kind = prometheus.CounterValue
		}
		if !math.IsNaN(merged) {
			to <- prometheus.MustNewConstMetric(g.desc, kind, merged,
				append(slices.Clip(labels), g.labels...)...)
		}
	}
}

func describe[S any](to chan<- *prometheus.Desc, gauges []gauge[S]) {
	for _, g := range gauges {
		to <- g.desc
	}
}

func sum(a, b float64) float64      { return a + b }
func greatest(a, b float64) float64 { return max(a, b) }
func least(a, b float64) float64    { return min(a, b) }

// gauges are all metrics that are read at each scrape, with names as in docs/reference/metrics.md.
type gauges struct {
	controllers  []gauge[controller.Stats]
	informers    []gauge[informer.Health]
	certificates []gauge[certificate]
}

func newGauges(c Config) gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(c.name(name), help, labels, nil)
	}
	return gauges{
		controllers: controllerGauges(desc), informers: informerGauges(desc),
		certificates: []gauge[certificate]{{
			desc: desc("webhook_certificate_expiry_timestamp_seconds", "End of the certificate of the "+
				"webhook server, in seconds since 1970. Missing without a certificate.", "server"),
			value: func(c certificate) float64 { return unix(c.end) }, merge: least,
		}},
	}
}

// certificate is the state of a webhook server's certificate.
type certificate struct {
	end                time.Time
	reads, failedReads uint64 // of its files
}

type newDesc = func(name, help string, labels ...string) *prometheus.Desc

func controllerGauges(desc newDesc) (all []gauge[controller.Stats]) {
	add := func(name, help string, merge func(a, b float64) float64, value func(s controller.Stats) float64) {
		all = append(all, gauge[controller.Stats]{
			desc: desc("controller_"+name, help, "controller"), value: value,
			merge: merge,
		})
	}
	add("queue_ready", "Keys that are ready and wait for a worker.", sum,
		func(s controller.Stats) float64 { return float64(s.Ready) })
	add("queue_delayed", "Keys that are delayed, without those in backoff and those that are held back.", sum,
		func(s controller.Stats) float64 { return float64(s.Delayed) })
	add("queue_backoff", "Keys in backoff: they have failed and wait for their retry.", sum,
		func(s controller.Stats) float64 { return float64(s.Backoff) })
	add("queue_held", "Keys that are ready but held back, because a write is not in the cache yet, a hot loop is "+
		"slowed down, or an earlier process ended while it handled them.", sum,
		func(s controller.Stats) float64 { return float64(s.Held) })
	add("queue_oldest_wait_seconds", "Time since the oldest ready key became ready.", greatest,
		func(s controller.Stats) float64 { return s.OldestWait.Seconds() })
	add("workers", "Number of workers of the controller.", sum,
		func(s controller.Stats) float64 { return float64(s.Workers) })
	add("workers_busy", "Workers that are processing a key.", sum,
		func(s controller.Stats) float64 { return float64(s.Processing) })
	add("failing_keys", "Keys with a failed last run.", sum,
		func(s controller.Stats) float64 { return float64(s.Failing) })
	add("failing_since_timestamp_seconds", "Time of the first failure of the key that has been failing for longest, "+
		"in seconds since 1970. Missing if no key fails.", least,
		func(s controller.Stats) float64 { return unix(s.FailingSince) })
	phase := desc("controller_phase", "1 for the current phase of the controller, 0 for the other phases.",
		"controller", "phase")
	for _, p := range phases() {
		all = append(all, gauge[controller.Stats]{
			desc: phase, labels: []string{string(p)}, merge: sum,
			value: func(s controller.Stats) float64 { return number(s.Phase == p) },
		})
	}
	// Not controller_problems, because that is the OpenMetrics name of controller_problems_total.
	problems := desc("controller_problems_active", "Current problems.", "controller", "type")
	for _, problem := range problemTypes() {
		all = append(all, gauge[controller.Stats]{
			desc: problems, labels: []string{string(problem)}, merge: sum,
			value: func(s controller.Stats) float64 { return float64(s.Problems[problem]) },
		})
	}
	return all
}

func informerGauges(desc newDesc) (all []gauge[informer.Health]) {
	add := func(name, help string, merge func(a, b float64) float64, value func(h informer.Health) float64) {
		all = append(all, gauge[informer.Health]{
			desc: desc("informer_"+name, help, "informer"), value: value,
			merge: merge,
		})
	}
	add("objects", "Objects in the cache.", sum, func(h informer.Health) float64 { return float64(h.Objects) })
	add("cache_bytes", "Estimated memory of the cache, its indexes and the objects that are kept decoded.", sum,
		func(h informer.Health) float64 { return float64(h.Bytes + h.DecodedBytes) })
	add("synced", "1 if the informer has listed everything since its start, otherwise 0.", least,
		func(h informer.Health) float64 { return number(h.Synced) })
	add("degraded", "1 while an optional informer skips a kind that the cluster does not serve or forbids to read, "+
		"otherwise 0.", greatest, func(h informer.Health) float64 { return number(h.Degraded) })
	add("lag_seconds", "Time between a handler's last awaited write and its arrival in the cache.", greatest,
		func(h informer.Health) float64 { return h.Lag.Seconds() })
	add("last_event_timestamp_seconds", "Time of the last list, event or bookmark, in seconds since 1970.", least,
		func(h informer.Health) float64 { return unix(h.LastEvent) })
	add("staleness_seconds", "Maximum age of the state in the cache. Missing before the first list.", greatest,
		func(h informer.Health) float64 {
			if !h.Synced && h.Staleness <= 0 {
				return math.NaN()
			}
			return h.Staleness.Seconds()
		})
	gaugesEnd := len(all)
	add("received_bytes_total", "Bytes read from the API server.", sum,
		func(h informer.Health) float64 { return float64(h.Received) })
	add("decoded_objects_total", "Objects decoded for readers of the cache.", sum,
		func(h informer.Health) float64 { return float64(h.Decoded) })
	add("decode_seconds_total", "Time spent on decoding objects for readers of the cache.", sum,
		func(h informer.Health) float64 { return h.DecodeTime.Seconds() })
	for i := range all[gaugesEnd:] {
		all[gaugesEnd+i].isCounter = true
	}
	failing := desc("informer_failing", "1 for each current reason why the informer cannot list or watch, 0 for "+
		"the other reasons.", "informer", "reason")
	for _, reason := range reasons() {
		all = append(all, gauge[informer.Health]{
			desc: failing, labels: []string{string(reason)}, merge: greatest,
			value: func(h informer.Health) float64 { return number(slices.Contains(reasonsOf(h.Err), reason)) },
		})
	}
	return all
}

// unix returns a time as seconds since 1970, or NaN for the zero time.
func unix(at time.Time) float64 {
	if at.IsZero() {
		return math.NaN()
	}
	return float64(at.UnixMilli()) / 1000
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
