package main

import (
	"fmt"
	"slices"

	"github.com/evenkeel-go/evenkeel/dev/bench/shared/probe"
)

// metric is one row of the tables.
type metric struct {
	// key names the metric in results, family without the number of objects.
	key, family string
	title       string
	unit        unit
	// target is what Even Keel's figure divided by controller-runtime's is to stay below,
	// stretch what would be better still. Zero: none.
	target, stretch float64
	// rowOf are the targets' own words, where a number says too little.
	note string
	// unlisted is true for figures that the document leaves out, such as those of fewer objects.
	unlisted bool
	// reads is true for reads of the cache, which Kooper does not offer, and again for those that are not the first.
	reads, again bool
}

// bestReadTarget is what reads again of Even Keel at its best divided by controller-runtime's at its best, which copies
// nothing either, are to stay at or below.
const bestReadTarget = 1.5

// kooperTarget is what Even Keel's figures divided by Kooper's are to stay at or below.
const kooperTarget = 1

// million is the number of objects with a separate target.
const million = 1_000_000

// millionTarget is the memory, in bytes, that 1,000,000 Pods are to stay below.
const millionTarget = 700e6

// millionLimit is the soft memory limit of the runs with so many. Programs of that size are run with one, because
// without it the garbage collector lets the heap grow to twice what is in use.
const millionLimit = "660MiB"

// metricsOf returns all metrics of a run in the order of the tables. The targets are for
// 100,000 objects; they stand beside the largest number of the run.
func metricsOf(o Options) []metric {
	var result []metric
	for _, kind := range []string{probe.Pods, probe.Databases} {
		for _, n := range o.Sizes {
			result = append(result, sizeMetrics(kind, n, n == slices.Max(o.Sizes))...)
		}
		result = append(result, eventMetrics(kind, o.HotKeys)...)
	}
	return append(
		result,
		metric{
			key: "binary_bytes", family: "binary_bytes", title: "stripped binary of the smallest controller",
			unit: bytesUnit, target: 0.5, stretch: 0.4,
		},
		metric{key: "modules", family: "modules", title: "modules in it", unit: countUnit},
		metric{key: "cold_build_seconds", family: "cold_build_seconds", title: "cold build of it", unit: secondsUnit},
	)
}

// sizeMetrics returns the metrics of n objects of a kind.
func sizeMetrics(kind string, n int, isLargest bool) []metric {
	rows := []metric{
		{family: "heap_per", title: "heap per %s", unit: bytesUnit, target: 0.05, stretch: 0.035},
		{family: "peak_rss", title: "peak RSS while syncing, %s", unit: bytesUnit, target: 0.10, stretch: 0.06},
		{family: "sync_time", title: "time to sync and handle, %s", unit: secondsUnit, target: 0.25, stretch: 0.15},
		{family: "sync_cpu", title: "CPU time of the same, %s", unit: secondsUnit, target: 0.25, stretch: 0.15},
	}
	for i := range rows {
		m := &rows[i]
		m.title = fmt.Sprintf(m.title, nameOf(kind))
		if m.unlisted = !isLargest; m.unlisted {
			m.title += ", " + thousands(n) + " objects"
		}
		m.family += suffixOf(kind)
		m.key = sized(m.family, n)
		switch {
		case !isLargest || kind != probe.Pods && i > 0:
			m.target, m.stretch = 0, 0
		case kind != probe.Pods:
			m.target, m.stretch = 0.08, 0.05
		}
	}
	return rows
}

// eventMetrics returns the metrics of events of a kind. hotKeys is the number of keys that change in a burst.
func eventMetrics(kind string, hotKeys int) []metric {
	rows := []metric{
		{
			family: "event_cpu_distinct", title: "CPU per event, distinct keys, %s", unit: microsUnit, target: 0.40,
			stretch: 0.30,
		},
		{
			family: "event_cpu_hot", title: "CPU per event, %d hot keys, %s", unit: microsUnit, target: 0.30,
			stretch: 0.15,
		},
		{family: "latency_p50", title: "latency p50, %s", unit: microsUnit},
		{
			family: "latency_p99", title: "latency p99, %s", unit: microsUnit, target: 0.60,
			note: "and a third below Kooper's",
		},
		{family: "latency_p999", title: "latency p99.9, %s", unit: microsUnit, unlisted: true},
	}
	for i := range rows {
		m := &rows[i]
		if m.family == "event_cpu_hot" {
			m.title = fmt.Sprintf(m.title, hotKeys, nameOf(kind))
		} else {
			m.title = fmt.Sprintf(m.title, nameOf(kind))
		}
		m.family += suffixOf(kind)
		m.key = m.family
		if kind != probe.Pods {
			m.target, m.stretch, m.note = 0, 0, ""
		}
	}
	return append(rows, readMetrics(kind)...)
}

// readMetrics returns the metrics of reads of a kind, by objects that were not read before, and again.
func readMetrics(kind string) []metric {
	first, again := 0.6, 0.5
	if kind != probe.Pods {
		first, again = 2, 1
	}
	rows := []metric{
		{family: "get_first", title: "CPU of a first Get, %s", target: first},
		{family: "get", title: "CPU of a Get again, %s", target: again, again: true},
		{family: "list_1000_first", title: "CPU of a first List of 1,000, %s", target: first},
		{family: "list_1000", title: "CPU of a List of 1,000 again, %s", target: again, again: true},
	}
	for i := range rows {
		m := &rows[i]
		m.title, m.family = fmt.Sprintf(m.title, nameOf(kind)), m.family+suffixOf(kind)
		m.key, m.unit, m.reads = m.family, microsUnit, true
	}
	return rows
}

func nameOf(kind string) string {
	if kind == probe.Pods {
		return "Pod"
	}
	return "custom resource"
}

// missed reports whether a ratio misses its target against a peer.
func (m metric) missed(peer string, ratio float64) bool {
	switch peer {
	case controllerRuntime:
		return m.target > 0 && ratio > m.target
	case controllerRuntime + "-best":
		return m.again && ratio > bestReadTarget
	case "kooper":
		if m.family == "latency_p99_pod" {
			return ratio > 2.0/3
		}
		return !m.reads && ratio > kooperTarget
	}
	return false
}

// unit is what a figure is counted in.
type unit int

const (
	bytesUnit unit = iota
	secondsUnit
	microsUnit
	countUnit
)

// format writes a value of the unit for people, with three digits that count.
func (u unit) format(v float64) string {
	switch u {
	case bytesUnit:
		switch {
		case v >= 1e9:
			return digits(v/1e9) + " GB"
		case v >= 1e6:
			return digits(v/1e6) + " MB"
		case v >= 1e4:
			return digits(v/1e3) + " kB"
		}
		return fmt.Sprintf("%.0f B", v)
	case secondsUnit:
		if v < 1 {
			return digits(v*1e3) + " ms"
		}
		return digits(v) + " s"
	case microsUnit:
		if v >= 1000 {
			return digits(v/1000) + " ms"
		}
		return digits(v) + " µs"
	}
	return fmt.Sprintf("%.0f", v)
}

func digits(v float64) string {
	switch {
	case v >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// ratioText writes a ratio with two digits that count.
func ratioText(v float64) string {
	if v < 0.0995 {
		return fmt.Sprintf("%.3f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// thousands writes n with separators.
func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
